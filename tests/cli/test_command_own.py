"""The command line with a system from a file of one's own."""

import json
import re

import numpy as np
import pytest
import scipy.integrate
import xarray
from numpy.testing import assert_allclose
from readme import ROOT

WHEEL = '''"""A wheel of one's own.

Its gait is known in closed form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from spokes import half  # beside this file

import hyjax as hj


class Params(eqx.Module):
    slope: jax.Array
    ratio: jax.Array = hj.parameter(2 / 3, "1", "of the inertia")
    control: object = eqx.field(static=True, default=jnp.tanh)


def roll(t, x, p):
    theta, theta_rate = x
    return jnp.stack([theta_rate, p.ratio * jnp.sin(theta + p.slope)])


wheel = hj.HybridSystem(
    {"stance": hj.Mode(roll, ("theta", "theta_rate"), units=("rad", "rad/T"))},
    (hj.Transition("stance", "stance", lambda t, x, p: half - x[0], lambda t, x, p: jnp.stack([-x[0], 2 / 3 * x[1]])),),
    time_unit="T",
)
guess = jnp.array([-0.5, 0.8])
'''


@pytest.fixture
def wheel(tmp_path):
    (tmp_path / "spokes.py").write_text("import math\n\nhalf = math.pi / 6\n")
    path = tmp_path / "own_wheel.py"
    path.write_text(WHEEL)
    return path


BEAD = '''"""A bead on a wire, between stops."""
import equinox as eqx
import jax
import hyjax as hj


class Params(eqx.Module):
    gravity: jax.Array = hj.parameter(9.81, "m/s^2", "gravity")


bodies = hj.contact.lagrangian(lambda q, v, p: v @ v * (1 + q[0] ** 2) / 2 - p.gravity * q[0] ** 2 / 2)
stops = {"left": lambda t, q, p: 1 + q[0], "right": lambda t, q, p: 1 - q[0]}
system = hj.contact.contact_system(
    bodies, {name: hj.contact.Contact(gap, restitution=0.8) for name, gap in stops.items()}, ("x",)
)
'''


@pytest.mark.medium
def test_a_lagrangian_with_stops(command, tmp_path):
    """Positions and velocities are enough to begin with, in the one mode: its contacts are those that hold there."""
    (tmp_path / "bead.py").write_text(BEAD)
    ran = command("simulate", str(tmp_path / "bead.py"), "--t1", "0.8", "--x0", "0,5", "--json")
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    # By the energy, with the parabola's slope of 45 degrees at the stops.
    rate = np.sqrt((25 - 9.81) / 2)
    assert record["modes"] == ["left:open+right:open"] * 2
    (bounce,) = record["events"]
    assert_allclose([bounce["before"][1], bounce["after"][1]], [rate, -0.8 * rate], rtol=1e-8)
    ran = command("simulate", str(tmp_path / "bead.py"), "--t1", "0.8", "--x0", "1,5")
    assert ran.returncode == 2 and "right: the gap is closed and closes: an impact is due" in " ".join(
        ran.stderr.split()
    )


@pytest.mark.medium
def test_commands_run_a_file(command, wheel):
    name = f"{wheel}:wheel"
    ran = command("gait", name, "--param", "slope=0.2", "--starts", "4", "--json")
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    (orbit,) = record["orbits"]
    assert record["params"] == {"slope": 0.2, "ratio": 2 / 3} and record["state_names"] == ["theta", "theta_rate"]
    # The closed form of the gait, see hyjax.models.rimless_wheel; to the rounding of a stride.
    mu, ratio = 2 / 3, 2 / 3
    rate = np.sqrt(4 * mu**2 * ratio * np.sin(np.pi / 6) * np.sin(0.2) / (1 - mu**2))
    np.testing.assert_allclose(orbit["x0"], [-np.pi / 6, rate], rtol=0, atol=2e-14)
    ran = command("simulate", name, "--param", "slope=0.2", "--t1", "1")
    assert ran.returncode == 0 and "Trajectory: 0 jumps" in ran.stdout
    # What changes in the file changes in the results: no program is kept by the name of a file.
    wheel.write_text(WHEEL.replace("2 / 3 * x[1]", "0.7 * x[1]"))
    changed = json.loads(command("gait", name, "--param", "slope=0.2", "--starts", "4", "--json").stdout)
    rate = np.sqrt(4 * 0.7**2 * ratio * np.sin(np.pi / 6) * np.sin(0.2) / (1 - 0.7**2))
    np.testing.assert_allclose(changed["orbits"][0]["x0"][1], rate, rtol=0, atol=2e-14)


BALL = '''"""A ball without loss."""

import jax.numpy as jnp
from hyjax.models import bouncing_ball

import hyjax as hj

Params, system = bouncing_ball.Params, bouncing_ball.system
step = hj.ReturnMap(system, section=hj.Section("flight", lambda t, x, p: x[1]))
guess = jnp.array([0.3, 0.0])


def conserved(t, x, p):
    return p.gravity * x[0] + x[1] ** 2 / 2
'''


@pytest.mark.medium
def test_the_gait_of_a_file_with_a_conserved_quantity(command, tmp_path):
    path = tmp_path / "lossless.py"
    path.write_text(BALL)
    ran = command("gait", f"{path}:system", "--param", "restitution=1", "--json")
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    (orbit,) = record["orbits"]
    # Up and down from the height 0.3, to the rounding of a stride.
    assert_allclose(orbit["period"], 2 * np.sqrt(2 * 0.3 / 9.81), rtol=1e-13)
    assert_allclose(record["conserved"], 0.3 * 9.81, rtol=1e-15)
    for option, value in [("--region", "0:1,0:1"), ("--sequence", "flight"), ("--starts", "5")]:
        refused = command("gait", f"{path}:system", option, value)
        assert refused.returncode and f"{option}: the orbits of " in refused.stderr and "are a family" in refused.stderr
    shown = command("gait", f"{path}:system", "--param", "restitution=0.8")
    assert shown.returncode and "orbit_not_converged" in shown.stderr


WIND = '''"""A ball in a wind that pushes it onwards."""
import equinox as eqx
import jax
import jax.numpy as jnp

import hyjax as hj


class Params(eqx.Module):
    push: jax.Array = hj.parameter(0.2, "1/s", "of the wind")


body = hj.contact.Mechanism(lambda q, p: jnp.eye(1), lambda t, q, v, p: p.push * v - 1)
contacts = {"ball": hj.contact.Contact(lambda t, q, p: q[0], restitution=0.8)}
system = hj.contact.contact_system(body, contacts, ("z",))
'''


@pytest.mark.slow
def test_a_sequence_of_sets_of_contacts(command, tmp_path):
    """With v' = v / 5 - 1 the ball returns after the time T = u + u / 0.8 at the speed u / 0.8, up with u."""
    path = tmp_path / "wind.py"
    path.write_text(WIND)
    ran = command("gait", f"{path}:system", "--sequence", "ball:open", "--region", "0,1:2,0", "--starts", "8", "--json")
    assert ran.returncode == 0, ran.stderr
    u, period = (json.loads(ran.stdout)["orbits"][0][key] for key in ("x0", "period"))
    # The rounding of a stride.
    assert_allclose([period, 5 + (u[1] - 5) * np.exp(period / 5)], [2.25 * u[1], -1.25 * u[1]], rtol=1e-13)
    refused = command("gait", f"{path}:system", "--sequence", "bal:open")
    assert refused.returncode == 2 and "Name each of them, in their order, as in 'ball:open'." in refused.stderr


@pytest.mark.slow
def test_the_family_of_a_file_with_a_conserved_quantity(command, tmp_path):
    """Over the energy E the ball rises to E / g, in the period sqrt(8 E) / g."""
    path = tmp_path / "lossless.py"
    path.write_text(BALL)

    def run(*arguments):
        ran = command(arguments[0], f"{path}:system", "--param", "restitution=1", *arguments[1:], "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    # To the rounding of a stride, of a Newton iteration and of an optimum.
    for point in run("continue", "--where", "conserved", "--from", "2", "--to", "5")["points"]:
        assert_allclose(
            [point["x0"][0], point["period"]], [point["value"] / 9.81, np.sqrt(8 * point["value"]) / 9.81], rtol=1e-12
        )
    lost = command("gait", f"{path}:system", "--param", "restitution=1", "--param", "conserved=-5")
    assert lost.returncode == 1 and len(lost.stderr.splitlines()) == 1
    assert "no orbit at conserved = -5" in lost.stderr and "Give --param conserved=VALUE" in lost.stderr
    swept = run("sweep", "--prescribe", "period=0.5:0.6:3", "--solve", "conserved")
    assert_allclose(swept["conserved"], (9.81 * np.linspace(0.5, 0.6, 3)) ** 2 / 8, rtol=1e-12)
    best = run(
        "optimize", "--over", "conserved=2:5", "--objective", "period", "--subject-to", "period>=0.5", "--first-order"
    )
    assert_allclose(best["params"]["conserved"], (9.81 * 0.5) ** 2 / 8, rtol=1e-7)


DRIFT = '''"""A count that grows by the year."""

import equinox as eqx
import jax
import jax.numpy as jnp

import hyjax as hj


class Params(eqx.Module):
    growth: jax.Array = hj.parameter(0.5, "1", "of a year")


year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), ("count", "clock"))
births = lambda t, x, p: jnp.stack([p.growth * x[0] + p.growth, 0 * x[1]])
system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
guess = jnp.array([0.1, 0.0])
region = lambda p: (jnp.array([5.0, 0.0]), jnp.array([6.0, 0.0]))
start = lambda p: ("year", jnp.array([3.0, 0.0]))
'''


@pytest.mark.medium
def test_where_the_region_holds_no_orbit(command, tmp_path):
    """The search starts again from where a simulation settles, and says where it searched; without any orbit an attractor starts
    from the guess. The count c' = g(c + 1) settles at g/(1 - g), and grows without end for g = 1."""
    (tmp_path / "count.py").write_text(DRIFT)
    ran = command("gait", f"{tmp_path}/count.py", "--starts", "16")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"count +\+1\n", ran.stdout) and re.search(
        r"searched: count 0\.8\d* to 1\.1\d*, clock", ran.stdout
    )
    growing = ("--param", "growth=1", "--starts", "16")
    ran = command("gait", f"{tmp_path}/count.py", *growing)
    assert ran.returncode == 1 and "in the region count" in ran.stderr
    where = ("--where", "growth=1:1.2:3", "--strides", "4", "--keep", "1", "--json", "--out", "count.nc")
    ran = command("attractor", f"{tmp_path}/count.py", *where)
    assert ran.returncode == 0 and "starts from the model's guess" in ran.stderr
    with xarray.open_dataset("count.nc") as stored:
        # c + 1 grows by 1 a year at g = 1.
        assert_allclose(stored["x"][0, 0, 0], 0.1 + 4, rtol=1e-12)


def test_a_file_is_described(command, wheel):
    ran = command("models", f"{wheel}:wheel")
    assert ran.returncode == 0 and "A wheel of one's own" in ran.stdout and "of the inertia" in ran.stdout
    assert "theta_rate (rad/T); time (T)" in ran.stdout and "control" not in ran.stdout
    assert "wheel.py:system" in command("gait", "--help").stdout


@pytest.mark.parametrize(
    "arguments, old, new, message",
    [
        (["gait", "own_wheel.py"], "", "", "Its systems are: wheel. Write own_wheel.py:wheel, or call it system"),
        (["gait", "own_wheel.py:heel"], "", "", "'heel'. Its systems are: wheel. Write own_wheel.py:wheel."),
        (["gait", "own_wheel.py:roll"], "", "", "roll is of the type function. Name a hyjax.HybridSystem"),
        (["gait", "none.py:wheel"], "", "", "none.py: there is no such file"),
        (["gait", "own_wheel.py:wheel"], "", "", "slope has no default. Give --param slope=VALUE"),
        (["gait", "own_wheel.py:wheel"], "from spokes", "from hubs", "own_wheel.py, line 9: the file cannot be executed"),
        (["gait", "own_wheel.py:wheel"], "import jax\n", "import jax\nraise SystemExit(3)\n", "SystemExit: 3"),
        (["gait", "own_wheel.py:wheel"], "import jax\n", "import jax =\n", "SyntaxError"),
        (["gait", "own_wheel.py:wheel"], "class Params(", "class Others(", "lacks Params"),
        (["gait", "own_wheel.py:wheel"], "Params(eqx.Module)", "Params", "Params is no equinox.Module"),
        (["gait", "own_wheel.py:wheel", "--param", "slope=0.2"], "guess", "other", "lacks region.*or guess"),
        (["simulate", "own_wheel.py:wheel", "--t1", "1", "--param", "slope=0.2"], "guess", "other", "lacks start"),
        (["gait", "own_wheel.py:wheel", "--animate", "a.gif"], "", "", "own_wheel does not define outline"),
        (["gait", "own_wheel"], "", "", "no model 'own_wheel'.*path/to/file.py:system"),
        (["gait", "own_wheel.py:wheel", "--param", "slope=0.2"], "guess =", 'sequence = ("swing",)\nguess =', "swing"),
    ],
)  # fmt: skip
def test_what_a_file_lacks_is_named(command, wheel, arguments, old, new, message):
    assert old in WHEEL
    if old:
        wheel.write_text(WHEEL.replace(old, new))
    ran = command(*arguments)
    assert ran.returncode == 2 and len(ran.stderr.splitlines()) == 1
    first, _, second = message.partition(".*")
    assert first in ran.stderr and second in ran.stderr, ran.stderr


FAILS = "raise RuntimeError('executed')\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("wheel = hj.HybridSystem()", "Write late.py:wheel, or call it system"),
        ("if True:\n    wheel = hj.contact.contact_system()", "Its systems are: wheel."),
        ("def main():\n    system = 1\n[system for system in ()]", "executed"),
        ("def main():\n    system = 1\n\nclass A:\n    system = 1\n\nmain().system", "Write system = hyjax.HybridSystem(...)"),
        ("from os import path as wheel", "Write system = hyjax.HybridSystem(...)"),
        # Names that are bound, or may be: what is wrong with the file is seen when it is executed.
        ("from os import path as system", "executed"),
        ("from math import *", "executed"),
        ("globals()['system'] = 1", "executed"),
        ("def main():\n    import sys\n    setattr(sys.modules[__name__], 'system', 1)", "executed"),
        ("def main():\n    global system\n    system = 1", "executed"),
        ("def __getattr__(name):\n    return 1", "executed"),
        ("for system in ():\n    pass", "executed"),
        ("with open('x') as (a, system):\n    pass", "executed"),
        ("match 1:\n    case [*system]:\n        pass", "executed"),
        ("match 1:\n    case {'a': 1, **system}:\n        pass", "executed"),
        ("try:\n    import none\nexcept ImportError:\n    (system := 1)", "executed"),
        ("a = system = 1", "executed"),
        ("system: int = 1", "executed"),
        ("wheel = hj.HybridSystem(\n", "SyntaxError"),
        ("\0", "cannot be executed"),
    ],
)  # fmt: skip
def test_a_missing_name_is_seen_before_the_file_is_executed(command, tmp_path, text, message):
    (tmp_path / "late.py").write_text(f"{FAILS}{text}\n")
    ran = command("gait", "late.py")
    assert ran.returncode == 2 and message in ran.stderr and len(ran.stderr.splitlines()) == 1, ran.stderr
    assert "executed" in message or "SyntaxError" in message or "RuntimeError" not in ran.stderr


PAGE = (ROOT / "docs" / "howto" / "own_file.md").read_text()
SHOWN = re.findall(r"```sh\n(hyjax [^\n]*)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def as_number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


@pytest.mark.medium
@pytest.mark.parametrize("line, shown", SHOWN, ids=[line.split()[1] for line, _ in SHOWN])
def test_output_on_the_page(command, tmp_path, line, shown):
    """The page's file in an empty folder; what each command prints, word by word, numbers to the rounding of a stride."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "wheel.py").write_text(code)
    ran = command(*line.split()[1:])
    assert ran.returncode == 0, ran.stderr
    printed, expected = ran.stdout.split(), shown.split()
    found, exact = [*map(as_number, printed)], [*map(as_number, expected)]
    words = lambda texts, numbers: [text for text, number in zip(texts, numbers, strict=True) if number is None]
    assert words(printed, found) == words(expected, exact)
    values = lambda numbers: [number for number in numbers if number is not None]
    # Of a branch and a simulation ten digits are printed, of gaits twelve and more.
    assert_allclose(values(found), values(exact), rtol=1e-9, atol=1e-13)


def test_that_the_page_shows_the_commands():
    assert [line.split()[1] for line, _ in SHOWN] == ["models", "gait", "simulate", "continue", "sweep"]


NEURON = '''"""Izhikevich's neuron."""
import equinox as eqx, jax, jax.numpy as jnp, hyjax as hj


class Params(eqx.Module):
    current: jax.Array = hj.parameter(10.0, "1", "input current")


def flow(t, x, p):
    v, u = x
    return jnp.stack([0.04 * v**2 + 5 * v + 140 - u + p.current, 0.02 * (0.2 * v - u)])


fire = hj.Transition("rest", "rest", lambda t, x, p: 30 - x[0], lambda t, x, p: jnp.stack([-55.0 + 0 * x[0], x[1] + 4]))
system = hj.HybridSystem({"rest": hj.Mode(flow, ("v", "u"))}, (fire,))
guess = jnp.array([-55.0, -8.0])
'''


@pytest.mark.medium
def test_a_guess_whose_surroundings_hold_no_orbit(command, tmp_path):
    """All starts near the guess lead to an orbit outside of its surroundings: it is found; by SciPy it closes. A region that is
    given stays, and the message names that orbit."""
    path = tmp_path / "neuron.py"
    path.write_text(NEURON)
    ran = command("gait", str(path), "--json")
    assert ran.returncode == 0, ran.stderr
    (orbit,) = json.loads(ran.stdout)["orbits"]
    v, u = orbit["x0"]
    flow = lambda t, x: [0.04 * x[0] ** 2 + 5 * x[0] + 140 - x[1] + 10, 0.02 * (0.2 * x[0] - x[1])]
    spike = lambda t, x: x[0] - 30
    spike.terminal = True
    lap = scipy.integrate.solve_ivp(flow, (0, 100), [v, u], method="DOP853", rtol=1e-13, atol=1e-13, events=spike)
    assert_allclose([v, u, orbit["period"]], [-55, lap.y[1, -1] + 4, lap.t[-1]], rtol=1e-10)
    ran = command("gait", str(path), "--region", "-82:-28,-12:-4")
    assert ran.returncode == 1
    assert "starts led to an orbit outside of the region, such as one near (-55, -3.49" in ran.stderr.replace("\n", " ")
