"""What results show of themselves: numbers, as many digits as they have, and names of codes."""

import dataclasses
import html
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import cells

import hyjax as hj
from hyjax._testing import ActiveSetChange, OptimumBranch, side_by_side, Table
from hyjax.models import powered_compass_gait as powered, rimless_wheel as wheel, simplest_walker as walker


def gait(slope=0.2, dtype=jnp.float64):
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), wheel.Params(slope=slope))
    guess = jnp.array([-0.5, 0.8], dtype)
    return hj.periodic_orbit(wheel.step, guess, params, throw=False)


@pytest.fixture(scope="module")
def orbit():
    return gait()


def test_an_orbit_on_a_line_of_its_own_is_its_table(orbit):
    assert repr(orbit) == str(orbit) and "theta_rate       +0.460341126609" in repr(orbit)
    # The multiplier along the flow is zero, found with rounding, as a coordinate may be.
    assert "multiplier 2     +0\n" in repr(orbit)
    tiny = eqx.tree_at(lambda orbit: orbit.x, orbit, orbit.x * jnp.array([1.0, -1e-26]))
    assert "theta_rate       +0\n" in repr(tiny)
    rows = side_by_side(jax.tree.map(lambda leaf: leaf[None], tiny), "wheel", 100).rows
    assert [row[2] for row in rows if row[0] == "theta_rate"] == ["+0"]
    small = eqx.tree_at(lambda orbit: orbit.x, orbit, orbit.x * jnp.array([1.0, -1e-13]))
    assert "theta_rate       -4.6034112660" in repr(small)


@pytest.mark.parametrize(
    "units, value, shown",
    [
        (("m", "m"), 1e-15, "+0"),
        (("m", "m"), 3e-13, "+3e-13"),
        (("m", "C"), 1e-15, "+1e-15"),
        (("m", "C"), -3e-33, "+0"),
        ((), 1e-15, "+1e-15"),
    ],
)
def test_what_is_rounding_depends_on_the_unit(orbit, units, value, shown):
    """Beside metres: metres of rounding, and picofarads."""
    jump = hj.Transition("run", "run", lambda t, x, p: x[0] - 1, lambda t, x, p: 2 * x)
    system = hj.HybridSystem({"run": hj.Mode(lambda t, x, p: -x, ("length", "other"), units=units)}, (jump,))
    of = dataclasses.replace(orbit, system=system, sequence=("run",), x=jnp.array([2.0, value]))
    assert re.findall(r"(?:length|other) +(\S+)", repr(of)) == ["+2", shown]


def test_a_stride_shows_its_values(orbit):
    """Its fields, also in a notebook; where it is traced, its structure."""
    stride = wheel.step(orbit.x, orbit.params)
    assert repr(stride).splitlines()[0] == "Stride" and "f64[" not in repr(stride) + stride._repr_html_()
    assert "0.4603411" in repr(stride) and re.search(r"result +successful", repr(stride)) and "2.31001" in repr(stride)
    seen = []
    jax.eval_shape(lambda x: seen.append(repr(wheel.step(x, orbit.params))), orbit.x)
    assert "f64[" in seen[0]


def test_parameters_show_their_values():
    """With units and meanings, also those of a controller among the parameters; where they are traced, their structure."""
    text, page = repr(walker.Params(slope=0.0123)), cells(walker.Params(slope=0.0123)._repr_html_())
    assert [re.split(r"  +", line.strip()) for line in text.splitlines()] == [["Params"], *page]
    assert page == [
        ["parameter", "value", "unit", "meaning"],
        ["slope", "0.0123", "rad", "slope of the ground, downhill positive"],
    ]
    assert re.search(
        r"controller +ConstantTorque\(torque=0\.5\)", repr(powered.Params(controller=powered.ConstantTorque(0.5)))
    )
    seen = []
    jax.jit(lambda slope: seen.append(repr(walker.Params(slope))))(0.2)
    assert seen == ["Params(slope=f64[])"]


@pytest.mark.medium
def test_rows_of_results_show_their_values(orbit):
    """Events, arcs and samples; of an array of more than twelve numbers its ends and its shape."""
    run = hj.simulate(wheel.system, orbit.x, orbit.params, mode="stance", t1=3.0, times=jnp.linspace(0.0, 3.0, 30))
    event, samples, (arc,) = repr(run.events[0]), repr(run.samples), orbit.sample(3)
    assert (
        re.search(r"t +2\.31001486", event)
        and re.search(r"source +stance", event)
        and "[0.52359878, 0.69051169]" in event
    )
    assert re.search(r"t +\[0\., 0\.10344828, \.\.\., 2\.89655172, 3\.\], shape \(30,\)", samples)
    assert re.search(r"mode +stance", repr(arc)) and "f64[" not in event + samples + repr(arc)


def test_an_orbit_in_a_notebook_is_the_same_table_with_units(orbit):
    rows, lines = cells(orbit._repr_html_()), str(orbit).splitlines()[1:]
    assert [" ".join(" ".join(row[:2]).split()) for row in rows] == [" ".join(line.split()) for line in lines]
    units = {row[0]: row[2] for row in rows}
    assert units["theta"] == "rad" and units["theta_rate"] == "rad √(g/l)" and units["period"] == "√(l/g)"
    assert units["spectral radius"] == ""


def test_a_batch_counts_its_codes():
    """A slope on which the wheel speeds up, and one on which it rolls backwards."""
    orbits = jax.vmap(gait)(jnp.array([0.15, 0.2, -0.2]))
    text, page = repr(orbits), orbits._repr_html_()
    assert "3 PeriodicOrbits" in text and "\n  2 successful" in text and "\n  1 orbit_not_converged: " in text
    head, *rows = cells(page)
    assert head == ["theta rad", "theta_rate rad √(g/l)", "period √(l/g)", "spectral radius", "residual"]
    assert rows == [line.split() for line in text.splitlines()[2:5]]
    assert "<code>find_orbits</code>" in page and "<div" in page.partition("2 successful")[0]
    # A long batch shows its ends.
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, 7, axis=0), orbits)
    assert len(cells(many._repr_html_())) == 1 + 6 + 1 + 6 and "..." in repr(many)


@pytest.mark.medium
def test_codes_have_names(orbit):
    """A code prints as its name and compares with it: alone, in a batch, under `jit`, and as its PyTree is rebuilt."""
    assert repr(orbit.result) == str(orbit.result) == f"{orbit.result}" == "successful"
    assert orbit.result == "successful" and orbit.result != "zeno" and orbit.result == hj.RESULTS.successful
    orbits = jax.vmap(gait)(jnp.array([0.15, 0.2, -0.2]))
    assert str(orbits.result) == "2 successful, 1 orbit_not_converged"
    names = lambda orbits: (
        orbits.result == "successful",
        orbits.result != "orbit_not_converged",
        orbits.result == "zeno",
    )
    for found in (names(orbits), jax.jit(names)(orbits)):
        assert [each.tolist() for each in found] == [[True, True, False], [True, True, False], [False] * 3]
    assert str(orbits[2].result) == "orbit_not_converged"
    chosen = hj.RESULTS.where(jnp.array(True), orbit.result, hj.RESULTS.zeno)
    assert jax.tree.structure(chosen) == jax.tree.structure(hj.RESULTS.zeno) and str(chosen) == "successful"
    with pytest.raises(ValueError, match=r"'sucessful'\. Did you mean 'successful'"):
        assert orbit.result == "sucessful"
    with pytest.raises(ValueError, match="same type"):
        assert orbit.result == 0


@pytest.mark.medium
def test_single_precision_shows_its_digits():
    text = str(gait(dtype=jnp.float32))
    period = next(line for line in text.splitlines() if "period" in line).split()[-1]
    assert len(period.replace(".", "")) <= 6 and "float32" in text


def test_what_is_no_number_shows_its_structure(orbit):
    empty = jax.tree.map(lambda leaf: None, orbit)
    assert "period=None" in repr(empty) and empty._repr_html_() == f"<pre>{html.escape(repr(empty))}</pre>"
    shapes = jax.eval_shape(lambda: gait())
    assert "ShapeDtypeStruct" in repr(shapes)
    seen = []
    jax.jit(lambda slope: seen.append(repr(gait(slope))))(0.2)
    assert "period=f64[]" in seen[0]


@pytest.mark.medium
def test_trajectories_show_their_arcs():
    walk = hj.simulate(wheel.system, jnp.array([-0.5, 0.8]), wheel.Params(), mode="stance", t1=3.0)
    assert repr(walk) == str(walk) and "jumps" in repr(walk) and "Result: successful" in repr(walk)
    head, *rows = cells(walk._repr_html_())
    assert head == ["from √(l/g)", "to √(l/g)", "mode", "next", "theta rad", "theta_rate rad √(g/l)"]
    lines = [line.split() for line in str(walk).splitlines()[2:-2]]
    assert len(rows) == 3 and [[cell for cell in row if cell] for row in rows] == lines


def test_optima_show_their_points(orbit):
    """A branch of optima, put together by hand."""
    orbits = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]) if eqx.is_inexact_array(leaf) else leaf, orbit)
    numbers = np.array([1.0, 2.0])
    change = ActiveSetChange(1.5, "upper bound of slope", True)
    found = OptimumBranch(
        numbers=numbers, values=numbers**2, unknowns=numbers[:, None] / 5, multipliers=np.zeros((2, 0)),
        bound_multipliers=np.zeros((2, 1)), active=np.zeros((2, 0), bool), orbits=orbits, changes=(change,),
        result=hj.RESULTS.successful, name="speed", names=("slope",), labels=(),
    )  # fmt: skip
    head, *rows = cells(found._repr_html_())
    assert head == ["speed", "objective", "slope rad", "period √(l/g)", "spectral radius"]
    assert rows == [line.split() for line in str(found).splitlines()[2:4]]
    assert "upper bound of slope becomes active" in found._repr_html_()


def test_text_and_page_of_one_description():
    """The points of a column of numbers are below each other, other columns begin at the left; units where asked for; nothing is
    markup, or cut."""
    heads, long = ("name", "size", "remark"), "word " * 60 + "end"
    table = Table("Title", [["[b]a", "1.5e-3", long], ["..."], ["b", "-12", "<i>"]], heads, ("", "m"), ["below"])
    lines = table.text().splitlines()
    assert lines[:2] == ["Title", "  name      size  remark"] and lines[3:] == [
        "  ...",
        "  b     -12       <i>",
        "  below",
    ]
    assert lines[2] == f"  [b]a    1.5e-3  {long}"
    assert table.text(units=True).splitlines()[1:3] == ["  name      size  remark", "               m"]
    assert cells(table.html())[0] == ["name", "size m", "remark"] and 'colspan="3"' in table.html()
    assert "<i>" not in table.html() and "<b>" not in Table("<b>", []).html()
    record = Table("", [("mass", "2", "kg"), ("a -> b", "3", "")], units=("",))
    assert record.text() == "mass    2\na -> b  3" and record.text(units=True) == "mass    2  kg\na -> b  3"
    assert cells(record.html()) == [["mass", "2", "kg"], ["a → b", "3", ""]]
    assert Table("alone", []).text() == "alone"
    mixed = [("x", "-12.5", "a"), ("stable", "yes", ""), ("size", "3", "b"), ("least", "+1e-16", "")]
    assert Table("", mixed).text().splitlines() == [
        "x       -12.5    a",
        "stable  yes",
        "size      3      b",
        "least    +1e-16",
    ]


@pytest.mark.medium
def test_orbits_side_by_side_or_a_row_each():
    """By the width of the line; the multiplier that is rounding is zero in both."""
    orbits = jax.vmap(gait)(jnp.array([0.15, 0.2]))
    wide, narrow = side_by_side(orbits, "wheel", 100), side_by_side(orbits, "wheel", 60)
    assert wide.heads == ("", "unit", "gait 1", "gait 2") and narrow.heads[:3] == ("gait", "theta", "theta_rate")
    assert [list(row[2:]) for row in wide.rows] == [
        list(each) for each in zip(*(row[1:] for row in narrow.rows), strict=True)
    ]
    (zero,) = (row for row in wide.rows if row[0] == "multiplier 2")
    assert zero == ("multiplier 2", "", "+0", "+0") and wide.rows[1][2:] == tuple(
        line.split()[1] for orbit in (orbits[0], orbits[1]) for line in str(orbit).splitlines() if "theta_rate" in line
    )


@pytest.mark.parametrize("name", ["bouncing_ball", "friction_oscillator", "kneed_walker", "slip", "ball_on_slope"])
def test_a_system_is_a_diagram(name):
    """A state for each mode, an arrow for each pair of modes with a transition; tables of the functions."""
    system = hj.models.load(name).system
    fence, diagram, head, modes, ways = re.fullmatch(
        r"(```mermaid)\n(.*?)\n```\n\n(.*?)\n\n(.*?)\n\n(.*)", system._repr_markdown_(), re.DOTALL
    ).groups()
    assert fence and head.startswith(f"HybridSystem: {len(system.modes)} mode")
    states = dict(re.findall(r'^state "(.*)" as (m\d+)$', diagram, re.MULTILINE))
    assert tuple(states) == tuple(system.modes)
    arrows = re.findall(r"^(m\d+) --> (m\d+) : (.*)$", diagram, re.MULTILINE)
    numbered = {int(k): (a, b) for a, b, numbers in arrows for k in numbers.split(", ")}
    assert numbered == {k: (states[way.source], states[way.target]) for k, way in enumerate(system.transitions)}
    assert len(diagram.splitlines()) == 2 + len(states) + len({*numbered.values()})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (*modes.splitlines(), *ways.splitlines())]
    assert len(rows) == 2 + len(system.modes) + 2 + len(system.transitions)
    if name == "bouncing_ball":
        assert rows[2] == ["flight", "y (m), y_rate (m/s)", "`fall`", "`height`"]
        assert rows[5] == ["0", "flight → flight", "`height`", "`bounce`"]
        assert str(hj.ReturnMap(system, sequence=("flight",))).startswith("""ReturnMap(
  system=HybridSystem: 1 mode, time in s
           mode    state                flow  domain
           flight  y (m), y_rate (m/s)  fall  height
           number  transition       guard falls  reset
           0       flight → flight  height       bounce,
  sequence=('flight',),""")


@pytest.mark.medium
def test_results_are_animated(orbit):
    """By the figure's first frame: the wheel, drawn."""
    walk = hj.simulate(wheel.system, jnp.array([-0.5, 0.8]), wheel.Params(), mode="stance", t1=3.0)
    for animation in (orbit.animate(wheel, strides=1), walk.animate(wheel, fps=10)):
        animation._init_draw()
        (axes,) = animation._fig.axes
        assert len(axes.lines) + len(axes.collections) > 0


def test_the_package_has_its_version():
    assert hj.__version__.count(".") >= 1


def test_a_table_in_a_notebook_is_written_whole(monkeypatch):
    """Where rich finds a notebook it shows tables by itself: the text has the rows all the same."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert Table("numbers", [["one", "1"], ["two", "2"]]).text() == "numbers\n  one  1\n  two  2"
