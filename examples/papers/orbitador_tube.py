"""The tubes of the ORBITADOR page, and the numbers of its lambda, by several definitions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from orbitador_page import PARAMS, PERIODS, printed_walker, RADIUS, START, STEPS, TAU, W, walker

from hyjax.certify import euler_tube, EulerTube, logarithmic_norm, published_radius, radial_quotient, sharp_radius
from hyjax.models import simplest_walker

# Steps from row to row, 137 rows a period.
EVERY = 1417
# Bounds of the disturbance, by the reading of the page's w.
READINGS = {"0": 0.0, "w/2": W / 2, "w": W, "sqrt(2) w": np.sqrt(2) * W, "2 w": 2 * W}
RADIAL, LOGARITHMIC = "radial quotient x'Jx/|x|^2", "logarithmic norm, Euclidean"
ABSCISSA, TRACE = "largest real part of an eigenvalue of J", "trace of J"
# What lambda may be, in the order of `_lambda_sums`.
DEFINITIONS = (
    RADIAL,
    *(f"pair (x, {partner})" for partner in ("0.99 x", "1.01 x", "0", "-x", "2 x")),
    "pair of consecutive states",
    LOGARITHMIC,
    "logarithmic norm, 1-norm",
    "logarithmic norm, maximum norm",
    ABSCISSA,
    TRACE,
    "least eigenvalue of (J + J')/2",
)


class Borders(NamedTuple):
    """The tube with one bound of the disturbance. `radii`: at the times 0, T ... 5T. `lowest_upper`, `highest_lower`: the least
    value of the upper border of phi_1 and the largest of the lower, in the last period. `inside`: whether the last ball lies in
    the ball of a period before."""

    radii: np.ndarray
    lowest_upper: float
    highest_lower: float
    inside: bool


class Tubes(NamedTuple):
    """The tube of the page, for `disturbance=W`; borders by formula and by reading of w; the tube with the logarithmic norm; the
    Euler states of the last period, shape `(STEPS + 1, 4)`; the tube with the misprinted reset."""

    page: EulerTube
    borders: dict[str, dict[str, Borders]]
    true: EulerTube
    last: np.ndarray
    misprinted: EulerTube

    @property
    def impacts(self) -> np.ndarray:
        """The steps of the impacts."""
        steps = np.asarray(self.page.jump_steps)
        return steps[steps >= 0]

    @property
    def sums_by_period(self) -> np.ndarray:
        """The sum of lambda over each period."""
        return np.diff(strobes(self.page.osl_sums))

    @property
    def positive_and_negative(self) -> tuple[float, float]:
        """The sums of the positive and of the negative lambda over the last period."""
        positive = float(np.diff(strobes(self.page.osl_positive))[-1])
        return positive, float(self.sums_by_period[-1]) - positive


def strobes(rows) -> np.ndarray:
    """The rows of a tube at the times 0, T ... 5T."""
    return np.asarray(rows)[:: STEPS // EVERY]


def tubes() -> Tubes:
    """All tubes: each scan is of 970 645 steps."""
    found, borders, last = with_borders(published_radius)
    page = jax.tree.map(lambda leaf: leaf[list(READINGS).index("w")], found)
    _, sharp, _ = with_borders(sharp_radius)
    true = _tube(walker, logarithmic_norm(), W, sharp_radius)
    misprinted = _tube(printed_walker, radial_quotient(), W, sharp_radius)
    return Tubes(page, {"published": borders, "sharp": sharp}, true, last, misprinted)


def with_borders(formula) -> tuple[EulerTube, dict[str, Borders], np.ndarray]:
    """The tubes by a formula, one for each reading of w; their borders; the Euler states of the last period."""
    bounds = jnp.asarray(list(READINGS.values()))
    found = jax.vmap(lambda b: _tube(walker, radial_quotient(), b, formula))(bounds)
    per_period, states = strobes(found.radii.T).T, strobes(found.states[0])
    last, thick = _last_period(states[-2], per_period[:, -2], bounds, formula)
    moved = np.linalg.norm(states[-1] - states[-2])
    borders = {
        reading: Borders(
            radii,
            float(np.min(last[:, 0] + delta)),
            float(np.max(last[:, 0] - delta)),
            bool(moved + radii[-1] < radii[-2]),
        )
        for reading, radii, delta in zip(READINGS, per_period, thick, strict=True)
    }
    return found, borders, last


def _tube(system, osl, disturbance, formula) -> EulerTube:
    """The tube over all periods."""
    return euler_tube(
        system, jnp.asarray(START), PARAMS, tau=TAU, steps=PERIODS * STEPS, radius=RADIUS, disturbance=disturbance, osl=osl,
        formula=formula, every=EVERY, max_jumps=2 * PERIODS,
    )  # fmt: skip


def _last_period(x: np.ndarray, radii: np.ndarray, bounds: jax.Array, formula) -> tuple[np.ndarray, np.ndarray]:
    """States, and radii for each bound, at every step of the period that starts at `x`."""
    run = lambda radius, b: euler_tube(
        walker, jnp.asarray(x), PARAMS, tau=TAU, steps=STEPS, radius=radius, disturbance=b, osl=radial_quotient(),
        formula=formula, every=1, max_jumps=2,
    )  # fmt: skip
    found = jax.vmap(run)(jnp.asarray(radii), bounds)
    return np.asarray(found.states)[0], np.asarray(found.radii)


def lambda_sums(states: np.ndarray) -> dict[str, float]:
    """The sum over the steps of a period of what lambda may be, by name. `states`: shape `(STEPS + 1, 4)`."""
    return dict(zip(DEFINITIONS, map(float, _lambda_sums(jnp.asarray(states))), strict=True))


def field(x):
    return simplest_walker.swing(jnp.zeros((), x.dtype), x, PARAMS)


def _pair(x, y):
    """The growth of the distance of two states."""
    return (field(x) - field(y)) @ (x - y) / ((x - y) @ (x - y))


def _norm_at_infinity(jacobian):
    """The logarithmic norm of the maximum norm."""
    diagonal = jnp.diag(jacobian)
    return jnp.max(diagonal + jnp.sum(jnp.abs(jacobian), axis=1) - jnp.abs(diagonal))


def _abscissa(x):
    """The largest real part of an eigenvalue of the Jacobian: it is block triangular, with the blocks of theta and of phi."""
    theta, theta_rate, phi, _ = x
    cosine = jnp.cos(theta - PARAMS.slope)
    squared = jnp.stack([cosine, (theta_rate**2 - cosine) * jnp.cos(phi)])
    return jnp.max(jnp.sqrt(jnp.maximum(squared, 0)))


@jax.jit
def _lambda_sums(states) -> tuple[jax.Array, ...]:
    x = states[:-1]
    jacobians = jax.vmap(jax.jacfwd(field))(x)
    eigenvalues = jnp.linalg.eigvalsh((jacobians + jnp.swapaxes(jacobians, 1, 2)) / 2)
    along = lambda partners: jnp.sum(jax.vmap(_pair)(x, partners))
    each = lambda fn, values: jnp.sum(jax.vmap(fn)(values))
    return (
        each(lambda x: x @ jax.jvp(field, (x,), (x,))[1] / (x @ x), x),
        *(along(factor * x) for factor in (0.99, 1.01, 0, -1, 2)),
        along(states[1:]),
        jnp.sum(eigenvalues[:, -1]),
        each(lambda jacobian: _norm_at_infinity(jacobian.T), jacobians),
        each(_norm_at_infinity, jacobians),
        each(_abscissa, x),
        jnp.sum(jnp.trace(jacobians, axis1=1, axis2=2)),
        jnp.sum(eigenvalues[:, 0]),
    )
