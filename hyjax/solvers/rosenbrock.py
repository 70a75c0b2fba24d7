"""Rosenbrock methods, which solve linear equations alone: Rodas5P of order 5, and the modified method of order 2, ode23s."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from .._system.types import State, Time
from .one_array import AbstractOneArraySolver, divided_by, Field, Taken, Work

GAMMA = 0.21193756319429014
_LAST = [-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946]
# The weights of the earlier stages in the argument of each stage; a last row for the state after the step.
ARGUMENTS = (
    [],
    [3.0],
    [2.849394379747939, 0.45842242204463923],
    [-6.954028509809101, 2.489845061869568, -10.358996098473584],
    [2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641],
    _LAST,
    [*_LAST, 1.0],
    [*_LAST, 1.0, 1.0],
    [*_LAST, 1.0, 1.0, 1.0],
)
# The weights of the earlier stages in the right-hand side of each stage.
COUPLING = (
    [],
    [-14.155112264123755],
    [-17.97296035885952, -2.859693295451294],
    [147.12150275711716, -1.41221402718213, 71.68940251302358],
    [165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306],
    [24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471],
    [30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783, -19.097331116725623,
     -28.087943162872662],
    [37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047, -40.06618937091002,
     -54.66780262877968, -9.48861652309627],
)  # fmt: skip
TIMES = np.array([0, 0.6358126895828704, 0.4095798393397535, 0.9769306725060716, 0.4288403609558664, 1, 1, 1])
DRIFT = np.array(
    [0.21193756319429014, -0.42387512638858027, -0.3384627126235924, 1.8046452872882734, 2.325825639765069, 0, 0, 0]
)


class Rodas5P(AbstractOneArraySolver):
    r"""A Rosenbrock method of order 5 with an error estimate of order 4: eight stages with one matrix,

    $$(I - h\gamma\,D_xf)\,u_i = \gamma \Big(h f\big(t + c_i h,\ x + \sum_{j<i} a_{ij} u_j\big) + \sum_{j<i} C_{ij} u_j
      + h^2 d_i\,D_tf\Big), \qquad x_1 = x + \sum_j a_{8j} u_j + u_8,$$

    and the estimate $u_8$: the difference from the stage before. A step has one Jacobian by automatic differentiation, one
    factorization, and no iteration. The method is stiffly accurate and L-stable, and keeps its order on the Prothero-Robinson
    problem, where the order of most Rosenbrock methods falls. A good first choice for a stiff flow of small dimension.
    A singular matrix gives an error estimate that is not finite, and the step is rejected.

    **Arguments:** none.

    Usage: `diffrax.diffeqsolve(terms, hj.solvers.Rodas5P(), ..., stepsize_controller=diffrax.PIDController(1e-8, 1e-8))`;
    `hj.Integrator(hj.solvers.Rodas5P(), rtol=1e-8, atol=1e-8)`.

    **Example:**

    >>> import diffrax
    >>> decay = diffrax.ODETerm(lambda t, x, rate: -rate * x)
    >>> control = diffrax.PIDController(1e-8, 1e-8)
    >>> found = diffrax.diffeqsolve(
    ...     decay, hj.solvers.Rodas5P(), 0.0, 1.0, 0.01, jnp.ones(1), jnp.array(5.0), stepsize_controller=control
    ... )
    >>> bool(abs(found.ys[-1, 0] - jnp.exp(-5.0)) < 10 * 1e-8)
    True

    Source: Steinebach (2023), *Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the Julia
    Differential Equations package*, BIT Numerical Mathematics 63:27; the numbers in the transformed form are those of
    OrdinaryDiffEq.jl.
    """

    implicit: ClassVar[bool] = True
    work: ClassVar[Work] = Work(8, 1)

    def order(self, terms):
        return 5

    def error_order(self, terms):
        return 5

    def start(self, field: Field, t: Time, x: State, f: State) -> Any:
        return None

    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: Any) -> Taken:
        weights, coupling, times, drifts = (each.astype(x.dtype) for each in (_A, _C, TIMES, DRIFT))
        divide, drift = divided_by(field, t, x, h * GAMMA)

        def stage(stages, each):
            i, c, d, row, coupled = each
            slope = field(t + c * h, x + row @ stages)
            u = divide(GAMMA * (h * slope + coupled @ stages + h**2 * d * drift))
            return stages.at[i].set(u), None

        first = divide(GAMMA * (h * f + h**2 * drifts[0] * drift))
        stages = jnp.zeros((len(TIMES), x.size), x.dtype).at[0].set(first)
        each = (np.arange(1, len(TIMES)), times[1:], drifts[1:], weights[1:-1], coupling[1:])
        stages, _ = jax.lax.scan(stage, stages, each)
        after = x + weights[-1] @ stages
        return after, field(t + h, after), stages[-1], None, jnp.array(True), jnp.array(0)


def _rows(ragged) -> np.ndarray:
    return np.array([[*row, *[0.0] * (len(TIMES) - len(row))] for row in ragged])


_A, _C = _rows(ARGUMENTS), _rows(COUPLING)


# The coefficients of `Rosenbrock23`.
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
