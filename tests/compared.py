"""Comparison of pictures with stored ones.

A test marked `compared` returns a figure, and fails where it differs from the picture of its name in `tests/baseline/`. After a
deliberate change, `pytest --mpl-generate-path=tests/baseline FILES` draws them anew: look at each before committing it.
"""

import pathlib

import pytest

# Root mean square over all pixels, of levels from 0 to 255. Measured with two pictures, of a gait and of a filter: a change of
# the values that are drawn by 1e-6 of themselves, and so by rounding, changes no pixel; by 1e-4 the smoothed edges of the curves
# change, by 0.08 and 0.12; by 1e-3, 0.3 and 1.0; by 1e-2, about a pixel, 4 and 5. A title that moves by a pixel changes the
# picture by 7.
TOLERANCE = 0.5

compared = pytest.mark.mpl_image_compare(
    baseline_dir=str(pathlib.Path(__file__).parent / "baseline"),
    tolerance=TOLERANCE,
    backend="agg",
    style="default",
    # No version of matplotlib in the file: the same picture gives the same bytes.
    savefig_kwargs={"dpi": 40, "metadata": {"Software": None}},
)
