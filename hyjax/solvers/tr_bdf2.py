r"""TR-BDF2, the method of ode23tb: the trapezoidal rule, then the second-order backward differentiation formula."""

from typing import ClassVar

import diffrax as dfx
import numpy as np
import optimistix as optx

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
