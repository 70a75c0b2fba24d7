"""Figures 5 and 6 of Kong et al. (2024): constant flows in two modes and an identity reset, whose Jacobian changes nothing."""

from typing import NamedTuple, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import hyjax as hj

if TYPE_CHECKING:
    import matplotlib.axes

BEFORE, AFTER = np.array([1.0, 0.5]), np.array([1.0, -1.0])
START, DEVIATION, TIME, SAMPLES = np.array([-1.0, 0.0]), np.array([0.1, 0.05]), 2.0, 2000
VARIANCES = np.diag([0.1, 0.05]) ** 2


class ConstantFlow(NamedTuple):
    """`nominal`, `deviated`: the ends of the trajectories from `START` and from `START + DEVIATION`. `saltation`: the saltation
    matrix. `sigma`: the covariance at the end. `starts`, `ends`: sampled states at the first and at the last instant."""

    nominal: np.ndarray
    deviated: np.ndarray
    saltation: np.ndarray
    sigma: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def constant_flow() -> ConstantFlow:
    """Across the surface x1 = 0, from one constant flow to another."""
    system = hj.HybridSystem(
        {name: hj.Mode(lambda t, x, p, f=f: jnp.asarray(f), ("x1", "x2")) for name, f in (("I", BEFORE), ("J", AFTER))},
        (hj.Transition("I", "J", lambda t, x, p: -x[0], lambda t, x, p: x),),
    )
    run = jax.jit(jax.vmap(lambda x: hj.simulate(system, x, None, mode="I", t1=TIME, max_jumps=1).x))
    starts = START + np.random.default_rng(0).normal(size=(SAMPLES, 2)) @ np.sqrt(VARIANCES)
    ends = np.asarray(run(jnp.asarray(np.concatenate([[START, START + DEVIATION], starts]))))
    found = hj.noise.covariance(
        system, jnp.asarray(START), jnp.asarray(VARIANCES), None, mode="I", t1=TIME, max_jumps=1
    )
    # Eq. 10 with the normal n = (1, 0) and the identity as the reset's Jacobian.
    saltation = np.eye(2) + np.outer(AFTER - BEFORE, [1.0, 0.0]) / BEFORE[0]
    return ConstantFlow(ends[0], ends[1], saltation, np.asarray(found.sigma), starts, ends[2:])


def constant_flow_table(found: ConstantFlow) -> Table:
    """The deviation and the standard deviations at the end."""
    table = Table(
        title="Constant flows, identity reset (Figs. 5 and 6): at the end",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for k, column in enumerate(("", "coordinate", "saltation matrix", "reset alone", "simulated")):
        table.add_column(column, justify="left" if k < 2 else "right")
    deviations = found.saltation @ DEVIATION, DEVIATION, found.deviated - found.nominal
    spreads = (*(np.sqrt(np.diag(sigma)) for sigma in (found.sigma, VARIANCES)), np.std(found.ends, axis=0))
    for name, values in (("deviation", deviations), ("standard deviation", spreads)):
        for k in range(2):
            table.add_row(name, f"x{k + 1}", *(f"{float(value[k]):.4f}" for value in values))
    return table


def draw_constant_flow(found: ConstantFlow, ax: "matplotlib.axes.Axes") -> None:
    """The sampled states at the first and at the last instant, with ellipses of two standard deviations."""
    from hyjax.plot.estimates_figure import draw_ellipse
    from hyjax.plot.figure import COLOURS, GREY, INK

    for states in (found.starts, found.ends):
        ax.plot(*states[:400].T, ".", color=GREY, ms=2, alpha=0.5)
    draw_ellipse(ax, START, VARIANCES, color=INK)
    draw_ellipse(ax, found.nominal, VARIANCES, color=COLOURS[1], ls="--")
    draw_ellipse(ax, found.nominal, found.sigma, color=COLOURS[0], lw=2)
    ax.axvline(0, color=INK, lw=0.8)
    ax.set(title="constant flows", xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
