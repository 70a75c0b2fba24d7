"""Results in files: read again to the last bit, used on, and refused where they do not fit."""

import json
import re
import shutil
import subprocess
import sys
import zipfile

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from same_bits import require_equal

import hyjax as hj
from hyjax._testing import read_arrays, read_text, write_archive
from hyjax.models import biped_slip, bouncing_ball, rimless_wheel


class Ball(eqx.Module):
    """Parameters of a class of one's own, with a function among them."""

    restitution: jax.Array
    push: object = jnp.tanh


def fall(t, x, params):
    return jnp.stack([x[1], -1.0 + 0 * params.push(x[1])])


def height(t, x, params):
    return x[0]


def bounce(t, x, params):
    return jnp.stack([x[0], -params.restitution * x[1]])


def ball(coordinates=("y", "y_rate"), fall=fall):
    return hj.HybridSystem({"flight": hj.Mode(fall, coordinates)}, (hj.Transition("flight", "flight", height, bounce),))


BALL = ball()


def drop(params=Ball(jnp.array(0.5)), system=BALL, **options):
    return hj.simulate(
        system, jnp.array([1.0, 0.0]), params, mode="flight", t1=4.0, max_jumps=3, throw=False, **options
    )


@pytest.fixture(scope="module")
def gaits():
    """A batch of wheels, in which one rolls backwards and is not found."""
    find = lambda slope: hj.periodic_orbit(
        rimless_wheel.step,
        jnp.array([-0.5, 0.8]),
        rimless_wheel.Params(slope=slope),
        throw=False,
    )
    return jax.vmap(find)(jnp.array([0.15, 0.2, -0.2]))


@pytest.fixture
def file(tmp_path):
    """A file with a trajectory of the ball."""
    path = tmp_path / "drop.npz"
    hj.save(path, drop())
    return path


def load_ball(path, **others):
    return hj.load(path, **({"system": BALL, "params": Ball(jnp.array(0.0))} | others))


@pytest.mark.medium
def test_orbits_come_back_to_the_last_bit_and_go_on(gaits, tmp_path):
    """Of a model, whose name is in the file. NaN and codes of lanes that failed are kept."""
    path = tmp_path / "gaits.npz"
    hj.save(path, gaits)
    loaded = hj.load(path)
    require_equal(gaits, loaded)
    assert str(loaded) == str(gaits) and str(loaded.result) == "2 successful, 1 orbit_not_converged"
    # A gait that was read is a guess, in a batch too, and its plot is that of the gait that was saved.
    again = jax.vmap(lambda gait: gait.step(gait.x, gait.params, throw=False).x)(loaded)
    np.testing.assert_allclose(again[:2], gaits.x[:2], rtol=0, atol=1e-14)
    lines = [gait[1].plot(rimless_wheel).axes[0].lines[0].get_xydata() for gait in (gaits, loaded)]
    np.testing.assert_array_equal(*lines)
    # Any reader of NumPy archives has the numbers.
    np.testing.assert_array_equal(np.load(path)["period"], gaits.period)


@pytest.mark.medium
def test_a_branch_comes_back_and_is_continued(gaits, tmp_path):
    method = hj.PseudoArclength(max_points=4)
    follow = lambda orbit: hj.continuation(orbit, where=lambda p: p.slope, stop=0.3, method=method, throw=False)
    branch = follow(gaits[1])
    hj.save(tmp_path / "branch.npz", {"branch": branch, "gait": gaits[1]})
    loaded = hj.load(tmp_path / "branch.npz")
    require_equal({"branch": branch, "gait": gaits[1]}, loaded)
    np.testing.assert_array_equal(loaded["branch"].values, branch.values)
    assert branch.result == hj.RESULTS.max_points_reached and len(branch) == 4 and "max_points" in str(branch)
    assert hj.load(tmp_path / "branch.npz", describe=True)["kind"] == "dict of Branch, PeriodicOrbit"
    np.testing.assert_array_equal(follow(loaded["gait"]).multipliers, branch.multipliers)


@pytest.mark.medium
def test_a_store_of_results_of_several_systems(gaits, tmp_path):
    """To the last bit and in their order, and the numbers for other programs; whole, or refused."""
    method = hj.PseudoArclength(max_points=4)
    branch = hj.continuation(gaits[1], where=lambda p: p.slope, stop=0.3, method=method, throw=False)
    params = bouncing_ball.Params()
    mode, x = bouncing_ball.start(params)
    fall = hj.simulate(bouncing_ball.system, x, params, mode=mode, t1=1.0, max_jumps=3, throw=False)
    zoo, path = {"wheels": branch, "balls": fall, "all wheels": gaits}, tmp_path / "zoo.zarr"
    hj.save(path, zoo)
    loaded = hj.load(path)
    assert list(loaded) == list(zoo)
    require_equal(loaded, zoo)
    assert [about["kind"] for about in hj.load(path, describe=True).values()] == [
        "Branch",
        "Trajectory",
        "PeriodicOrbit",
    ]
    stored = xarray.open_datatree(path, engine="zarr")["wheels"]
    np.testing.assert_array_equal(stored["x"], branch.x)
    np.testing.assert_array_equal(stored["slope"], branch.values)
    with pytest.raises(FileExistsError, match="the store exists"):
        hj.save(path, zoo)
    for what, given in (
        (branch, "this is Branch"),
        ({"a/b": fall}, "'a/b'"),
        ({".": fall}, "'.'"),
        ({1: fall}, r"\[1\]"),
    ):
        with pytest.raises(ValueError, match=f"a store holds results by name, .*{given}.*Give a dictionary"):
            hj.save(tmp_path / "new.zarr", what)
    with pytest.raises(ValueError, match="is no result of hyjax"):
        hj.save(tmp_path / "new.zarr", {"fall": fall, "x": jnp.zeros(3)})
    for name, nothing in (("new.zarr", {}), ("new.npz", {}), ("new.npz", []), ("new.npz", ())):
        with pytest.raises(ValueError, match=rf"{name}: the {type(nothing).__name__} is empty"):
            hj.save(tmp_path / name, nothing)
    assert [each.name for each in tmp_path.iterdir()] == ["zoo.zarr"]
    with pytest.raises(ValueError, match=r"zoo\.zarr/wheels: .*modes"):
        hj.load(path, system=BALL)
    # Without its bytes, which zarr reads as zeros, and without the group.
    (path / "balls" / "hyjax_result" / "0").unlink()
    with pytest.raises(ValueError, match=r"zoo\.zarr/balls: .* damaged: it is no zip archive"):
        hj.load(path)
    shutil.rmtree(path / "balls")
    with pytest.raises(ValueError, match=r"zoo\.zarr: the file is damaged: its part balls/hyjax_result"):
        hj.load(path)
    xarray.Dataset().to_zarr(tmp_path / "another.zarr", zarr_format=2)
    with pytest.raises(hj.SolveError):
        hj.load(tmp_path / "another.zarr")


@pytest.mark.slow
def test_a_family_of_a_model_needs_no_system(tmp_path):
    params, method = biped_slip.Params(), hj.PseudoArclength(step=0.2, max_step=0.5)
    orbit = hj.periodic_orbit(biped_slip.step, biped_slip.guess(params), params, conserved=biped_slip.energy)
    family = hj.continuation(orbit, stop=1.17, method=method)
    hj.save(tmp_path / "walks.npz", (orbit, family))
    again, branch = hj.load(tmp_path / "walks.npz")
    require_equal(again, orbit)
    require_equal(branch, family)
    assert branch.unfolding.problem.system == orbit.system and again.footfalls().name == "walk"


@pytest.mark.slow
def test_families_come_back_and_are_continued(tmp_path):
    """On a level of a conserved quantity, by a section; and without the quantity. The systems are those that the orbits have."""
    params, method = bouncing_ball.Params(restitution=1.0), hj.PseudoArclength(step=0.2, max_step=0.5)
    energy = lambda t, x, p: p.gravity * x[0] + x[1] ** 2 / 2
    apex = hj.ReturnMap(bouncing_ball.system, section=hj.Section("flight", lambda t, x, p: x[1]))
    top = hj.periodic_orbit(apex, jnp.array([0.3, 0.0]), params, conserved=(energy, 3.0))
    unknown = hj.periodic_orbit(bouncing_ball.step, jnp.array([0.0, 2.0]), params, throw=False)
    for orbit, stop in ((top, 4.0), (unknown, 1.0)):
        hj.save(tmp_path / "orbit.npz", orbit)
        require_equal(hj.load(tmp_path / "orbit.npz", system=orbit.system), orbit)
        family = hj.continuation(orbit, stop=stop, method=method)
        own = family.unfolding.problem.system
        hj.save(tmp_path / "family.npz", family)
        again = hj.load(tmp_path / "family.npz", system=own)
        require_equal(again, family)
        require_equal(again.orbit(-1), family.orbit(-1))
        more = hj.continuation(again.orbit(-1), stop=stop + 1, method=method)
        np.testing.assert_allclose(more.values[-1], stop + 1, rtol=1e-12)


@pytest.mark.medium
def test_a_trajectory_of_an_own_system(file):
    trajectory = drop()
    loaded = load_ball(file)
    require_equal(trajectory, loaded)
    assert loaded.events[1].t == trajectory.events[1].t and loaded.params.push is jnp.tanh
    # Simulated on from its end.
    on = hj.simulate(BALL, loaded.final, loaded.params, mode="flight", t0=loaded.t, t1=4.5, max_jumps=3, throw=False)
    assert on.params.restitution == 0.5


@pytest.mark.medium
@pytest.mark.parametrize(
    "params", [{"restitution": jnp.array(0.5)}, (0.5, {"g": np.float64(1)}), jnp.array([0.5, 1.0])]
)
def test_parameters_in_containers_need_no_example(params, tmp_path):
    first = lambda p: jnp.ravel(jax.tree.leaves(p)[0])[0]
    system = hj.HybridSystem(
        {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -first(p)]), ("y", "y_rate"))},
        (hj.Transition("flight", "flight", height, lambda t, x, p: -x),),
    )
    trajectory = drop(params, system)
    hj.save(tmp_path / "drop.npz", trajectory)
    require_equal(trajectory, hj.load(tmp_path / "drop.npz", system=system))


@pytest.mark.medium
def test_integrators_come_back(tmp_path):
    """Solver, controller with its norm, and adjoint; one for each mode."""
    parts = {
        "flight": hj.Integrator(dfx.Kvaerno3(), adjoint=dfx.DirectAdjoint(), controller=dfx.PIDController(1e-6, 1e-8))
    }
    trajectory = drop(integrator=parts)
    hj.save(tmp_path / "drop.npz", trajectory)
    require_equal(trajectory, load_ball(tmp_path / "drop.npz"))


def test_what_a_file_says_about_itself(file):
    about = hj.load(file, describe=True)
    assert about["kind"] == "Trajectory" and re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", about["saved"])
    assert about["versions"]["jax"] == jax.__version__ and about["versions"]["hyjax"] == hj.__version__
    assert about["parameters"] == {"restitution": {"value": 0.5}}
    assert about["system"]["model"] is None and about["system"]["modes"] == {"flight": ["y", "y_rate"]}
    assert about["system"]["transitions"] == [["flight", "flight"]]


def test_nothing_is_executed(file):
    """No part of a file is a pickle, and a class that a file names is of the packages of hyjax."""
    with zipfile.ZipFile(file) as parts:
        assert all(name.endswith(".npy") or name.startswith("result.json") for name in parts.namelist())
    assert all(array.dtype != object for array in np.load(file, allow_pickle=False).values() if hasattr(array, "dtype"))
    rewritten(file, lambda about: about["result"].update(object="subprocess:Popen"))
    with pytest.raises(ValueError, match="names subprocess:Popen, which is of none of the packages"):
        load_ball(file)


def rewritten(path, change):
    """The same file with another description."""
    about = read_text(path)
    arrays = read_arrays(path, about)
    del about["checksums"]
    change(about)
    write_archive(path, about, arrays)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda about: about.update(version=99), "version 99 of the format, written by hyjax .*reads version 1"),
        (lambda about: about.update(format="another"), "not a result that hj.save wrote: its format is 'another'"),
        (lambda about: about["result"]["fields"].pop("jumps"), "the file lacks jumps of Trajectory"),
        (lambda about: about["result"]["fields"].update(jump=1), "Trajectory lacks jump of the file"),
        (lambda about: about["result"]["fields"].update(t={"array": "none"}), "the array none is missing"),
        (lambda about: about["result"].update(object="hyjax._flow.trajectory:Path"), "is not in the installed hyjax"),
        (lambda about: about["result"].update(object="hyjax._flow.simulate:simulate"), "not a class of data"),
        (lambda about: about["result"]["fields"].update(t={"tensor": "t"}), "an unknown kind, 'tensor'"),
        (lambda about: about["result"]["fields"]["result"]["names"].update({"0": "lost"}), "no result code 'lost'"),
    ],
)  # fmt: skip
def test_another_version_or_a_missing_part_is_refused(file, change, message):
    rewritten(file, change)
    with pytest.raises(ValueError, match=message):
        load_ball(file)


def test_a_class_that_moved_is_found(file):
    """Files of hyjax may be joined or divided after a result was saved."""
    before = load_ball(file)
    for module in ("hyjax._flow.a_former_file", "hyjax._flow.simulate", "hyjax._former_room.trajectory"):
        rewritten(file, lambda about, module=module: about["result"].update(object=f"{module}:Trajectory"))
        require_equal(load_ball(file), before)


@pytest.mark.parametrize("part", ["x_ends.npy", "result.json"])
def test_a_damaged_file_is_refused(file, part):
    """A bit of a part is changed, with the archive's own checksum kept right, then the file is cut."""
    with zipfile.ZipFile(file) as parts:
        held = {name: parts.read(name) for name in parts.namelist()}
    for damaged, message in (
        (None, f"{part} is missing|has no {part}"),
        (b"0", f"its part {part} differs from its checksum"),
    ):
        with zipfile.ZipFile(file, "w") as parts:
            for name, data in held.items():
                if name != part:
                    parts.writestr(name, data)
                elif damaged is not None:
                    parts.writestr(name, data[:-2] + damaged + data[-1:])
        with pytest.raises(ValueError, match=message):
            load_ball(file)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match="no zip archive"):
        load_ball(file)


def test_a_bit_of_the_stored_file(file):
    """The archive's own checksum."""
    with zipfile.ZipFile(file) as parts:
        info = parts.getinfo("x_ends.npy")
    data = bytearray(file.read_bytes())
    data[info.header_offset + 60] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"x_ends\.npy differs from its checksum"):
        load_ball(file)


def test_another_kind_of_file_is_refused(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros(3))
    with pytest.raises(ValueError, match=r"not a result that hj\.save wrote: it has no result\.json"):
        hj.load(other)
    other.write_text("text")
    with pytest.raises(ValueError, match="no zip archive"):
        hj.load(other)
    with pytest.raises(ValueError, match=r"suffix \.npz.*xarray\.load_dataset"):
        hj.load(tmp_path / "gait.nc")
    with pytest.raises(FileNotFoundError):
        hj.load(tmp_path / "none.npz")


def test_another_system_is_refused(file):
    with pytest.raises(ValueError, match=r"modes flight.*hj.load.path, system=system, params=Params"):
        hj.load(file)
    with pytest.raises(ValueError, match=r"modes .*'height'.*that of the file has .*'y'"):
        load_ball(file, system=ball(("height", "y_rate")))
    with pytest.raises(ValueError, match="transitions"):
        load_ball(file, system=hj.HybridSystem({"flight": hj.Mode(fall, ("y", "y_rate"))}, ()))
    with pytest.raises(ValueError, match="modes"):
        load_ball(file, system=rimless_wheel.system)
    with pytest.warns(UserWarning, match="source of the vector field of flight has changed since .* saved on 20"):
        load_ball(file, system=ball(fall=lambda t, x, p: jnp.stack([x[1], -2.0])))


def test_other_parameters_are_refused(file):
    with pytest.raises(ValueError, match=r"parameters \(restitution\) have a class of their own.*an example"):
        hj.load(file, system=BALL)
    with pytest.raises(
        ValueError, match="params has the leaves restitution, gravity; those of the file are restitution"
    ):
        load_ball(file, params=bouncing_ball.Params())
    with pytest.raises(ValueError, match=r"shape \(2,\) at restitution; that of the file is \(\)"):
        load_ball(file, params=Ball(jnp.zeros(2)))


@pytest.mark.medium
def test_what_is_no_result_is_not_saved(gaits, tmp_path):
    path = tmp_path / "what.npz"
    for what in (jnp.zeros(3), BALL, rimless_wheel.Params(), [gaits, 1.0]):
        with pytest.raises(ValueError, match="is no result of hyjax"):
            hj.save(path, what)
    with pytest.raises(ValueError, match="different systems"):
        hj.save(path, (gaits, drop()))
    with pytest.raises(ValueError, match="the result is traced"):
        jax.jit(lambda slope: hj.save(path, eqx.tree_at(lambda orbit: orbit.period, gaits, slope)))(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"x is .*lambda.*which a file cannot hold"):
        hj.save(path, eqx.tree_at(lambda orbit: orbit.x, gaits, lambda t: t))
    with pytest.raises(ValueError, match=r"suffix \.npz"):
        hj.save(tmp_path / "gait.nc", gaits)
    with pytest.raises(
        ValueError, match=r'path must be the path of a file, as in hj\.save\("gait\.npz", orbit\), not PeriodicOrbit'
    ):
        hj.save(gaits, path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        hj.save(tmp_path / "nowhere" / "gait.npz", gaits)


def test_double_precision_is_not_lost(file):
    """The file of float64 in a session of 32 bits."""
    ask = """
import sys, hyjax as hj
try: hj.load(sys.argv[1], system=hj.models.bouncing_ball.system)
except ValueError as error: print(error)
"""
    rewritten(file, lambda about: about["result"]["fields"].update(params=None))
    asked = subprocess.run(
        [sys.executable, "-c", ask, file], capture_output=True, text=True, env={"JAX_PLATFORMS": "cpu"}
    )
    assert "float64, and JAX is set to 32 bits" in asked.stdout and "jax_enable_x64" in asked.stdout, asked.stderr


def test_the_description_is_text(file):
    with zipfile.ZipFile(file) as parts:
        assert json.loads(parts.read("result.json"))["format"] == "hyjax result"


def test_a_result_saves_itself(gaits, tmp_path):
    gaits.save(tmp_path / "gaits.npz")
    assert np.array_equal(hj.load(tmp_path / "gaits.npz").x, gaits.x, equal_nan=True)
    with pytest.raises(ValueError, match=r"suffix \.npz"):
        gaits.save(tmp_path / "gaits.nc")
