"""Comparison of pictures with stored ones.

A test marked `compared` returns a figure, and fails where it differs from the picture of its name in `tests/baseline/`. After a
deliberate change, `pytest --mpl-generate-path=tests/baseline FILES` draws them anew: look at each before committing it.
"""

import pytest

# Root mean square over all pixels, of levels from 0 to 255. By rounding on another processor a curve's smoothed edge changes by
# a level or two: 0.05 over a picture. A label that moves by a pixel changes the pixels of its letters by tens to hundreds of
# levels.
TOLERANCE = 0.5

compared = pytest.mark.mpl_image_compare(
    baseline_dir="baseline",
    tolerance=TOLERANCE,
    backend="agg",
    style="default",
    # No version of matplotlib in the file: the same picture gives the same bytes.
    savefig_kwargs={"dpi": 40, "metadata": {"Software": None}},
)
