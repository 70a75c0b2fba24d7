r"""Numerical differentiation formulas of variable order 1 to 5 and variable step: the method of ode15s."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from .._system.types import State, Time
from .divided_differences import DividedDifferences, first, moved, next_order, remainders, sums
from .one_array import AbstractOneArraySolver, Field, Taken, Work
from .stage_newton import newton, zero_scale

HIGHEST = 5
KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0])


class NDF(AbstractOneArraySolver):
    r"""Numerical differentiation formulas, or backward differentiation formulas with `kappa=False`, of order $k$ = 1 to 5,

    $$h \dot P_k(t_1) - \kappa_k \alpha_k\,(x_1 - x_1^*) = h f(t_1, x_1), \qquad
      \alpha_k = \sum_{j=0}^{k-1} \frac{h}{t_1 - t_{-j}},$$

    where $P_k$ is the polynomial through $x_1$ and the last $k$ points, and $x_1^*$ the value of the polynomial through the last
    $k + 1$ points. The formula is written for points at any distances, so the step may have any length; for equal steps,
    $\alpha_k$ is $\sum 1/j$, and the formula is that of the source. The error estimate of order $k$ is

    $$\Big(\frac{h}{t_1 - t_{-k}} + \kappa_k \alpha_k\Big) (x_1 - x_1^*).$$

    The order of the next step is the one with the smallest error in the last. **Restart:** `init` knows one point and the vector
    field there. The first step has order 1, and so a small step is needed; then the order rises by at most one in each step. In
    `hyjax.Integrator` every arc after a jump starts in this way, and in `diffrax.diffeqsolve` every jump of the vector field that
    the controller is told about. Where jumps are frequent, a one-step method is better.

    Orders 1 and 2 are A-stable; orders 3 to 5 are A($\alpha$)-stable, and not suited to lightly damped oscillations: there take
    `highest=2`, or `Radau5`. A step solves one equation, by Newton's method to rounding, in at most `root_find_max_steps`
    iterations, or is rejected.

    The step size controller is given the error order of the highest order: between 3 and 6 the number of steps differs by up to a
    fifth. The order is a decision from numbers near rounding where the tolerance is; a gradient that repeats the steps
    (`DirectAdjoint`, `RecursiveCheckpointAdjoint`) may decide otherwise, within the tolerance.

    **Arguments:** `highest`: the largest order, 1 to 5. `kappa`: whether the formulas have the term with $\kappa_k$.
    `root_find_max_steps`: the most iterations of Newton's method in a step.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.NDF(), ..., stepsize_controller=diffrax.PIDController(1e-6, 1e-8))`;
    `hj.Integrator(hj.solvers.NDF(), rtol=1e-6, atol=1e-8)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-6, 1e-6)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.NDF(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-6)
    True

    Source: Shampine, Reichelt (1997), *The MATLAB ODE suite*, SIAM J. Sci. Comput. 18, sec. 2; for unequal steps, Hairer,
    Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, sec. III.5.
    """

    highest: int = HIGHEST
    kappa: bool = True
    root_find_max_steps: int = 10
    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(1, 0, 1, 1)

    def __check_init__(self):
        if self.highest not in range(1, HIGHEST + 1):
            raise ValueError(f"NDF: highest={self.highest!r} must be an order from 1 to {HIGHEST}.")

    def order(self, terms):
        return self.highest

    def error_order(self, terms):
        return self.highest + 1

    def start(self, field: Field, t: Time, x: State, f: State) -> DividedDifferences:
        return first(self.highest + 2, x, f)

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: DividedDifferences) -> Taken:
        h = memory.length(h)
        k, row = memory.order, np.arange(self.highest + 2)
        kappas = jnp.asarray(KAPPA if self.kappa else np.zeros_like(KAPPA), x.dtype)
        terms, shares = memory.terms(h), h / (h + memory.lags)
        alphas = sums(shares)
        # The polynomial through the last k points, h times its derivative, and the polynomial through one point more.
        below = (row < k)[:, None]
        base = jnp.sum(jnp.where(below, terms, 0), axis=0)
        slope = jnp.sum(jnp.where(below, alphas[:, None] * terms, 0), axis=0)
        ahead = base + terms[k]
        lead = (1 - kappas[k]) * alphas[k]
        known = (alphas[k] * base - slope - kappas[k] * alphas[k] * ahead) / lead
        unit = zero_scale(x)
        residual = lambda z: z - known - h / lead * field(t + h, z)
        after, solved, iterations = newton(residual, ahead, unit, self.root_find_max_steps)

        left = remainders(terms, after)
        orders = np.arange(1, self.highest + 1)
        errors = (shares[orders] + kappas[orders] * alphas[orders])[:, None] * left[orders + 1]
        order = next_order(errors, after, unit, k, memory.known, self.highest)
        return after, field(t + h, after), errors[k - 1], moved(memory, h, left, order), solved, iterations
