r"""The trapezoidal rule, the method of ode23t, with an error estimate from divided differences of the vector field."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from .._system.types import Scalar, State, Time
from .one_array import AbstractOneArraySolver, divided_by, Field, Taken, Work
from .stage_newton import newton, zero_scale

Memory = tuple[State, Scalar]


class Trapezoidal(AbstractOneArraySolver):
    r"""The trapezoidal rule, of order 2, with the error estimate of ode23t's kind,

    $$x_1 = x + \tfrac h2 \big(f(t, x) + f(t + h, x_1)\big), \qquad
      \mathrm{error} = \big(I - \tfrac h2 D_xf\big)^{-1}\,\tfrac{h^3}{6}\,f[t_{-1}, t, t + h].$$

    The second divided difference is half of $\dddot x$ and needs the vector field one step back; in the first step the earlier
    point coincides with the first, and the first difference is the derivative of $f$ along the flow, by automatic
    differentiation. So the estimate is of third order from the first step on, for steps of any lengths. The matrix in front damps
    the stiff components of the estimate, which the solution does not have.

    The method is A-stable and has no numerical damping: an oscillation keeps its amplitude, and a stiff transient that is not
    resolved rings, with changing sign, instead of vanishing; `TRBDF2` damps it. Newton's method solves the equation to rounding
    in at most `root_find_max_steps` iterations, or the step is rejected.

    **Arguments:** `root_find_max_steps`: the most iterations of Newton's method in a step.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.Trapezoidal(), ..., stepsize_controller=diffrax.PIDController(1e-4, 1e-6))`;
    `hj.Integrator(hj.solvers.Trapezoidal(), rtol=1e-4, atol=1e-6)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-4, 1e-4)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.Trapezoidal(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-4)
    True

    Source: Shampine, Reichelt, Kierzenka (1999), *Solving index-1 DAEs in MATLAB and Simulink*, SIAM Review 41; the filter as in
    Hosea, Shampine (1996), *Analysis and implementation of TR-BDF2*, Appl. Numer. Math. 20.
    """

    root_find_max_steps: int = 10
    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(1, 1, 1, 1)

    def order(self, terms):
        return 2

    def error_order(self, terms):
        return 3

    def start(self, field: Field, t: Time, x: State, f: State) -> Memory:
        along = jax.jvp(field, (t, x), (jnp.ones_like(t), f))[1]
        return along, jnp.zeros((), x.dtype)

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: Memory) -> Taken:
        before, span = memory
        known, half = x + 0.5 * h * f, 0.5 * h
        residual = lambda z: z - known - half * field(t + h, z)
        after, solved, iterations = newton(residual, x, zero_scale(x), self.root_find_max_steps)
        f_after = field(t + h, after)
        difference = (f_after - f) / h
        raw = h**3 / 6 * (difference - before) / (span + h)
        error = divided_by(field, t + h, after, half)[0](raw)
        return after, f_after, error, (difference, h), solved, iterations
