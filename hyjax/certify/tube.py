r"""The result of `euler_tube`: balls about the states of Euler's method, and why they are no proof."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._results.shown import is_traced, Shown
from .._system.results import RESULTS
from .one_sided import OneSidedLipschitz
from .radius import Formula, published_radius, sharp_radius


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

    def __str__(self) -> str:
        if is_traced(self):
            return eqx.tree_pformat(self)
        if self.radii.ndim > 1:
            return f"{self.radii.shape[0]} Euler tubes: radius {_number(self.radii[:, -1])} at the end"
        rows, steps = len(self.times), round(float((self.times[-1] - self.times[0]) / self.tau))
        jumped = ", ".join(str(int(step)) for step in self.jump_steps if step >= 0)
        lines = [
            f"Euler tube: {steps} steps of {float(self.tau):g}, {rows} rows, {int(self.jumps)} jumps: {self.result}",
            f"  radius        {_number(self.radii[0])} to {_number(self.radii[-1])}, disturbance {_number(self.disturbance)}",
            f"  sum of lambda {_number(self.osl_sums[-1])}, of the positive {_number(self.osl_positive[-1])}",
            *([f"  jumps at steps {jumped}"] if jumped else []),
            "  the radii are proved" if self.sound else "  not proved:",
            *(f"  - {reason}" for reason in self.reasons),
            *(["  no proof of an attracting cycle:"] if self.cycle_reasons else []),
            *(f"  - {reason}" for reason in self.cycle_reasons),
        ]
        return "\n".join(lines)


def _number(value) -> str:
    return np.array2string(np.asarray(value), formatter={"float_kind": lambda each: f"{each:.6g}"})
