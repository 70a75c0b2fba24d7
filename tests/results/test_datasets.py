"""Results as datasets and tables: orbits, batches of orbits, and trajectories that can be selected from."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import increasing
from hyjax.models import bouncing_ball, simplest_walker


def stacked(orbits):
    import jax

    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *orbits)


def test_an_orbit_as_a_dataset(walker, tmp_path):
    orbit = walker["long_0.009"]
    found = orbit.to_xarray(simplest_walker)
    assert found["x"].dims == ("coordinate",) and found["period"].dims == ()
    assert_array_equal(found["x"].sel(coordinate="phi_rate"), orbit.x[3])
    assert found["x"].attrs["units"].startswith("rad, ") and found["period"].attrs["units"] == "sqrt(l/g)"
    assert float(found["slope"]) == 0.009 and found["slope"].attrs["units"] == "rad"
    assert orbit.to_xarray().equals(found) and orbit.to_xarray()["x"].attrs == found["x"].attrs
    found.to_netcdf(tmp_path / "gait.nc")
    with xarray.open_dataset(tmp_path / "gait.nc") as stored:
        for name in ("x", "period", "nodes", "before", "return_jacobian", "multipliers_imag", "guard_rates", "stable"):
            assert_array_equal(stored[name], found[name], err_msg=name)
        meanings = stored["result"].attrs["flag_meanings"].split()
        assert meanings[list(stored["result"].attrs["flag_values"]).index(int(stored["result"]))] == "successful"


def test_a_batch_as_a_dataset_and_as_a_table(walker):
    orbits = stacked(walker.values())
    found, table = orbits.to_xarray(), orbits.to_pandas()
    assert found["x"].dims == ("orbit", "coordinate") and list(found["orbit"].values) == [1, 2, 3, 4]
    assert_array_equal(found["slope"].sel(orbit=1), orbits.params.slope[0])
    assert list(table.columns[:2]) == ["slope", "theta"] and list(table.index) == [1, 2, 3, 4]
    for k, (_, row) in enumerate(table.iterrows()):
        one = orbits[k].to_pandas()
        assert len(one) == 1 and list(one.columns) == list(table.columns)
        assert row["theta_rate"] == orbits.x[k, 1] and row["period"] == orbits.period[k] == one["period"].iloc[0]
        assert row["result"] == "successful" and row["stable"] == orbits.stable[k]
    assert len(orbits[:0].to_pandas()) == 0 and orbits[:0].to_xarray().sizes["orbit"] == 0


def test_impact_times(walker):
    orbit = walker["long_0.009"]
    assert_array_equal(orbit.impact_times, [orbit.period])
    with pytest.raises(TypeError, match="Choose one"):
        stacked(walker.values()).impact_times  # noqa: B018


@pytest.mark.medium
def test_a_trajectory_can_be_selected_from(tmp_path):
    params = bouncing_ball.Params(restitution=0.5)
    drop = hj.simulate(bouncing_ball.system, jnp.array([1.0, 0.0]), params, mode="flight", t1=1.0)
    found = drop.to_xarray(model=bouncing_ball)
    times = found["time"].values
    assert np.all(np.diff(times) > 0)
    # Free fall until the first impact, at 0.45 s.
    near = found.sel(time=0.4, method="nearest")
    assert_allclose(near["y"], 1 - 9.81 / 2 * float(near["time"]) ** 2, rtol=1e-13)
    # Both sides of an impact, one rounding error apart in time: the speed before is twice the speed after.
    at = int(np.searchsorted(times, drop.events[0].t))
    assert times[at] == drop.events[0].t and np.nextafter(times[at], 0) == times[at - 1]
    assert_allclose(found["y_rate"][at - 1], -2 * found["y_rate"][at], rtol=1e-13)
    assert found["y"].attrs["units"] == found["y_before"].attrs["units"] == "m" and found["time"].attrs["units"] == "s"
    assert drop.to_xarray()["y"].attrs == found["y"].attrs
    drop.to_xarray().to_netcdf(tmp_path / "drop.nc")
    with xarray.open_dataset(tmp_path / "drop.nc") as stored:
        assert_array_equal(stored["y"], found["y"])


def test_times_of_arcs_without_duration_increase_too():
    times = increasing(np.array([0.0, 1.0, 1.0, 1.0, 2.0]))
    assert np.all(np.diff(times) > 0) and times[3] == 1 and 1 - times[1] <= 4e-16
    assert increasing(np.zeros(0)).size == 0
