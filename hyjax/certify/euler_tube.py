r"""The tube of Euler's method along a trajectory, by the method of ORBITADOR."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton
from .._flow.check import check_mode, check_params, check_state, sized
from .._orbit.problem import uses_time
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Count, Flag, Params, require_counts, Scalar, State, Time
from .euler_bounds import Formula, logarithmic_norm, OneSidedLipschitz, published_radius, sharp_radius, size

# The result of `euler_tube`: balls about the states of Euler's method, and why they are no proof.


class EulerTube(Shown):
    r"""The tube about Euler's method from `euler_tube`: balls of radius $\delta$ about the Euler states.

    Rows are those of the steps 0, `every`, 2 `every` ... and the last step; after a failure they are NaN, with the mode -1.

    **Attributes:** `times`, `states`, `modes`, `radii`: shapes `(rows,)`, `(rows, n)`, `(rows,)`, `(rows,)`; at a jump the state
    after it. `osl_sums`: the sum of $\lambda$ over all steps up to a row, `osl_positive` that of the positive $\lambda$ alone,
    shapes `(rows,)`, per unit of time: a growth is $\exp(\tau\sum\lambda)$. `jumps`: the number of jumps. `jump_steps`: the
    steps at whose end the resets were applied, counted from 1, shape `(max_jumps,)`, with -1 where there was none;
    `jump_states`: the states after them, shape `(max_jumps, n)`, with NaN. `enclosed`: whether all balls stayed within those for
    which the constants were asked. `tau`, `disturbance`, `osl`, `formula`: as given. `result`: `successful`; `nonfinite`, where a
    state, radius or $\lambda$ is not a number; `max_jumps_reached`. `autonomous`: whether no function of the system computes with
    the time. `guarded`: whether a transition leaves the first mode.

    **Example:**

    >>> spiral = lambda t, x, p: jnp.stack([-x[0] - x[1], x[0] - x[1]])
    >>> system = hj.HybridSystem({"flow": hj.Mode(spiral, ("x", "y"))}, ())
    >>> tube = hj.certify.euler_tube(system, jnp.array([1.0, 0.0]), None, tau=0.01, steps=100, radius=0.1)
    >>> tube.states.shape, tube.radii.shape, len(tube.reasons)
    ((101, 2), (101,), 1)
    """

    times: Float[Array, "*batch rows"]
    states: Float[Array, "*batch rows n"]
    modes: Int[Array, "*batch rows"]
    radii: Float[Array, "*batch rows"]
    osl_sums: Float[Array, "*batch rows"]
    osl_positive: Float[Array, "*batch rows"]
    jumps: Int[Array, "*batch"]
    jump_steps: Int[Array, "*batch jumps"]
    jump_states: Float[Array, "*batch jumps n"]
    enclosed: Bool[Array, "*batch"]
    tau: Float[Array, "*batch"]
    disturbance: Float[Array, "*batch"]
    result: RESULTS
    osl: OneSidedLipschitz
    formula: Formula = eqx.field(static=True)
    autonomous: bool = eqx.field(static=True)
    guarded: bool = eqx.field(static=True)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the radii are not proved bounds on the distance of solutions, a sentence each. `TypeError` for a traced tube."""
        found = list(self.osl.reasons)
        if self.formula not in (sharp_radius, published_radius):
            found.append("The formula of the radius is neither sharp_radius nor published_radius, which are derived.")
        if np.any(np.asarray(self.jumps) > 0):
            found.append(
                "D3: the radius is not propagated through the jumps: solutions in the ball jump at other times, and the "
                "saltation matrix changes their distance."
            )
        elif self.guarded:
            found.append(
                "Guards are looked at along the Euler states alone: another solution in the ball may have jumped."
            )
        if not np.all(np.asarray(self.enclosed)):
            found.append("In some step the ball outgrew that for which the constants hold: take a smaller tau.")
        if not np.all(np.asarray(self.result == RESULTS.successful)):
            found.append(f"The tube ended early: {self.result}.")
        return tuple(found)

    @property
    def sound(self) -> bool:
        """Whether the radii are proved bounds: without `reasons`."""
        return not self.reasons

    @property
    def cycle_reasons(self) -> tuple[str, ...]:
        """Why the tube, sound or not, proves no attracting cycle by an inclusion of its ball after a period, a sentence each."""
        found = []
        total, positive = (np.asarray(sums)[..., -1] for sums in (self.osl_sums, self.osl_positive))
        exponent = 2 * positive + total
        if self.formula is published_radius and np.any((total < 0) & (exponent > 0)):
            found.append(
                "D2: the sum of lambda is negative, but the published radius contracts only where that with three times its "
                f"positive part, {_number(exponent)}, is negative."
            )
        if self.autonomous:
            found.append(
                "D5: the system is autonomous: a disturbance along the flow shifts the phase, so no ball that meets a limit "
                "cycle returns into itself at a fixed time. Use the return map to a section."
            )
        return tuple(found)

    def _tables(self):
        if self.radii.ndim > 1:
            return (Table(f"{self.radii.shape[0]} Euler tubes: radius {_number(self.radii[:, -1])} at the end", []),)
        rows, steps = len(self.times), round(float((self.times[-1] - self.times[0]) / self.tau))
        jumped = ", ".join(str(int(step)) for step in self.jump_steps if step >= 0)
        title = f"Euler tube: {steps} steps of {float(self.tau):g}, {rows} rows, {int(self.jumps)} jumps: {self.result}"
        disturbed = f"disturbance {_number(self.disturbance)}"
        numbers = [
            ("radius", f"{_number(self.radii[0])} to {_number(self.radii[-1])}, {disturbed}"),
            ("sum of lambda", f"{_number(self.osl_sums[-1])}, of the positive {_number(self.osl_positive[-1])}"),
            *([("jumps at steps", jumped)] if jumped else []),
        ]
        notes = [
            "the radii are proved" if self.sound else "not proved:",
            *(f"- {reason}" for reason in self.reasons),
            *(["no proof of an attracting cycle:"] if self.cycle_reasons else []),
            *(f"- {reason}" for reason in self.cycle_reasons),
        ]
        return (Table(title, numbers, notes=notes),)


def _number(value) -> str:
    return np.array2string(np.asarray(value), formatter={"float_kind": lambda each: f"{each:.6g}"})


# About how many rows are kept by default.
ROWS = 1000


def euler_tube(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    tau: float | Scalar,
    steps: int,
    radius: float | Scalar,
    disturbance: float | Scalar = 0.0,
    osl: OneSidedLipschitz = logarithmic_norm(),
    formula: Formula = sharp_radius,
    mode: str | None = None,
    t0: float | Time = 0.0,
    every: int | None = None,
    max_jumps: int = 100,
) -> EulerTube:
    r"""The tube of Euler's method about one trajectory: $\tilde x_{i+1} = \tilde x_i + \tau f(t_i, \tilde x_i)$, with a radius.

    $$\delta_{i+1} = \delta(\tau;\ \delta_i, \lambda_i, C_i, b) \quad\text{by `formula`}$$

    Guards are looked at at the ends of the steps alone: where one has fallen through zero in a step and its transition is armed,
    the reset is applied to the Euler state, and the radius is unchanged. This is the method of ORBITADOR. In a mode without
    guards, and with an `osl` whose constants are proved, every solution $\dot x = f(t, x) + w(t)$, $|w| \le b$, that starts in
    the first ball is at each row's time in the row's ball: rounding errors are added to the radii. In all other cases the tube
    is no proof, and `reasons` of the result says why.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`: centre of the first ball, shape
    `(n,)`. `tau`: length of a step, in units of time. `steps`: their number, static. `radius`: of the first ball, in units of the
    state, Euclidean. `disturbance`: $b$, the largest Euclidean size of what is added to the vector field, in units of the state
    per time. `osl`: the estimate of $\lambda$ and $C$: `logarithmic_norm()`, `radial_quotient()`, or another `OneSidedLipschitz`.
    `formula`: `sharp_radius` or `published_radius`. `mode`: name of the first mode; not needed where there is only one. `t0`:
    start time. `every`: how many steps from row to row of the result, static; by default there are about 1000 rows. `max_jumps`:
    the largest number of jumps, static. Domains of modes are not looked at.

    **Returns:** `EulerTube`, also under `jit` and `vmap`. A failure is its `result`. `ValueError` for arguments of a wrong shape
    or dtype, that are negative or not finite, and for modes of different dimensions, between which a radius has no meaning.

    **Example:**

    >>> spiral = lambda t, x, p: jnp.stack([-x[0] - x[1], x[0] - x[1]])
    >>> system = hj.HybridSystem({"flow": hj.Mode(spiral, ("x", "y"))}, ())
    >>> tube = hj.certify.euler_tube(system, jnp.array([1.0, 0.0]), None, tau=0.01, steps=100, radius=0.1)
    >>> print(f"{tube.radii[-1]:.4f} {tube.times[-1]:.2f}", tube.sound)
    0.0405 1.00 False

    Source: Jerray, Fribourg (2020), *Generation of bounded invariants via stroboscopic set-valued maps*, arXiv 2012.09310.
    """
    mode = _only_mode(system) if mode is None else mode
    params = check_params(params)
    x0 = check_state(x0, system.mode(mode).dimension, mode)
    if len({each.dimension for each in system.modes.values()}) > 1:
        dimensions = {name: each.dimension for name, each in system.modes.items()}
        raise ValueError(
            f"euler_tube: the modes have the dimensions {dimensions}. A ball of one has no radius in another; use a system "
            "whose modes have the same dimension."
        )
    system = sized(system, jnp.zeros((), x0.dtype), x0, params)
    for name in system.names:
        check_mode(system, name, jnp.zeros((), x0.dtype), x0, params)
    require_counts("euler_tube", 1, steps=steps, every=1 if every is None else every, max_jumps=max_jumps)
    every = -(-steps // ROWS) if every is None else every
    given = ("tau", tau), ("radius", radius), ("disturbance", disturbance)
    numbers = tuple(_checked(name, value, x0.dtype) for name, value in given)
    autonomous = is_autonomous(system, params, x0.dtype)
    return _tube(
        Automaton(system), jnp.asarray(t0, x0.dtype), x0, jnp.array(system.number(mode)), params, numbers, osl, formula,
        steps, every, max_jumps, autonomous, bool(system.leaving(mode)),
    )  # fmt: skip


# A row of the tube: state, mode, radius, the sum of $\lambda$ and that of the positive $\lambda$.
Row = tuple[State, Count, Scalar, Scalar, Scalar]
# The tube after some steps: its row; the number of jumps, their steps, and the states after them; whether all balls stayed within
# those for which the constants were asked; and the result.
Now = tuple[Row, tuple[Count, Int[Array, " jumps"], Float[Array, "jumps n"]], Flag, RESULTS]


@eqx.filter_jit
def _tube(
    automaton: Automaton, t0, x0, mode, params, numbers: tuple[Scalar, ...], osl: OneSidedLipschitz, formula: Formula,
    steps: int, every: int, max_jumps: int, autonomous: bool, guarded: bool,
) -> EulerTube:  # fmt: skip
    tau, radius, disturbance = numbers
    take = _step(automaton, t0, params, tau, disturbance, osl, formula, max_jumps)
    none = jnp.zeros((), int)
    steps_at, states_at = jnp.full(max_jumps, -1), jnp.full((max_jumps, x0.size), jnp.nan, x0.dtype)
    good: RESULTS = RESULTS.successful  # pyright: ignore[reportAssignmentType]
    begin: Now = (x0, mode, radius, 0 * tau, 0 * tau), (none, steps_at, states_at), jnp.array(True), good

    def row(now, first):
        end = jax.lax.fori_loop(first, jnp.minimum(first + every, steps), take, now)
        return end, _shown(end)

    firsts = jnp.arange(0, steps, every)
    (_, (jumps, jump_steps, jump_states), enclosed, result), rows = jax.lax.scan(row, begin, firsts)
    x, modes, radii, sums, positive = jax.tree.map(
        lambda one, more: jnp.append(one[None], more, 0), _shown(begin), rows
    )
    counts = jnp.append(firsts, steps).astype(x0.dtype)
    return EulerTube(
        times=t0 + counts * tau, states=x, modes=modes, radii=radii, osl_sums=sums, osl_positive=positive,
        jumps=jumps, jump_steps=jump_steps, jump_states=jump_states, enclosed=enclosed, tau=tau,
        disturbance=disturbance, result=result, osl=osl, formula=formula, autonomous=autonomous, guarded=guarded,
    )  # fmt: skip


def _shown(now: Now) -> Row:
    """The row of the tube at a step; NaN and -1 after a failure."""
    (x, mode, radius, total, positive), _, _, result = now
    good = result == RESULTS.successful
    x, radius, total, positive = (nan_unless(good, each) for each in (x, radius, total, positive))
    return x, jnp.where(good, mode, -1), radius, total, positive


def _step(automaton: Automaton, t0, params, tau, disturbance, osl, formula, max_jumps: int) -> Callable:
    """One step of the tube, `(i, now) -> now`."""
    eps, tiny = float(jnp.finfo(tau.dtype).eps), float(jnp.finfo(tau.dtype).tiny)
    surfaces = automaton.surfaces if automaton.system.transitions else None

    def step(i, now: Now) -> Now:
        (x, mode, radius, total, positive), (jumps, jump_steps, jump_states), enclosed, code = now
        t, after = t0 + i.astype(tau.dtype) * tau, t0 + (i + 1).astype(tau.dtype) * tau
        args = (mode, params)
        rate = automaton.field(t, x, args)
        speed = size(rate)
        # A ball twice as large as the tube is expected to be within this step.
        reach = 2 * (radius + tau * (speed + disturbance)) + tiny
        rise, slope, error = osl.constants(lambda t, x: automaton.field(t, x, args), t, x, tau, reach)
        added = disturbance + error
        largest = sharp_radius(radius, tau, jnp.maximum(rise, 0), slope, added)
        enclosed = enclosed & (largest + tau * speed <= 0.99 * reach)
        # Rounding, of the formula and of the step.
        grown = formula(radius, tau, rise, slope, added)
        rounding = eps * (64 + 2 * jnp.abs(rise) * tau)
        radius = grown * (1 + rounding) + eps * (size(x) + 2 * tau * speed) + tiny
        radius = jnp.where(jnp.isnan(grown), grown, radius)
        fired, x, mode = _jump(surfaces, automaton, t, after, x, x + tau * rate, args)
        late = jumps >= max_jumps
        finite = jnp.all(jnp.isfinite(x)) & ~jnp.isnan(radius) & ~jnp.isnan(rise)
        result = choose(~finite, RESULTS.nonfinite, choose(fired & late, RESULTS.max_jumps_reached, code))
        result = choose(code == RESULTS.successful, result, code)
        counted = fired & (result == RESULTS.successful)
        at = jnp.where(counted, jumps, max_jumps)
        jump_steps, jump_states = (
            rows.at[at].set(each, mode="drop") for rows, each in ((jump_steps, i + 1), (jump_states, x))
        )
        row = x, mode, radius, total + rise, positive + jnp.maximum(rise, 0)
        return row, (jumps + counted.astype(int), jump_steps, jump_states), enclosed, result

    return step


def _jump(surfaces, automaton: Automaton, t, after, before: State, x: State, args) -> tuple[Flag, State, Count]:
    """Whether a guard has fallen in the step from `before` to `x`, and the state and mode after the jump: of several guards, the
    first."""
    mode, params = args
    if surfaces is None:
        return jnp.array(False), x, mode
    fallen = (surfaces.values(t, before, args) > 0) & (surfaces.values(after, x, args) <= 0)
    fallen = fallen & surfaces.armed(after, x, args)
    fired = jnp.any(fallen)
    way = automaton.way(mode, jnp.argmax(fallen))
    jumped = automaton.jump(after, x, way, params)
    return fired, jnp.where(fired, jumped, x), jnp.where(fired, automaton.target(way), mode)


def is_autonomous(system: HybridSystem, params: Params, dtype) -> bool:
    """Whether no function of the system computes with the time."""
    return not uses_time(system, system.names, range(len(system.ways)), params, dtype)


def _only_mode(system: HybridSystem) -> str:
    if len(system.names) > 1:
        raise ValueError(f"euler_tube: give the first mode, mode=..., one of {system.names}.")
    return next(iter(system.names))


def _checked(name: str, value: float | Scalar, dtype) -> Scalar:
    """The number as an array; `ValueError` for one that is negative or not finite, and for a `tau` of zero."""
    number = jnp.asarray(value, dtype)
    if not isinstance(number, jax.core.Tracer):
        least = "positive" if name == "tau" else "not negative"
        if not np.isfinite(number) or number < 0 or (name == "tau" and number == 0):
            raise ValueError(f"euler_tube: {name}={value} must be finite and {least}.")
    return number
