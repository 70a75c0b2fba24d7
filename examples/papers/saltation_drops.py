"""Figures 1 and 7 of Kong et al. (2024): balls dropped on a slope; the covariance by the saltation matrix and by the reset
alone."""

from collections.abc import Sequence
from typing import NamedTuple, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import hyjax as hj

if TYPE_CHECKING:
    import matplotlib.axes

SLOPE, GRAVITY, BALLS, TIME = 0.5, 9.81, 2000, 1.0
NORMAL, ALONG = np.array([np.sin(SLOPE), np.cos(SLOPE)]), np.array([np.cos(SLOPE), -np.sin(SLOPE)])
START, DEVIATIONS = np.array([0.0, 2.0, -1.5, -1.0]), np.array([0.15, 0.1, 0.05, 0.05])
COORDINATES = ("q1", "q2", "q1_rate", "q2_rate")


class Drop(NamedTuple):
    """Balls dropped on a slope. `found`: the covariance by the saltation matrix. `by_reset`: that at the end where the Jacobian
    of the reset takes its place. `starts`, `ends`: the states of sampled balls at the first and at the last instant."""

    title: str
    found: hj.noise.Covariance
    by_reset: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def fall(t, x, p):
    return jnp.concatenate([x[2:], jnp.array([0.0, -GRAVITY])])


def height(t, x, p):
    return x[:2] @ NORMAL


def rest(t, x, p):
    return jnp.zeros_like(x)


def slide(t, x, p):
    return jnp.concatenate([x[2:], GRAVITY * np.sin(SLOPE) * ALONG])


def stays_sliding(t, x, p):
    return jnp.concatenate([x[:2], (x[2:] @ ALONG) * ALONG])


def stays_sticking(t, x, p):
    return jnp.concatenate([x[:2], jnp.zeros(2)])


def drops() -> tuple[Drop, Drop]:
    """Into sliding without friction, and into sticking."""
    return _drop("into sliding", slide, stays_sliding), _drop("into sticking", rest, stays_sticking)


def _drop(title: str, flow, impact) -> Drop:
    way = hj.Transition("falling", "on the slope", height, impact)
    system = hj.HybridSystem(
        {"falling": hj.Mode(fall, COORDINATES), "on the slope": hj.Mode(flow, COORDINATES)}, (way,)
    )
    sigma = jnp.diag(DEVIATIONS**2)
    found = hj.noise.covariance(system, jnp.asarray(START), sigma, None, mode="falling", t1=TIME, max_jumps=1)
    t, x = found.trajectory.end_times[0], found.trajectory.x_ends[0]
    jacobian = jax.jacfwd(lambda x: way.reset(t, x, None))(x)
    after = jacobian @ found.sigma_ends[0] @ jacobian.T
    onwards = hj.noise.covariance(
        system, found.trajectory.x_starts[1], (after + after.T) / 2, None, mode="on the slope", t0=t, t1=TIME, max_jumps=0
    )  # fmt: skip
    starts = START + DEVIATIONS * np.random.default_rng(0).normal(size=(BALLS, 4))
    run = lambda x: hj.simulate(system, x, None, mode="falling", t1=TIME, max_jumps=1).x
    return Drop(
        title, found, np.asarray(onwards.sigma), starts, np.asarray(jax.jit(jax.vmap(run))(jnp.asarray(starts)))
    )


def drops_table(drops: tuple[Drop, ...]) -> Table:
    """Standard deviations of the position at the end."""
    title = f"Balls dropped on a slope of {SLOPE} rad (Figs. 1 and 7): deviation of the position, m"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    columns = "", "direction", "saltation matrix", "reset alone", "sampled balls"
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < 2 else "right")
    for drop in drops:
        for name, way in (("normal to the slope", NORMAL), ("along the slope", ALONG)):
            spread = lambda sigma, way=way: np.sqrt(max(way @ np.asarray(sigma)[:2, :2] @ way, 0))
            columns = spread(drop.found.sigma), spread(drop.by_reset), np.std(drop.ends[:, :2] @ way)
            table.add_row(drop.title, name, *(f"{value:.4f}" for value in columns))
    return table


def draw_drops(drops: tuple[Drop, ...], axes: "Sequence[matplotlib.axes.Axes]") -> None:
    """The balls at the first and at the last instant, with ellipses of two standard deviations."""
    from hyjax.plot.estimates_figure import draw_ellipse
    from hyjax.plot.figure import COLOURS, GREY, INK

    for ax, drop in zip(axes, drops, strict=True):
        means = START[:2], np.asarray(drop.found.trajectory.x)[:2]
        for balls in (drop.starts, drop.ends):
            ax.plot(*balls[:400, :2].T, ".", color=GREY, ms=2, alpha=0.5)
        draw_ellipse(ax, means[0], np.diag(DEVIATIONS[:2] ** 2), color=INK)
        draw_ellipse(ax, means[1], drop.by_reset[:2, :2], color=COLOURS[1], ls="--", label="reset alone")
        draw_ellipse(
            ax, means[1], np.asarray(drop.found.sigma)[:2, :2], color=COLOURS[0], lw=2, label="saltation matrix"
        )
        reach = np.array([-1.0, 1.0])[:, None] * 1.2 * ALONG + means[1] - (means[1] @ NORMAL) * NORMAL
        ax.plot(*reach.T, color=INK, lw=0.8)
        ax.set(title=drop.title, xlabel="$q_1$ (m)", aspect="equal")
        ax.set_ylabel("$q_2$ (m)")
