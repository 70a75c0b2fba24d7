r"""Virtual constraints: outputs $y = h(q) - h_d(\theta(q))$ that the inputs of bodies drive to zero, and the motion that is left.

$$M\dot v + c = Q + B u, \qquad \ddot y = J\dot v + \dot Jv, \qquad J = D_qy$$

With $\ddot y = -K_p\,y - K_d\,\dot y$ as the third equation, accelerations and inputs follow from one linear system,

$$\begin{bmatrix} M & -B \\ J & 0 \end{bmatrix} \begin{bmatrix} \dot v \\ u \end{bmatrix} =
  \begin{bmatrix} Q - c \\ -K_p\,y - K_d\,\dot y - \dot Jv \end{bmatrix}$$

which is regular where the decoupling matrix $J M^{-1}B$ is. On the surface $y = \dot y = 0$ of bodies with one input less than
coordinates the phase alone moves, $\ddot\theta = a(\theta) + b(\theta)\,\dot\theta^2$: linear in $E = \dot\theta^2/2$,

$$\frac{dE}{d\theta} = a + 2bE, \qquad E^- = \Phi\,E^+ + \psi, \qquad \Phi = \exp\int 2b\,d\theta$$

Source: Westervelt, Grizzle, Koditschek (2003), *Hybrid zero dynamics of planar biped walkers*, IEEE Trans. Autom. Control 48,
42-56; Westervelt, Grizzle, Chevallereau, Choi, Morris (2007), *Feedback Control of Dynamic Bipedal Robot Locomotion*, ch. 5, 6.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.elimination import solve
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import Reset
from .._system.types import Matrix, Params, require_function, Scalar, State, Time
from ..contact.mechanism import check_mechanism, inertia, load, Mechanism, Positions, Velocities

Outputs = Float[Array, " k"]
Inputs = Float[Array, " k"]
Nodes = Float[Array, " nodes"]
# Of bodies: `(q, params)` to outputs, and to the phase; the curve `(theta, params)`; and a torque of one's own.
MeasuredOutputs = Callable[[Positions, Params], Outputs]
Phase = Callable[[Positions, Params], Scalar]
OutputCurve = Callable[[Scalar, Params], Outputs]
Law = Callable[[Time, Positions, Velocities, Params], Inputs]
# Of all outputs, or of each.
Gain = float | Array | Callable[[Params], Array]


def bezier(coefficients: Float[Array, "k columns"], s: Scalar) -> Outputs:
    r"""Bézier polynomials, $\sum_j \alpha_j \binom{n}{j} s^j (1-s)^{n-j}$, for $0 \le s \le 1$ and beyond.

    **Arguments:** `coefficients`: $\alpha$, shape `(k, n + 1)`, a row for each polynomial. `s`: shape `()`. **Returns:** shape
    `(k,)`, by de Casteljau's recursion. At $s = 0$ and $s = 1$ the values are $\alpha_0$ and $\alpha_n$, the derivatives
    $n(\alpha_1 - \alpha_0)$ and $n(\alpha_n - \alpha_{n-1})$. `ValueError` for coefficients of another shape.

    **Example:**

    >>> print(hj.control.bezier(jnp.array([[0.0, 0.0, 1.0]]), jnp.array(0.5)))
    [0.25]

    Source: Farin (2002), *Curves and Surfaces for CAGD*, ch. 4.
    """
    rows = jnp.asarray(coefficients)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"bezier: coefficients must have the shape (k, degree + 1), not {rows.shape}.")
    while rows.shape[1] > 1:
        rows = rows[:, :-1] + s * (rows[:, 1:] - rows[:, :-1])
    return rows[:, 0]


class HybridZeroDynamics(Shown):
    r"""The gait on the surface of virtual constraints, from `VirtualConstraints.hybrid_zero_dynamics`.

    **Attributes:** `multiplier`: $\delta^2\Phi$, the derivative of the map $E^- \mapsto \Phi\,\delta^2 E^- + \psi$ from impact to
    impact, with $\delta$ the quotient of the rates after and before it; the gait is stable where it is below 1. `period`. `x`:
    positions and velocities just after the impact, shape `(2 m,)`. `phases`, `rates`, `times`: of the phase along the step, from
    impact to impact, shape `(nodes,)`. `defect`: by how much the state after the impact misses the surface, in outputs and in
    their derivatives by the phase; zero where the surface is invariant under the impact, which is what all others assume.
    `result`: `successful`; `no_gait`, where the phase would stop on its way or the impact reverses it, and all but `multiplier`
    and `defect` are NaN; `nonfinite`, where `multiplier` is NaN as well.

    **Example:**

    >>> from hyjax.models import rabbit
    >>> params = rabbit.Params()
    >>> gait = rabbit.constraints.hybrid_zero_dynamics(rabbit.strike, params.phase_stop, params)
    >>> print(f"{gait.multiplier:.10f} {gait.period:.10f} {gait.defect < 1e-12}")
    0.6173914423 0.5105390539 True
    """

    multiplier: Scalar
    period: Scalar
    x: State
    phases: Nodes
    rates: Nodes
    times: Nodes
    defect: Scalar
    result: RESULTS


class VirtualConstraints(eqx.Module):
    r"""A control law of bodies by virtual constraints, made by `virtual_constraints`. Its methods are functions of the state.

    **Attributes:** what `virtual_constraints` was given: `mechanism`, `inputs`, `phase`, `desired`, `outputs`, `stiffness`,
    `damping`, `feedforward`, `configuration`.

    **Methods:** `control(t, q, v, params)`: $u$, shape `(k,)`, for a motor. `acceleration(t, q, v, params)`: $\dot v$ with it,
    shape `(m,)`, for modes of one's own. `driven`: the bodies with it, a `Mechanism`. `error(q, v, params)`: $y$ and $\dot y$.
    `on_surface(theta, rate, params)`: $(q, v)$ with $y = \dot y = 0$. `zero_dynamics(theta, rate, params)`: $\ddot\theta$ there.
    `hybrid_zero_dynamics(reset, stop, params)`: the gait there. These three are for one input less than coordinates.

    Where the decoupling matrix or the mass matrix is singular, all are NaN, which an integration reports as `nonfinite`.

    **Example:**

    >>> from hyjax.models import rabbit
    >>> params = rabbit.Params()
    >>> q, v = rabbit.constraints.on_surface(params.phase_start, jnp.array(1.0), params)
    >>> print(rabbit.constraints.control(jnp.array(0.0), q, v, params).round(3))
    [ 10.24  -19.64   -1.093   8.059]

    Source: Westervelt et al. (2007), *Feedback Control of Dynamic Bipedal Robot Locomotion*, ch. 5.
    """

    mechanism: Mechanism
    inputs: Callable[[Positions, Params], Matrix]
    phase: Phase
    desired: OutputCurve
    outputs: MeasuredOutputs
    stiffness: Gain
    damping: Gain
    feedforward: Law | None
    configuration: Callable[[Scalar, Params], Positions] | None

    def error(self, q: Positions, v: Velocities, params: Params) -> tuple[Outputs, Outputs]:
        r"""The outputs and their rates, $y$ and $\dot y$, shape `(k,)` each."""
        return jax.jvp(lambda q: self.outputs(q, params) - self.desired(self.phase(q, params), params), (q,), (v,))

    def control(self, t: Time, q: Positions, v: Velocities, params: Params) -> Inputs:
        """The inputs, shape `(k,)`."""
        if self.feedforward is None:
            return self._linearized(t, q, v, params)[1]
        return self.feedforward(t, q, v, params) + self._wanted(*self.error(q, v, params), params)

    def acceleration(self, t: Time, q: Positions, v: Velocities, params: Params) -> Velocities:
        """The acceleration of the bodies with the control, shape `(m,)`."""
        if self.feedforward is None:
            return self._linearized(t, q, v, params)[0]
        return self.driven.acceleration(t, q, v, params)

    @property
    def driven(self) -> Mechanism:
        """The bodies with the control among their forces."""

        def forces(t, q, v, params):
            return self.mechanism.forces(t, q, v, params) + self.inputs(q, params) @ self.control(t, q, v, params)

        return Mechanism(self.mechanism.mass, forces, self.mechanism.coriolis)

    def on_surface(self, theta: Scalar, rate: Scalar, params: Params) -> tuple[Positions, Velocities]:
        r"""Positions and velocities, shape `(m,)` each, at a phase and its rate, with $y = \dot y = 0$."""
        q, v = jax.jvp(lambda theta: self._place(theta, params), (theta,), (rate,))
        if (shape := self.inputs(q, params).shape) != (q.size, q.size - 1):
            raise ValueError(
                f"virtual_constraints: the zero dynamics are those of one input less than coordinates; the inputs' matrix has "
                f"the shape {shape} for {q.size} coordinates."
            )
        return q, v

    def zero_dynamics(self, theta: Scalar, rate: Scalar, params: Params) -> Scalar:
        r"""The acceleration $\ddot\theta$ of the phase on the surface, shape `()`, by whatever law holds the bodies there."""
        q, v = self.on_surface(theta, rate, params)
        acceleration, _ = self._linearized(jnp.zeros_like(theta), q, v, params)
        _, (_, drift) = _twice(lambda q: self.phase(q, params), q, v)
        return jax.jvp(lambda q: self.phase(q, params), (q,), (acceleration,))[1] + drift

    def hybrid_zero_dynamics(
        self, reset: Reset, stop: Scalar, params: Params, *, nodes: int = 48, throw: bool = True
    ) -> HybridZeroDynamics:
        r"""The gait on the surface, and its multiplier, by quadrature in place of integration.

        **Arguments:** `reset`: of a transition, `(t, x, params)` with $x = (q, v)$: the impact and the exchange of the legs,
        linear in the rates. `stop`: the phase at the impact, shape `()`. `nodes`: static, the number of Chebyshev's points from
        impact to impact. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code. Under `jit`, `vmap` and
        `grad`, of `params` and `stop`.

        **Returns:** a `HybridZeroDynamics`. Its `result` is `no_gait` where the bodies do not walk on the surface, and
        `nonfinite` where the decoupling matrix is singular or a force is linear in the rates, such as that of a damper, for which
        no quadrature exists.
        """
        stop = jnp.asarray(stop)
        one, zero = jnp.ones_like(stop), jnp.zeros_like(stop)
        after = reset(zero, jnp.concatenate(self.on_surface(stop, one, params)), params)
        q, v = after[: after.size // 2], after[after.size // 2 :]
        start, delta = jax.jvp(lambda q: self.phase(q, params), (q,), (v,))
        y, y_rate = self.error(q, v, params)
        defect = jnp.maximum(jnp.max(jnp.abs(y)), jnp.max(jnp.abs(y_rate / delta)))
        points, integrate = (jnp.asarray(each, stop.dtype) for each in _quadrature(nodes))
        phases = start + (stop - start) * points
        along = lambda values: (stop - start) * (integrate @ values)
        by_rate = jax.vmap(jax.vmap(self.zero_dynamics, (None, 0, None)), (0, None, None))
        still, forward, back = by_rate(phases, jnp.array([0.0, 1.0, -1.0], stop.dtype), params).T
        bend = (forward + back) / 2 - still
        # A force that is linear in the rates has no place in the linear equation of E.
        tolerance = float(jnp.finfo(stop.dtype).eps) ** 0.5 * jnp.max(jnp.abs(bend) + jnp.abs(still))
        growth = nan_unless(jnp.max(jnp.abs(forward - back)) <= tolerance, along(2 * bend))
        pushed = jnp.exp(growth) * along(still * jnp.exp(-growth))
        multiplier = delta**2 * jnp.exp(growth[-1])
        end = pushed[-1] / (1 - multiplier)
        energies = jnp.exp(growth) * delta**2 * end + pushed
        walks = (jnp.min(energies) > 0) & jnp.isfinite(end) & (delta > 0)
        rates = jnp.sign(stop - start) * jnp.sqrt(nan_unless(walks, energies) * 2)
        times = along(1 / rates)
        x, phases = (nan_unless(walks, each) for each in (jnp.concatenate([q, v * rates[-1]]), phases))
        result = choose(jnp.isfinite(multiplier), RESULTS.no_gait, RESULTS.nonfinite)
        result = choose(walks, RESULTS.successful, result)
        found = HybridZeroDynamics(multiplier, times[-1], x, phases, rates, times, defect, result)
        return raise_failure("hybrid_zero_dynamics", found) if throw else found

    def _place(self, theta: Scalar, params: Params) -> Positions:
        if self.configuration is not None:
            return self.configuration(theta, params)
        wanted = jnp.concatenate([self.desired(theta, params), theta[None]])
        both = lambda q: jnp.concatenate([self.outputs(q, params), self.phase(q, params)[None]])
        q = jnp.zeros_like(wanted)
        q = solve(jax.jacfwd(both)(q), wanted - both(q))
        # Outputs and phase that are not affine need a configuration.
        error = float(jnp.finfo(q.dtype).eps) ** 0.5 * (1 + jnp.max(jnp.abs(wanted)))
        return nan_unless(jnp.max(jnp.abs(both(q) - wanted)) <= error, q)

    def _wanted(self, y: Outputs, y_rate: Outputs, params: Params) -> Outputs:
        gain = lambda value: jnp.asarray(value(params) if callable(value) else value, y.dtype)
        return -gain(self.stiffness) * y - gain(self.damping) * y_rate

    def _linearized(self, t: Time, q: Positions, v: Velocities, params: Params) -> tuple[Velocities, Inputs]:
        """Accelerations and inputs, by the equation above."""
        (h, h_rate), (_, h_drift) = _twice(lambda q: self.outputs(q, params), q, v)
        (theta, theta_rate), (_, theta_drift) = _twice(lambda q: self.phase(q, params), q, v)
        (curve, slope), (_, bend) = _twice(lambda theta: self.desired(theta, params), theta, jnp.ones_like(theta))
        by_q = jax.jacfwd(lambda q: (self.outputs(q, params), self.phase(q, params)))(q)
        rows, columns = by_q[0] - jnp.outer(slope, by_q[1]), jnp.asarray(self.inputs(q, params), q.dtype)
        if columns.shape != (q.size, len(h)) or curve.shape != h.shape:
            raise ValueError(
                f"virtual_constraints: for {q.size} coordinates and {len(h)} outputs the inputs' matrix must have the shape "
                f"{(q.size, len(h))} and the desired values {h.shape}; they have {columns.shape} and {curve.shape}."
            )
        drift = h_drift - slope * theta_drift - bend * theta_rate**2
        wanted = self._wanted(h - curve, h_rate - slope * theta_rate, params) - drift
        mass, force = inertia(self.mechanism, q, params), load(self.mechanism, t, q, v, params)
        # Forces in units of the largest mass, so that the condition does not depend on the unit of mass.
        unit = jax.lax.stop_gradient(jnp.max(jnp.abs(mass)))
        matrix = jnp.block([[mass / unit, -columns], [rows, jnp.zeros((len(h), len(h)), q.dtype)]])
        right = jnp.concatenate([force / unit, wanted])
        solution = solve(matrix, right)
        largest = lambda values: jnp.max(jnp.abs(jax.lax.stop_gradient(values)))
        # The condition number is not less than this quotient.
        far = float(jnp.finfo(q.dtype).eps) ** -0.75
        solution = nan_unless(largest(solution) * largest(matrix) <= far * largest(right), solution)
        return solution[: q.size], unit * solution[q.size :]


def _twice(function: Callable, x: Array, v: Array):
    """`((f, f'), (f', f''))` along the straight line from `x` with the velocity `v`."""
    return jax.jvp(lambda x: jax.jvp(function, (x,), (v,)), (x,), (v,))


def _quadrature(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev's points from 0 to 1, ends included, and the matrix of the integrals from 0 to each of them."""
    cheb = np.polynomial.chebyshev
    s = -np.cos(np.pi * np.arange(nodes) / (nodes - 1))
    series = np.linalg.inv(cheb.chebvander(s, nodes - 1))
    return (s + 1) / 2, cheb.chebval(s, cheb.chebint(series, lbnd=-1)).T / 2


def virtual_constraints(
    mechanism: Mechanism,
    *,
    inputs: Float[Array, "m k"] | np.ndarray | Callable[[Positions, Params], Matrix],
    phase: Phase,
    desired: OutputCurve,
    outputs: MeasuredOutputs | None = None,
    stiffness: Gain,
    damping: Gain,
    feedforward: Law | None = None,
    configuration: Callable[[Scalar, Params], Positions] | None = None,
) -> VirtualConstraints:
    r"""A control law that holds outputs of bodies on functions of a phase. $y = h(q) - h_d(\theta(q)) \to 0$.

    By default exact input-output linearization, $\ddot y = -K_p\,y - K_d\,\dot y$, with all derivatives by automatic
    differentiation. With a `feedforward` torque $w$ it is $u = w - K_p\,y - K_d\,\dot y$ instead, which knows the model only
    through $w$.

    **Arguments:** `mechanism`: the bodies without these inputs, with `m` coordinates; a walker with its stance foot pinned, as by
    `Mechanism.reduced`. `inputs`: $B$, the generalized forces of the `k` inputs, an array or a function `(q, params)`, shape
    `(m, k)`. `phase`: $\theta$, `(q, params)`, shape `()`. `desired`: $h_d$, `(theta, params)`, shape `(k,)`, such as a `bezier`
    whose coefficients are leaves of the parameters. `outputs`: $h$, `(q, params)`, shape `(k,)`; by default the coordinates on
    which the inputs act, $B^\top q$. `stiffness`, `damping`: $K_p$ and $K_d$, numbers or arrays of shape `(k,)`, or functions of
    the parameters that return these. `feedforward`: $w$, `(t, q, v, params)`, shape `(k,)`. `configuration`: the positions on the
    surface, `(theta, params)`, shape `(m,)`, which `on_surface` and the zero dynamics need where outputs or phase are not affine.

    **Returns:** `VirtualConstraints`. `ValueError` for what is no function, and for shapes that do not fit.

    Coefficients that change from one step to the next are those of `stride_feedback`, with `where` for the leaves that act.

    **Example:**

    >>> # A cart of mass 2, pushed so that it follows the angle of its pendulum.
    >>> cart = hj.contact.lagrangian(
    ...     lambda q, v, p: v @ v / 2 + v[0] ** 2 / 2 + jnp.cos(q[1]) * v[0] * v[1] - 9.81 * jnp.cos(q[1])
    ... )
    >>> law = hj.control.virtual_constraints(
    ...     cart, inputs=jnp.array([[1.0], [0.0]]), phase=lambda q, p: q[1], desired=lambda theta, p: -p * theta[None],
    ...     stiffness=100.0, damping=20.0,
    ... )
    >>> q, v = law.on_surface(jnp.array(0.1), jnp.array(0.0), jnp.array(1.5))
    >>> print(q, law.control(jnp.array(0.0), q, v, jnp.array(1.5)).round(4))
    [-0.15  0.1 ] [3.987]

    Source: Westervelt, Grizzle, Chevallereau, Choi, Morris (2007), *Feedback Control of Dynamic Bipedal Robot Locomotion*, ch. 5;
    Isidori (1995), *Nonlinear Control Systems*, ch. 5, for the linearization.
    """
    check_mechanism(mechanism)
    require_function(phase, "q, params", "virtual_constraints: phase")
    require_function(desired, "theta, params", "virtual_constraints: desired")
    optional = (
        ("outputs", outputs, "q, params"),
        ("feedforward", feedforward, "t, q, v, params"),
        ("configuration", configuration, "theta, params"),
    )
    for name, function, arguments in optional:
        if function is not None:
            require_function(function, arguments, f"virtual_constraints: {name}")
    matrix = inputs if callable(inputs) else _constant(inputs)
    measured = (lambda q, params: q @ matrix(q, params)) if outputs is None else outputs
    return VirtualConstraints(
        mechanism, matrix, phase, desired, measured, stiffness, damping, feedforward, configuration
    )


def _constant(inputs: Float[Array, "m k"] | np.ndarray) -> Callable[[Positions, Params], Matrix]:
    matrix = np.asarray(inputs, float)
    if matrix.ndim != 2 or matrix.shape[0] < matrix.shape[1]:
        raise ValueError(
            f"virtual_constraints: inputs of shape {matrix.shape} must be a matrix of shape (m, k), with a column for each input "
            "and no more inputs than coordinates."
        )
    return lambda q, params: jnp.asarray(matrix, q.dtype)
