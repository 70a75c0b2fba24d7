r"""Feedback once per stride: the parameters of the next stride are chosen from the state at its start.

Near an orbit $x_\ast$ the stride is $x_{k+1} - x_\ast = A\,(x_k - x_\ast) + B\,u_k$, with the return Jacobian $A = D_xS$ and the
derivative $B = D_uS$ by the parameters that act.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues, inside_circle
from .._numerics.semidefinite import check_positive, discrete_riccati
from .._orbit.orbit import leaf_values, PeriodicOrbit, require_one, require_phase, stride_derivatives
from .._orbit.stride import run_stride
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._results.table import Table, without_rounding
from .._system.results import choose, RESULTS
from .._system.types import Matrix, Params, require_counts, State
from .._system.where import free_leaves, leaf_names, Where, with_leaves


class ClosedLoop(Shown):
    """Strides of a system with or without feedback.

    **Attributes:** `x`: states at the starts of the strides, and after the last, shape `(strides + 1, n)`. `controls`: the
    deviations of the parameters that act from those of the orbit, shape `(strides, m)`. `times`: durations of the strides, shape
    `(strides,)`. `result`: the code of each stride, shape `(strides,)`; after the first failure all numbers are NaN.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> feedback = hj.control.stride_feedback(orbit, where=lambda p: p.slope)
    >>> loop = feedback.simulate(orbit.x + jnp.array([0.0, 0.01]), strides=3)
    >>> loop.x.shape, loop.controls.shape
    ((4, 2), (3, 1))
    >>> print((loop.x[:, 1] - orbit.x[1]).round(5))
    [0.01    0.00308 0.00094 0.00029]
    """

    x: Float[Array, "states n"]
    controls: Float[Array, "strides m"]
    times: Float[Array, " strides"]
    result: RESULTS


class StrideFeedback(Shown):
    r"""The feedback $u_k = -K\,(x_k - x_\ast)$ of an orbit, from `stride_feedback`. A stride is here once around the orbit.

    **Attributes:** `gain`: $K$, shape `(m, n)`, in the units of the parameters that act per unit of the state. `multipliers`: of
    the closed loop $A - BK$, largest modulus first, shape `(n,)`. `by_state`: $A$, `(n, n)`. `by_control`: $B$, `(n, m)`. `cost`:
    $P$, the least cost $x^\top P x$ from a deviation, `(n, n)`. `orbit`. `result`: `successful`; `not_stabilized` where no gain
    puts all multipliers inside the unit circle; or the code of the orbit or the stride that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> feedback = hj.control.stride_feedback(orbit, where=lambda p: p.slope)
    >>> feedback.by_state.shape, feedback.by_control.shape
    ((2, 2), (2, 1))
    >>> print(feedback.control(orbit.x + jnp.array([0.0, 0.01])).round(6))
    [-0.00222]
    """

    gain: Float[Array, "m n"]
    multipliers: Complex[Array, " n"]
    by_state: Matrix
    by_control: Float[Array, "n m"]
    cost: Matrix
    orbit: PeriodicOrbit
    result: RESULTS
    free: tuple[int, ...] = eqx.field(static=True)

    def _tables(self):
        names = leaf_names(self.orbit.params)
        largest = lambda values: float(without_rounding(np.max(np.abs(np.asarray(values)))))
        title, lines = f"Feedback once per stride by {', '.join(names[i] for i in self.free)}: {self.result}", []
        coordinates = self.orbit.system.mode(self.orbit.sequence[0]).coordinates
        for i, row in zip(self.free, np.asarray(self.gain), strict=True):
            terms = " ".join(f"{-k:+.6g} d{name}" for k, name in zip(row, coordinates, strict=True))
            lines.append(f"d{names[i]} = {terms}")
        lines.append(
            f"spectral radius {largest(self.multipliers):.6g}, without feedback {largest(self.orbit.multipliers):.6g}"
        )
        return (Table(title, [], notes=lines),)

    def control(self, x: State) -> Float[Array, " m"]:
        """The deviation of the parameters that act, for the stride that starts at the state `x`."""
        return -self.gain @ (x - self.orbit.x)

    def params(self, x: State) -> Params:
        """The parameters of the stride that starts at the state `x`."""
        return self._params(self.control(x))

    def _params(self, control: Float[Array, " m"]) -> Params:
        values = leaf_values(self.orbit.params, self.free, self.orbit.x.dtype)
        return with_leaves(self.orbit.params, self.free, values + control)

    def simulate(self, x0: State, strides: int, *, closed: bool = True, throw: bool = True) -> ClosedLoop:
        """So many strides from the state `x0`, with the feedback or, with `closed=False`, without it.

        **Arguments:** `x0`: just after a jump, shape `(n,)`. `strides`: static, at least 1. The parameters are not bounded: the
        feedback may ask for one outside its range, such as a negative stiffness, and gets it. `throw`: raise a `SolveError` on
        failure; with `False`, `result` holds the code.
        """
        x = jnp.asarray(x0)
        if x.shape != self.orbit.x.shape or not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"simulate: x0 of shape {x.shape} and dtype {x.dtype} must be a state of shape {self.orbit.x.shape}, of "
                "floating-point numbers, just after a jump."
            )
        require_counts("simulate", 1, strides=strides)
        found = _simulate(self, x, strides, closed)
        # The code of the last stride is that of the first that failed, if one did.
        last = jax.tree.map(lambda codes: codes[-1], found.result)
        return raise_failure("StrideFeedback.simulate", found, last) if throw else found


@long_run
def _simulate(feedback: StrideFeedback, x: State, strides: int, closed: bool) -> ClosedLoop:
    orbit = feedback.orbit

    def once(carry, _):
        t, x, failed = carry
        control = feedback.control(x) if closed else jnp.zeros_like(feedback.gain[:, 0])
        through = run_stride(
            orbit.system, t, x, feedback._params(control), orbit.sequence * orbit.strides, orbit.integrator
        )
        result = choose(failed == RESULTS.successful, through.result, failed)
        return (t + through.time, through.x, result), (through.x, control, through.time, result)

    start = jnp.zeros((), x.dtype), x, RESULTS.successful
    _, (states, controls, times, results) = jax.lax.scan(once, start, None, length=strides)
    return ClosedLoop(jnp.concatenate([x[None], states]), controls, times, results)


def stride_feedback(
    orbit: PeriodicOrbit,
    *,
    where: Where,
    state_cost: Float[Array, "n n"] | None = None,
    control_cost: Float[Array, "m m"] | None = None,
    throw: bool = True,
) -> StrideFeedback:
    r"""The linear-quadratic regulator of the return map: feedback once per stride by parameters that act.

    The gain minimizes $\sum_k \delta x_k^\top Q\,\delta x_k + u_k^\top R\,u_k$ for $\delta x_{k+1} = A\,\delta x_k + B\,u_k$,
    $A = D_xS$, $B = D_uS$, where $S$ is once around the orbit.

    **Arguments:** `orbit`: stable or not. `where`: selects the $m$ parameters that act, as `lambda p: (p.push_off, p.stiffness)`;
    they are constant during a stride. `state_cost`: $Q$, symmetric and positive definite, shape `(n, n)`; by default the
    identity. `control_cost`: $R$, likewise, `(m, m)`. Both in the units of the states and of the parameters that act. `throw`:
    raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `StrideFeedback`, also under `jit`, `vmap` and `grad` (in the parameters of the orbit and in the costs).
    `result` is `not_stabilized` where the parameters do not reach an unstable direction. `ValueError` for costs of another shape,
    or that are not symmetric and positive definite.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> feedback = hj.control.stride_feedback(orbit, where=lambda p: p.slope)
    >>> print(feedback.gain.round(4), f"{feedback.multipliers[0].real:.4f}")
    [[0.1023 0.222 ]] 0.3044

    Source: Kuo (1999), *Stabilization of lateral motion in passive dynamic walking*, Int. J. Robot. Res. 18, 917-930, for the
    regulator once per step; Anderson, Moore (1990), *Optimal Control: Linear Quadratic Methods*. In
    Kong, Payne, Zhu, Johnson (2024): Table I, $P$ of eq. 40 with the penalties of Appendix D, and the Poincaré map of Sec. III-C.
    """
    require_one(orbit, "stride_feedback")
    require_phase(orbit, "stride_feedback")
    free = free_leaves(where, orbit.params)
    dtype, n, m = orbit.x.dtype, orbit.x.size, len(free)
    q = (
        jnp.eye(n, dtype=dtype)
        if state_cost is None
        else check_positive(state_cost, n, dtype, "stride_feedback: state_cost")
    )
    r = (
        jnp.eye(m, dtype=dtype)
        if control_cost is None
        else check_positive(control_cost, m, dtype, "stride_feedback: control_cost")
    )
    found = _feedback(orbit, q, r, free)
    return raise_failure("stride_feedback", found) if throw else found


@long_run
def _feedback(orbit: PeriodicOrbit, q: Array, r: Array, free: tuple[int, ...]) -> StrideFeedback:
    (a, b), result = stride_derivatives(orbit, free, lambda stride: stride.x)
    p, k = discrete_riccati(a, b, q, r)
    multipliers = eigenvalues(a - b @ k)
    sound = jnp.all(jnp.isfinite(k)) & inside_circle(multipliers)
    result = choose((result == RESULTS.successful) & ~sound, RESULTS.not_stabilized, result)
    return StrideFeedback(k, multipliers, a, b, p, orbit, result, free)
