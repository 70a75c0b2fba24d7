r"""Multistep methods of variable order and step: the numerical differentiation formulas of ode15s, the Adams-Bashforth-Moulton
formulas of ode113, and the divided differences of the points behind them, polynomials through these for steps of any lengths.

$$P_k(t) = \sum_{m \le k} y[t_0, \dots, t_{-m}] \prod_{j<m} (t - t_{-j})$$

Differences are multiplied with powers of the last step, so that they have the unit of $y$.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, sec. III.5.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from .._system.types import Scalar, State, Time
from .one_array import AbstractOneArraySolver, Field, newton, Taken, Work, zero_scale


class DividedDifferences(eqx.Module):
    """The points behind a step. `differences`: row `m` is that of order `m`, multiplied with the power `m` of `unit`, the length
    of the last step. `lags`: the times from each point to the newest. `known`: the highest difference that is known. `order`:
    that of the next step, the same for every length of it, so that its end is a continuous function of its length."""

    differences: Float[Array, "rows n"]
    lags: Float[Array, " points"]
    unit: Scalar
    known: Int[Array, ""]
    order: Int[Array, ""]

    def length(self, h: Time) -> Scalar:
        """The length of a step; for zero, a part of the last step. In a batch, a lane that has ended takes steps of length zero
        until all have ended. They are discarded, but a division by zero would make its gradient NaN."""
        return jnp.where(h == 0, 1e-3 * self.unit, h)

    def reach(self, h: Time) -> Float[Array, " points"]:
        """The times from each point to the end of a step, in units of the last step."""
        return (h + self.lags) / self.unit

    def terms(self, h: Time) -> Float[Array, "rows n"]:
        """The terms of the polynomial through the points, in Newton's form, at the end of a step."""
        return products(self.reach(h))[:, None] * self.differences


def products(factors: Float[Array, " *batch points"]) -> Float[Array, " *batch rows"]:
    """The products of none, one, two ... of the factors."""
    return jnp.cumprod(jnp.concatenate([jnp.ones_like(factors[..., :1]), factors], axis=-1), axis=-1)


def sums(values: Float[Array, " points *n"]) -> Float[Array, " rows *n"]:
    """The sums of none, one, two ... of the values."""
    return jnp.cumsum(jnp.concatenate([jnp.zeros_like(values[:1]), values]), axis=0)


def first(rows: int, *values: State) -> DividedDifferences:
    """The history of a start: one value, or a value and its derivative, by a difference of coinciding points."""
    differences = jnp.zeros((rows, values[0].size), values[0].dtype).at[: len(values)].set(jnp.stack(values))
    dtype = values[0].dtype
    known = jnp.array(len(values) - 1)
    return DividedDifferences(differences, jnp.zeros(rows - 1, dtype), jnp.ones((), dtype), known, jnp.ones_like(known))


def remainders(terms: Float[Array, "rows n"], y: State) -> Float[Array, "rows n"]:
    """`y` minus the values of the polynomials of none, one, two ... points: each is a new difference times its product."""
    return y - sums(terms[:-1])


def moved(
    history: DividedDifferences, h: Time, remainders: Float[Array, "rows n"], order: Int[Array, ""]
) -> DividedDifferences:
    """The history after a step."""
    differences = remainders / products((h + history.lags) / h)[:, None]
    lags = jnp.concatenate([jnp.zeros_like(history.lags[:1]), (h + history.lags)[:-1]])
    known = jnp.minimum(history.known + 1, len(differences) - 1)
    return DividedDifferences(differences, lags, jnp.asarray(h, history.unit.dtype), known, order)


def next_order(errors: Float[Array, "most n"], x: State, unit: Scalar, order, known, most: int) -> Int[Array, ""]:
    """The order of the next step: the one with the smallest error in this step, at most one above the last.

    Needs no tolerance: where the error of the step is about the tolerance, the smallest error is also the longest step. During
    the start, where the highest order whose error is known is the best, the order rises further, by one in each step.

    **Arguments:** `errors`: row `j - 1` is the error of order `j` in this step. `known`: the highest order whose error is known.
    """
    errors, x, unit = stop_gradient((errors, x, unit))
    each = np.arange(1, len(errors) + 1)
    size = jnp.max(jnp.abs(errors) / (unit + jnp.abs(x)), axis=1)
    allowed = (each <= jnp.minimum(known, order + 1)) & jnp.isfinite(size)
    best = jnp.argmin(jnp.where(allowed, size, jnp.inf)).astype(order.dtype) + 1
    return jnp.minimum(jnp.where(best == known, best + 1, best), most)


HIGHEST_NDF = 5
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

    highest: int = HIGHEST_NDF
    kappa: bool = True
    root_find_max_steps: int = 10
    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(1, 0, 1, 1)

    def __check_init__(self):
        if self.highest not in range(1, HIGHEST_NDF + 1):
            raise ValueError(f"NDF: highest={self.highest!r} must be an order from 1 to {HIGHEST_NDF}.")

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


HIGHEST_ADAMS = 12
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

    highest: int = HIGHEST_ADAMS
    implicit: ClassVar[bool] = False
    work: ClassVar[Work] = Work(2)

    def __check_init__(self):
        if self.highest not in range(1, HIGHEST_ADAMS + 1):
            raise ValueError(f"AdamsPECE: highest={self.highest!r} must be an order from 1 to {HIGHEST_ADAMS}.")

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
