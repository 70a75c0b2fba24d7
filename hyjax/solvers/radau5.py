r"""Radau IIA of order 5: collocation at three points, the last of them the end of the step."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from .._system.types import State, Time
from .one_array import AbstractOneArraySolver, divided_by, Field, newton, Taken, Work, zero_scale

_R = 6**0.5
TIMES = np.array([(4 - _R) / 10, (4 + _R) / 10, 1.0])
WEIGHTS = np.array(
    [
        [(88 - 7 * _R) / 360, (296 - 169 * _R) / 1800, (-2 + 3 * _R) / 225],
        [(296 + 169 * _R) / 1800, (88 + 7 * _R) / 360, (-2 - 3 * _R) / 225],
        [(16 - _R) / 36, (16 + _R) / 36, 1 / 9],
    ]
)
# The real eigenvalue of the weights, and the companion method that has it as its diagonal coefficient.
GAMMA = (6 + 81 ** (1 / 3) - 9 ** (1 / 3)) / 30
COMPANION = np.array([-(13 + 7 * _R) / 3, (-13 + 7 * _R) / 3, -1 / 3])


class Radau5(AbstractOneArraySolver):
    r"""The Radau IIA method with three stages, of order 5, with the error estimate of RADAU5, of order 3,

    $$z_i = h \sum_j a_{ij}\,f(t + c_j h,\ x + z_j), \qquad x_1 = x + z_3, \qquad
      (I - h\gamma\,D_xf)\,e = h \gamma f(t, x + e') + \gamma \sum_i e_i z_i,$$

    where $e'$ is the estimate that has $e' = 0$ on the right-hand side: this second estimate vanishes for stiff components. The
    estimate is of fourth order in the step, so the steps of accurate solutions are shorter than the solution needs.

    The method is L-stable, stiffly accurate and of stage order 3, and hence the most robust one here at high accuracy and for
    strongly nonlinear stiff flows. Newton's method solves the equations of the three stages together, $3n$ unknowns, to rounding
    in at most `root_find_max_steps` iterations, or the step is rejected; so an iteration eliminates three times as many unknowns
    as that of a diagonally implicit stage.

    **Arguments:** `root_find_max_steps`: the most iterations of Newton's method in a step.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.Radau5(), ..., stepsize_controller=diffrax.PIDController(1e-8, 1e-8))`;
    `hj.Integrator(hj.solvers.Radau5(), rtol=1e-8, atol=1e-8)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-8, 1e-8)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.Radau5(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-8)
    True

    Source: Hairer, Wanner (1996), *Solving Ordinary Differential Equations II*, sec. IV.5 and IV.8.
    """

    root_find_max_steps: int = 10
    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(2, 1, 3, 3)

    def order(self, terms):
        return 5

    def error_order(self, terms):
        return 4

    def start(self, field: Field, t: Time, x: State, f: State) -> Any:
        return None

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: Any) -> Taken:
        weights, times, companion = (each.astype(x.dtype) for each in (WEIGHTS, TIMES, COMPANION))
        fields = jax.vmap(field)

        def residual(z):
            z = z.reshape(3, x.size)
            return (z - h * (weights @ fields(t + h * times, x + z))).reshape(-1)

        # The scale of a coordinate of the increments is that of the state.
        unit = jnp.tile(zero_scale(x) + jnp.abs(x), 3)
        z, solved, iterations = newton(residual, jnp.zeros(3 * x.size, x.dtype), unit, self.root_find_max_steps)
        z = z.reshape(3, x.size)
        after = x + z[2]
        divide, _ = divided_by(field, t, x, h * GAMMA)
        known = GAMMA * (companion @ z)
        error = divide(h * GAMMA * f + known)
        error = divide(h * GAMMA * field(t, x + error) + known)
        return after, field(t + h, after), error, None, solved, iterations
