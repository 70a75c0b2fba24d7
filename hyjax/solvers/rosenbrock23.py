r"""The modified Rosenbrock method of order 2 with a third-order estimate, known as ode23s."""

from typing import Any, ClassVar

import jax.numpy as jnp

from .._system.types import State, Time
from .one_array import AbstractOneArraySolver, divided_by, Field, Taken, Work

D = 1 / (2 + 2**0.5)
E32 = 6 + 2**0.5


class Rosenbrock23(AbstractOneArraySolver):
    r"""The linearly implicit method of ode23s, of order 2: three stages with one matrix $W = I - h d\,D_xf$,

    $$W k_1 = f_0 + h d\,D_tf, \qquad W (k_2 - k_1) = f(t + \tfrac h2,\ x + \tfrac h2 k_1) - k_1, \qquad x_1 = x + h k_2,$$

    and a third stage for the error estimate $\tfrac h6 (k_1 - 2 k_2 + k_3)$, of third order. Here $d = 1 / (2 + \sqrt 2)$.

    A step has one Jacobian by automatic differentiation, one factorization, and no iteration, so it cannot fail to converge. The
    method is L-stable. It suits low accuracy (1e-2 to 1e-5) and small systems; beyond, `Rodas5P` takes far fewer steps.
    A singular $W$ gives an error estimate that is not finite, and the step is rejected.

    **Arguments:** none.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.Rosenbrock23(), ..., stepsize_controller=diffrax.PIDController(1e-4, 1e-6))`;
    `hj.Integrator(hj.solvers.Rosenbrock23(), rtol=1e-4, atol=1e-6)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-4, 1e-4)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.Rosenbrock23(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-4)
    True

    Source: Shampine, Reichelt (1997), *The MATLAB ODE suite*, SIAM J. Sci. Comput. 18, sec. 3.1.
    """

    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(2, 1)

    def order(self, terms):
        return 2

    def error_order(self, terms):
        return 3

    def start(self, field: Field, t: Time, x: State, f: State) -> Any:
        return None

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: Any) -> Taken:
        divide, drift = divided_by(field, t, x, h * D)
        k1 = divide(f + h * D * drift)
        middle = field(t + 0.5 * h, x + 0.5 * h * k1)
        k2 = divide(middle - k1) + k1
        after = x + h * k2
        f_after = field(t + h, after)
        k3 = divide(f_after - E32 * (k2 - middle) - 2 * (k1 - f) + h * D * drift)
        return after, f_after, h / 6 * (k1 - 2 * k2 + k3), None, jnp.array(True), jnp.array(0)
