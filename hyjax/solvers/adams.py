r"""Adams-Bashforth-Moulton formulas of variable order and step: the method of ode113."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from .._system.types import State, Time
from .divided_differences import DividedDifferences, first, moved, next_order, products, remainders
from .one_array import AbstractOneArraySolver, Field, Taken, Work
from .stage_newton import zero_scale

HIGHEST = 12
# Gauss-Legendre nodes and weights on [0, 1]: exact for the polynomials of a step, of degree 12 and less.
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(7)[0] + 1) / 2, np.polynomial.legendre.leggauss(7)[1] / 2


class AdamsPECE(AbstractOneArraySolver):
    r"""Adams-Bashforth-Moulton formulas of order $k$ = 1 to 12: predict, evaluate, correct, evaluate,

    $$x_1^* = x + \int_t^{t_1} P_{k-1}, \qquad f_1^* = f(t_1, x_1^*), \qquad
      x_1 = x + \int_t^{t_1} P_k^*, \qquad f_1 = f(t_1, x_1),$$

    where $P_{k-1}$ is the polynomial through the vector fields at the last $k$ points, and $P_k^*$ the one through $f_1^*$ too.
    The points may be at any distances, so the step may have any length; the integrals are Gauss sums of terms of one sign. The
    solution has order $k + 1$; the error estimate, the difference from the correction through one point less, has order $k$.

    The order of the next step is the one with the smallest error in the last. **Restart:** `init` knows one point. The first step
    has order 1, and so a small step is needed; then the order rises by at most one in each step. In `hyjax.Integrator` every arc
    after a jump starts in this way, and in `diffrax.diffeqsolve` every jump of the vector field that the controller is told
    about. So the method is for long smooth arcs at high accuracy with an expensive vector field, of which a step has two
    evaluations, independent of the order.

    The method is explicit: in a stiff flow its stability limits the step. The step size controller is given the error order 6,
    from the middle of the range: between 3 and 13 the number of steps differs by up to a fifth, and at the start, where the order
    is 1, a high one needs more trials. The order is a decision from numbers near rounding where the tolerance is; a gradient that
    repeats the steps (`DirectAdjoint`, `RecursiveCheckpointAdjoint`) may decide otherwise, within the tolerance.

    **Arguments:** `highest`: the largest order, 1 to 12.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.AdamsPECE(), ..., stepsize_controller=diffrax.PIDController(1e-10, 1e-10))`;
    `hj.Integrator(hj.solvers.AdamsPECE(), rtol=1e-10, atol=1e-10)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-9, 1e-9)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.AdamsPECE(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-9)
    True

    Source: Shampine, Gordon (1975), *Computer Solution of Ordinary Differential Equations*; Shampine, Reichelt (1997), *The
    MATLAB ODE suite*, SIAM J. Sci. Comput. 18.
    """

    highest: int = HIGHEST
    implicit: ClassVar[bool] = False
    work: ClassVar[Work] = Work(2)

    def __check_init__(self):
        if self.highest not in range(1, HIGHEST + 1):
            raise ValueError(f"AdamsPECE: highest={self.highest!r} must be an order from 1 to {HIGHEST}.")

    def order(self, terms):
        return self.highest + 1

    def error_order(self, terms):
        return min(self.highest + 1, 6)

    def start(self, field: Field, t: Time, x: State, f: State) -> DividedDifferences:
        return first(self.highest + 1, f)

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: DividedDifferences) -> Taken:
        h = memory.length(h)
        k, row = memory.order, np.arange(self.highest + 1)
        nodes, weights = _NODES.astype(x.dtype), _WEIGHTS.astype(x.dtype)
        terms, ends = memory.terms(h), products(memory.reach(h))
        inside = products((h * nodes[:, None] + memory.lags) / memory.unit)
        whole = h * (weights @ inside)
        # Integrals of the products that are also zero at the end of the step.
        less = h**2 / memory.unit * ((weights * (nodes - 1)) @ inside[:, :-1])

        predicted = x + jnp.sum(jnp.where((row < k)[:, None], whole[:, None] * memory.differences, 0), axis=0)
        left = remainders(terms, field(t + h, predicted))
        after = predicted + whole[k] / ends[k] * left[k]
        errors = (less / ends[1:])[:, None] * left[1:]
        order = next_order(errors, after, zero_scale(x), k, memory.known + 1, self.highest)
        f_after = field(t + h, after)
        memory = moved(memory, h, remainders(terms, f_after), order)
        return after, f_after, errors[k - 1], memory, jnp.array(True), jnp.array(0)
