"""Saltation matrices of contact: comparison of the closed forms of Kong et al. (2024) with the generic formula.

    python examples/papers/saltation.py [--plot drops.png]

Equations 51-58 and 70-94, for rigid bodies with contact; Figures 1 and 7, balls dropped on a slope.
"""

import argparse
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from saltation_constant_flow import constant_flow, constant_flow_table, ConstantFlow, draw_constant_flow
from saltation_drops import draw_drops, Drop, drops, drops_table
from saltation_transitions import ContactTransition, TRANSITIONS
from session import options, picture, save_figure

import hyjax as hj
from hyjax.models import ball_on_slope

REMARKS = """\
The body: a cart on a rail with a double pendulum, whose tip touches an inclined floor. Closed forms: derivatives by hand, in
NumPy. Generic matrix: mass matrix, gap and slip by automatic differentiation. Each difference is the largest over random
states, relative to the largest entry.
Errata of the paper:
- Eq. (83) divides by J_C v, which has two rows. The right factor is J_n/(J_n v), as in (82), with the gap's rate J_n v.
- Eqs. (93)-(94) write the gradient of the slip J_t v in q as the rate of J_t. These differ where the slip is not the
  rate of a position, as on a curved floor; D_q(J_t v) is right.
- Eqs. (65), (71): with the blocks of eq. (62) the force f pulls where it is positive: a contact is lost where f rises
  through zero.
- The reset from S to C is called R(U,C) below eq. (69) and the identity in (92)-(94). On the guard they agree, and the
  saltation matrices with them."""
# sin and cos of the slope, and the velocity before the impact: rational, so that the matrices are exact.
SLOPE = Fraction(3, 5), Fraction(4, 5)
VELOCITY = Fraction(1), Fraction(-2)


def saltation(states: int = 16, plot: Path | None = None) -> None:
    """Compare the closed forms of eqs. 70-94 with the generic matrices, and those of the ball on a slope, eqs. 51-58; drop balls
    on a slope, Figs. 1 and 7; cross from one constant flow to another, Figs. 5 and 6. `plot`: write a picture of these
    covariances to this file."""
    console = Console(width=120)
    table = Table(title="Rigid bodies with one contact (Sec. V)", title_justify="left", box=None, pad_edge=False)
    for column in ("transition", "eq.", "largest entry", "largest difference"):
        table.add_column(column, justify="left" if column == "transition" else "right")
    for event, rng in zip(TRANSITIONS, (np.random.default_rng(k) for k in range(len(TRANSITIONS))), strict=True):
        largest, difference = _compare(event, [event.draw(rng) for _ in range(states)])
        table.add_row(f"{event.source} -> {event.target}", event.equation, f"{largest:.3g}", f"{difference:.1e}")
    console.print(table)
    for title, target, friction, exact in (
        (
            "into sliding, eqs. 51-52: eigenvalues 0 along (sin, cos) of the slope, 1 along the slope",
            "S+",
            0.0,
            _slide(),
        ),
        ("into sticking, eqs. 55-56: eigenvalues 0 along the velocity, 1 along the slope", "C", 9.0, _stick()),
    ):
        console.print(f"\n[italic]Ball on a slope {title}[/italic]", highlight=False, soft_wrap=True)
        console.print(_ball(target, friction, exact))
    dropped = drops()
    console.print()
    console.print(drops_table(dropped))
    crossed = constant_flow()
    console.print()
    console.print(constant_flow_table(crossed))
    console.print(f"\n{REMARKS}", highlight=False, markup=False, soft_wrap=True)
    save_figure(plot, lambda: _figure(dropped, crossed))


def _figure(dropped: tuple[Drop, ...], crossed: ConstantFlow):
    """Figs. 1, 7 and 6: sampled states, and ellipses of the covariances by the saltation matrix and by the reset alone."""
    from hyjax.plot.figure import pyplot

    fig, axes = pyplot().subplots(1, len(dropped) + 1, figsize=(12, 3.6), layout="constrained")
    draw_drops(dropped, axes[:-1])
    draw_constant_flow(crossed, axes[-1])
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    return fig


def _compare(event: ContactTransition, draws: list) -> tuple[float, float]:
    """The largest entry of all matrices, and the largest difference relative to the largest entry of each matrix."""
    params, times, x = zip(*draws, strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    number = event.system.between(event.source, event.target)
    matrix = jax.jit(jax.vmap(lambda t, x, p: hj.saltation_matrix(event.system, number, t, x, p)))
    generic = np.asarray(matrix(jnp.asarray(times), jnp.asarray(np.stack(x)), stacked))
    closed = np.stack([event.closed(t, x, params) for params, t, x in draws])
    sizes = np.max(np.abs(closed), axis=(1, 2))
    return float(np.max(sizes)), float(np.max(np.max(np.abs(generic - closed), axis=(1, 2)) / sizes))


def _slide() -> list[list[Fraction]]:
    """The saltation matrix into sliding, eqs. 51-52, exact."""
    s, c = SLOPE
    zero = Fraction(0)
    block = [[c * c, -c * s], [-c * s, s * s]]
    return [[*row, zero, zero] for row in block] + [[zero, zero, *row] for row in block]


def _stick() -> list[list[Fraction]]:
    """The saltation matrix into sticking, eqs. 55-56, exact."""
    (s, c), (v1, v2), zero = SLOPE, VELOCITY, Fraction(0)
    closing = v2 * c + v1 * s
    block = [[v2 * c / closing, -v1 * c / closing], [-v2 * s / closing, v1 * s / closing]]
    return [[*row, zero, zero] for row in block] + [[zero] * 4] * 2


def _ball(target: str, friction: float, exact: list[list[Fraction]]) -> Table:
    s, c = SLOPE
    mu = jnp.asarray(friction)
    slope = jnp.arctan2(float(s), float(c))
    params = ball_on_slope.Params(slope=slope, static_friction=mu, kinetic_friction=mu)
    # On the surface: s q_1 + c q_2 = 0.
    x = jnp.array([float(5 * c), float(-5 * s), *(float(v) for v in VELOCITY)])
    number = ball_on_slope.system.between("U", target)
    generic = np.asarray(hj.saltation_matrix(ball_on_slope.system, number, 0.0, x, params))
    table = Table(box=None, pad_edge=False)
    for column in (*("exact",) * 4, *("hyjax",) * 4, "largest difference"):
        table.add_column(column, justify="right")
    for row, ours in zip(exact, generic, strict=True):
        off = max(abs(float(a) - b) for a, b in zip(row, ours, strict=True))
        table.add_row(*(str(value) for value in row), *(f"{value + 0.0:+.4f}" for value in ours), f"{off:.0e}")
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=picture, help="draw the balls of Figs. 1 and 7 to this file")
    given = options(parser, arguments)
    saltation(plot=given.plot)


if __name__ == "__main__":
    main()
