"""The trapezoidal rule, the method of ode23t, and TR-BDF2, the method of ode23tb: of both the first stage is the trapezoidal
rule."""

from typing import ClassVar

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

from .._system.types import Scalar, State, Time
from .one_array import AbstractOneArraySolver, divided_by, Field, newton, Taken, Work, zero_scale

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


GAMMA = 2 - 2**0.5
_D, _W = GAMMA / 2, 2**0.5 / 4

_TABLEAU = dfx.ButcherTableau(
    c=np.array([GAMMA, 1.0]),
    a_lower=(np.array([_D]), np.array([_W, _W])),
    a_diagonal=np.array([0, _D, _D]),
    # The guess of the last stage is the line through the first two.
    a_predictor=(np.array([1.0]), np.array([1 - 1 / GAMMA, 1 / GAMMA])),
    b_sol=np.array([_W, _W, _D]),
    b_error=np.array([(4 * _W - 1) / 3, -1 / 3, 2 * _D / 3]),
)


class TRBDF2(dfx.AbstractESDIRK):
    r"""The method of ode23tb, of order 2: a trapezoidal step to $t + \gamma h$, then the backward differentiation formula,

    $$x_\gamma = x + \tfrac{\gamma h}{2} \big(f(t, x) + f(t + \gamma h, x_\gamma)\big), \qquad
      x_1 = \frac{x_\gamma}{\gamma (2 - \gamma)} - \frac{(1 - \gamma)^2}{\gamma (2 - \gamma)}\,x
      + \frac{1 - \gamma}{2 - \gamma}\,h f(t + h, x_1),$$

    with $\gamma = 2 - \sqrt 2$, for which both stages have the same diagonal coefficient. It is a diagonally implicit Runge-Kutta
    method, L-stable and stiffly accurate, with a third-order companion for the error estimate. The estimate is not filtered: a
    stiff transient is resolved, not stepped over.

    As a diffrax solver it has diffrax's stages and arguments; `hyjax.Integrator` solves its stages to rounding, and rejects a
    step whose stages are not solved in `root_find_max_steps` iterations.

    **Arguments:** `root_finder`: as for the solvers of diffrax; `root_find_max_steps`: the most iterations for a stage.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.TRBDF2(), ..., stepsize_controller=diffrax.PIDController(1e-4, 1e-6))`;
    `hj.Integrator(hj.solvers.TRBDF2(), rtol=1e-4, atol=1e-6)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-4, 1e-4)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.TRBDF2(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-4)
    True

    Source: Bank, Coughran, Fichtner, Grosse, Rose, Smith (1985), *Transient simulation of silicon devices and circuits*, IEEE
    Trans. Electron Devices 32; Hosea, Shampine (1996), *Analysis and implementation of TR-BDF2*, Appl. Numer. Math. 20.
    """

    tableau: ClassVar[dfx.ButcherTableau] = _TABLEAU
    interpolation_cls: ClassVar = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    root_finder: optx.AbstractRootFinder = dfx.with_stepsize_controller_tols(dfx.VeryChord)()
    root_find_max_steps: int = 10

    def order(self, terms):
        return 2

    def error_order(self, terms):
        return 3
