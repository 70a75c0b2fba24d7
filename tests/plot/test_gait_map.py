"""The page of a gait map: what its data say, against the branch."""

import html
import json
import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import kneed_walker, rimless_wheel as wheel, simplest_walker


@pytest.fixture(scope="module")
def branch():
    params = wheel.Params()
    orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    return hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)


def part(pattern, page):
    found = re.search(pattern, page, re.DOTALL)
    assert found is not None
    return found


def data_of(page):
    return json.loads(part(r'<script type="application/json" id="data">(.*?)</script>', page)[1])


@pytest.mark.medium
def test_the_page_of_a_branch(branch, tmp_path):
    found = branch.explore(wheel, across="slope", gaits=5, legs={"spoke": ("stance",)})
    data = data_of(found.page)
    assert len(data["gaits"]) == 5 and found.gaits == (("",) * len(branch),)
    drawn = part(r'<svg id="map".*?</svg>', found.page)[0]
    assert drawn.count("<circle") == len(branch) and drawn.count('class="gait"') == 5
    shown = np.linspace(0, len(branch) - 1, 5).astype(int)
    for gait, i in zip(data["gaits"], shown, strict=True):
        # As many digits as are printed.
        assert_allclose(gait["period"], branch.periods[i], rtol=1e-12)
        assert_allclose([complex(*each) for each in gait["multipliers"]], branch.multipliers[i], atol=1e-4)
        assert gait["said"][0] == "gait, stable" and f"slope = {branch.values[i]:.5g} rad" in gait["said"]
        assert gait["times"][0] == 0 and gait["times"][-1] == 1 and gait["stances"] == [[[0, 1]]]
        assert {len(gait["times"])} == {len(gait["moved"]), len(gait["lines"])}
    # The camera goes with the wheel: the length of its step is that of a spoke, 1, in pixels, down the slope.
    way = np.array(data["gaits"][0]["moved"][-1])
    spoke = next(line for line in data["gaits"][0]["lines"][0] if len(line) == 5)
    length = np.hypot(spoke[1] - spoke[3], spoke[2] - spoke[4])
    assert_allclose(np.hypot(*way), length, atol=2)
    assert_allclose(np.arctan2(way[1], way[0]), branch.values[0], atol=0.01)
    with pytest.raises(ValueError, match=r"suffix \.html"):
        found.save(tmp_path / "page.png")
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == found.page
    assert (
        hj.plot.GaitMap(found.parts).page == found.page and len("".join(found.parts.values())) < len(found.page) - 5000
    )
    (shown,) = re.findall(r'srcdoc="([^"]*)"', found._repr_html_())
    assert html.unescape(shown) == found.page


@pytest.mark.medium
def test_branches_by_name(branch):
    by_name = hj.plot.gait_map({"rolling": branch}, wheel, "slope", gaits=2)
    # The model that has this system.
    assert by_name.page == branch.explore(across="slope", gaits=2).page
    assert branch.explore(gaits=2).page == branch.explore(wheel, across="speed", gaits=2).page
    assert by_name.page == hj.plot.gait_map(branch, wheel, "slope", gaits=2).page
    for none in ([], {}, branch.orbit(0), [branch, 1.0]):
        with pytest.raises(ValueError, match="gait_map: give branches"):
            hj.plot.gait_map(none, wheel)


@pytest.mark.medium
def test_the_page_needs_no_other_file(branch):
    page = hj.plot.gait_map([branch], wheel, gaits=2).page
    assert not re.search(r"https?:|src=|href=|@\w+@|url\(|import", page.replace("http://www.w3.org", ""))
    assert page.startswith("<!DOCTYPE html>") and page.count("</script>") == 2


@pytest.mark.medium
def test_a_quantity_that_one_branch_lacks(branch):
    """The points of the other branch are shown."""
    further = hj.continuation(branch.orbits[-1], where=lambda p: p.slope, stop=0.26)

    def early(orbit, params):
        return jnp.where(params.slope < 0.2499, orbit.period, jnp.nan)

    for branches in ([branch, further], [further, branch]):
        drawn = part(r'<svg id="map".*?</svg>', hj.plot.gait_map(branches, wheel, "slope", early, gaits=4).page)[0]
        assert drawn.count("<circle") == np.sum(branch.values < 0.2499) and "nan" not in drawn
    with pytest.raises(ValueError, match="gait_map: early is known at no point"):
        hj.plot.gait_map([further, further], wheel, "slope", early)


def test_axes_of_the_map(branch):
    """The speed by the model's travel, and functions: the same numbers at the same places."""
    # The spectral radius is constant.
    axes = (
        ("period", "spectral_radius"),
        (lambda orbit, params: orbit.period, lambda orbit, params: orbit.spectral_radius),
    )
    pages = [hj.plot.gait_map(branch, wheel, *names, gaits=2).page for names in axes]
    places = [re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', page) for page in pages]
    assert places[0] == places[1] and "&lt;" not in pages[0]
    with pytest.raises(ValueError, match="there is no 'psi'"):
        branch.explore(wheel, up="psi")
    # The wheel says of no spoke whether it stands.
    with pytest.raises(ValueError, match="'duty_factor' is known at no point"):
        branch.explore(wheel, up="duty_factor")
    with pytest.raises(ValueError, match="gaits=0"):
        branch.explore(wheel, gaits=0)
    with pytest.raises(ValueError, match="does not define outline"):
        branch.explore(hj.plot)
    # Of another system, with other parameters or another state.
    for model in (kneed_walker, simplest_walker):
        with pytest.raises(ValueError, match=r"gait_map: outline of .* fails for this orbit, .*model of the orbit"):
            branch.explore(model)
    with pytest.raises(ValueError, match=r"explore: outline of .* fails for this orbit"):
        hj.plot.explore(kneed_walker, branch.orbit(0))


@pytest.mark.medium
def test_a_family_of_a_system_of_ones_own():
    """Without speed, over its parameter; the report says which multipliers stability is about."""
    free = hj.Mode(lambda t, x, p: jnp.stack([x[1], -jnp.ones_like(x[1])]), ("y", "y_rate"))
    bounce = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: x * jnp.array([1.0, -1.0], x.dtype))
    step = hj.ReturnMap(hj.HybridSystem({"free": free}, (bounce,)), sequence=("free",))
    energy = lambda t, x, p: x[0] + x[1] ** 2 / 2
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 1.0]), jnp.array(0.0), conserved=energy)
    assert "stable           yes, by the multipliers beside the family's own" in str(orbit)
    family = hj.continuation(orbit, stop=1.0)
    assert f"stable     {len(family)} of {len(family)} points, by the multipliers beside" in str(family)
    with pytest.raises(ValueError, match=r"is of no model of hyjax\.models\. Give model="):
        family.explore()
    drawn = family.explore(
        SimpleNamespace(outline=lambda mode, x, params: {"ball": jnp.stack([0 * x[0], x[0]])[None]}), gaits=2
    )
    assert "conserved" in drawn.page
