r"""Stroboscopic inclusion: a ball of states that a system driven with a period maps into itself in one period."""

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._flow.check import check_params
from .._results.shown import Shown
from .._results.table import Table
from .._system.section import at_phase, Stroboscope
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State
from .euler_bounds import Formula, logarithmic_norm, OneSidedLipschitz, sharp_radius, size
from .euler_tube import euler_tube, EulerTube, is_autonomous

# Times in a period at which the vector field is compared with itself a period later, and the largest relative difference.
PHASES, CLOSE = 7, 1e-6


class StroboscopicInclusion(Shown):
    r"""Whether the ball after a period lies in the ball before it, from `stroboscopic_inclusion`.

    **Attributes:** `tube`: the `EulerTube` of one period. `distance`: that of the centres before and after, in units of the
    state. `contraction`: $\exp(\tau\sum\lambda)$, the factor by which the distance of two solutions shrinks in a period.
    `included`: whether `distance` and the radius after the period together are less than the radius before.

    **Example:**

    >>> driven = lambda t, x, p: -x + jnp.stack([jnp.cos(t), jnp.sin(t)])
    >>> system = hj.HybridSystem({"flow": hj.Mode(driven, ("x", "y"))}, ())
    >>> found = hj.certify.stroboscopic_inclusion(
    ...     system, jnp.array([0.5, -0.5]), None, section=hj.Stroboscope("flow", 2 * jnp.pi), steps=1000, radius=0.1
    ... )
    >>> print(f"{found.contraction:.6f} {jnp.exp(-2 * jnp.pi):.6f}")
    0.001867 0.001867
    """

    tube: EulerTube
    distance: Float[Array, "*batch"]
    contraction: Float[Array, "*batch"]
    included: Bool[Array, "*batch"]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why no attracting periodic solution is proved, a sentence each; none where one is. `TypeError` for a traced result."""
        found = list(self.tube.reasons)
        if not np.all(np.asarray(self.included)):
            found.append("The ball after the period is not in the ball before it.")
        if not np.all(np.asarray(self.contraction) < 1):
            found.append("Solutions in the tube do not approach each other: the sum of lambda is not negative.")
        return tuple(found)

    @property
    def sound(self) -> bool:
        """Whether the tube is a proved enclosure, whether or not the ball is included."""
        return self.tube.sound

    @property
    def proved(self) -> bool:
        """Whether the ball is proved to hold exactly one periodic solution, which attracts all others from the ball."""
        return not self.reasons

    def _tables(self):
        if self.distance.ndim:
            count = f"{self.distance.shape[0]} stroboscopic inclusions"
            return (Table(f"{count}, {int(jnp.sum(self.included))} included", []),)
        after = float(self.distance + self.tube.radii[-1])
        title = (
            f"Stroboscopic inclusion: reach {after:.6g} after the period, radius {float(self.tube.radii[0]):.6g} before, "
            f"contraction {float(self.contraction):.6g}"
        )
        claim = "proved: one attracting periodic solution in the ball" if self.proved else "not proved:"
        return (Table(title, [], notes=[claim, *(f"- {reason}" for reason in self.reasons)]),)


def stroboscopic_inclusion(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    section: Stroboscope,
    steps: int,
    radius: float | Scalar,
    disturbance: float | Scalar = 0.0,
    osl: OneSidedLipschitz = logarithmic_norm(),
    formula: Formula = sharp_radius,
) -> StroboscopicInclusion:
    r"""Whether a ball returns into itself after a period, by the tube of Euler's method; for systems driven with that period.

    $$|\tilde x_N - \tilde x_0| + \delta_N < \delta_0 \quad\text{and}\quad \tau\sum_{i < N}\lambda_i < 0, \qquad N\tau = T$$

    By the first the map over a period takes the ball into itself, by the second it contracts: for every disturbance of period
    $T$ within the bound, and for none, the ball holds exactly one periodic solution, and it attracts all solutions from the ball.
    This is a proof where the constants of `osl` are proved bounds over the tube, and the mode has no guards: otherwise `reasons`
    says why not. That the vector field has the period `steps * tau`, exactly, is assumed.

    Refused for a system that does not depend on time. There the disturbance $w = \eta f(x(t))$ only rescales time: a limit cycle
    remains one, while the phase of a solution on it shifts by $T(1 + \eta) - T^*$ in each period $T$, and comes everywhere. So no
    ball that meets a limit cycle and does not hold all of it is mapped into itself under all disturbances; and without
    disturbance only where $T$ is exactly a multiple of the cycle's period $T^*$. For such a system take the return map to a
    section (`stride`, `section_map`).

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`: centre of the ball, at the phase of
    the section, shape `(n,)`. `section`: the mode of `x0`, the period, and the phase. `steps`: of Euler's method in a period,
    static. `radius`, `disturbance`, `osl`, `formula`: as for `euler_tube`.

    **Returns:** `StroboscopicInclusion`, also under `jit` and `vmap`. `ValueError` for a system that does not depend on time, for
    a vector field without that period, and as `euler_tube`.

    **Example:**

    >>> driven = lambda t, x, p: -x + jnp.stack([jnp.cos(t), jnp.sin(t)])
    >>> system = hj.HybridSystem({"flow": hj.Mode(driven, ("x", "y"))}, ())
    >>> found = hj.certify.stroboscopic_inclusion(
    ...     system, jnp.array([0.5, -0.5]), None, section=hj.Stroboscope("flow", 2 * jnp.pi), steps=1000, radius=0.1
    ... )
    >>> bool(found.included), found.proved, len(found.reasons)
    (True, False, 1)

    Source: Jerray, Fribourg (2020), *Generation of bounded invariants via stroboscopic set-valued maps*, arXiv 2012.09310;
    Lohmiller, Slotine (1998), *On contraction analysis for non-linear systems*, Automatica 34, for the contraction.
    """
    x0 = jnp.asarray(x0)
    system, _ = at_phase(system, section)
    period = section.duration(params, x0.dtype)
    if is_autonomous(system, check_params(params), x0.dtype):
        raise ValueError(
            "stroboscopic_inclusion: the system does not depend on time, so a disturbance along the flow shifts the phase of its "
            "limit cycle without end, and no ball returns into itself after a fixed time. Take the return map to a section: "
            "stride, or section_map with a Section."
        )
    _check_period(system, x0, params, section, period)
    tube = euler_tube(
        system, x0, params, tau=period / steps, steps=steps, radius=radius, disturbance=disturbance, osl=osl,
        formula=formula, mode=section.mode,
    )  # fmt: skip
    distance = size(tube.states[-1] - x0)
    # The rounding of both sides.
    included = (distance + tube.radii[-1]) * (1 + 64 * float(jnp.finfo(x0.dtype).eps)) < tube.radii[0]
    return StroboscopicInclusion(tube, distance, jnp.exp(tube.tau * tube.osl_sums[-1]), included)


def _check_period(system: HybridSystem, x0: State, params: Params, section: Stroboscope, period: Scalar) -> None:
    """`ValueError` for a vector field that is another at `x0` a period later."""
    field = system.mode(section.mode).vector_field
    times = jnp.linspace(0, period, PHASES)
    values, later = (jnp.stack([field(t, x0, params) for t in shifted]) for shifted in (times, times + period))
    if any(isinstance(each, jax.core.Tracer) for each in (values, later)):
        return
    change = float(jnp.max(jnp.abs(later - values)))
    if change > CLOSE * float(jnp.max(jnp.abs(values))):
        raise ValueError(
            f"stroboscopic_inclusion: a period of {float(period):g} later the vector field at x0 differs by {change:.3g}. "
            "Give the period of the forcing to Stroboscope."
        )
