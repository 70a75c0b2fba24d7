r"""Filippov systems: a flow whose field jumps at a surface, which it crosses or along which it slides.

On the side $h > 0$ of the surface the flow is $f_+$, on the other $f_-$. With the rates $L_\pm = D_th + D_xh\,f_\pm$ of $h$ along
both, a flow that meets the surface crosses it where both have one sign. Where they lead towards each other, $L_- > 0 > L_+$, it
slides along the surface by the convex combination of the fields that keeps $h$,

$$f_0 = f_- + a\,(f_+ - f_-), \qquad a = \frac{L_-}{L_- - L_+},$$

until $a$ reaches 0 or 1: there $f_0$ is $f_-$ or $f_+$, which is tangent to the surface, and the flow leaves to that side. Where
they lead away from each other, $L_- < 0 < L_+$, the solution is not unique: it may leave to either side at any time.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .results import RESULTS
from .system import Guard, HybridSystem, Mode, Reset, Transition, unchanged, VectorField
from .types import Flag, Params, Scalar, State, Time


def filippov(
    fields: Mapping[int, VectorField],
    surface: Guard,
    coordinates: tuple[str, ...],
    *,
    units: tuple[str, ...] = (),
    time_unit: str = "",
    enter: Reset = unchanged,
    leave: Reset = unchanged,
) -> HybridSystem:
    r"""The hybrid system of a flow whose field jumps at a surface, such as that of a relay or of dry friction.

    $\dot x = f_+$ where $h(t, x, p) > 0$, $f_-$ where $h < 0$; on $h = 0$ crossing, or sliding by Filippov's convex combination,
    $f_0 = f_- + a(f_+ - f_-)$ with $D_th + D_xh\,f_0 = 0$.

    **Arguments:** `fields`: `{1: above, -1: below}`, the vector fields $f_\pm(t, x, p)$ by the sign of $h$. `surface`:
    $h(t, x, p)$, shape `()`. `coordinates`, `units`, `time_unit`: as of `Mode` and `HybridSystem`. `enter`, `leave`: resets where
    sliding begins and ends; by default nothing changes.

    **Returns:** a `HybridSystem` with the modes `"+"`, `"-"` and, sliding, `"0"`. Every run is that of `simulate`, and every map,
    orbit and derivative that of the system: the saltation matrix where sliding begins projects onto the surface, so that an
    orbit that slides has a multiplier 0; where sliding ends, it is the identity. The modes have domains: a start on the
    wrong side is `outside_domain`; a start on the surface where both fields lead away from it is `not_unique`. `ValueError`
    for fields that are not those of the two signs.

    **Example:**

    >>> relay = hj.filippov(
    ...     {1: lambda t, x, p: jnp.stack([x[1], -p]), -1: lambda t, x, p: jnp.stack([x[1], p])},
    ...     lambda t, x, p: x[0] + 0.3 * x[1],
    ...     ("x", "v"),
    ... )
    >>> run = hj.simulate(relay, jnp.array([1.0, 0.0]), jnp.array(1.0), mode="+", t1=4.0)
    >>> print(run.mode_names, run.end_times[:3].round(6))
    ('+', '-', '+', '0') [1.145683 2.83705  3.328416]

    Source: Filippov (1988), *Differential Equations with Discontinuous Righthand Sides*, ch. 2; Leine, Nijmeijer (2004),
    *Dynamics and Bifurcations of Non-Smooth Mechanical Systems*, for the saltation matrices.
    """
    if set(fields) != {1, -1}:
        raise ValueError(f"filippov: fields must be {{1: above, -1: below}}; got the keys {sorted(map(repr, fields))}.")
    above, below = fields[1], fields[-1]
    sliding = eqx.Partial(_slide, surface, below, above)
    of = lambda sign, field: Mode(field, coordinates, Side(surface, below, above, sign), units)
    towards = lambda sign: eqx.Partial(_height, surface, sign)
    # The rate of the surface's function along a field, of that sign.
    push = lambda field, sign: eqx.Partial(_push, surface, field, sign)
    held = lambda field, sign: eqx.Partial(_pushed, surface, field, sign)
    crosses = lambda field, sign: eqx.Partial(_passed, surface, field, sign)
    return HybridSystem(
        {"+": of(1, above), "0": of(0, sliding), "-": of(-1, below)},
        (
            Transition("+", "0", towards(1), enter, armed=held(below, 1)),
            Transition("+", "-", towards(1), unchanged, armed=crosses(below, 1)),
            Transition("-", "0", towards(-1), enter, armed=held(above, -1)),
            Transition("-", "+", towards(-1), unchanged, armed=crosses(above, -1)),
            Transition("0", "-", push(below, 1), leave),
            Transition("0", "+", push(above, -1), leave),
        ),
        time_unit,
    )


def _height(surface: Guard, sign: int, t: Time, x: State, params: Params) -> Scalar:
    return sign * jnp.asarray(surface(t, x, params), x.dtype)


def _push(surface: Guard, field: VectorField, sign: int, t: Time, x: State, params: Params) -> Scalar:
    """The rate of the surface's function along a field."""
    along = jnp.ones_like(t), field(t, x, params)
    return sign * jax.jvp(lambda t, x: jnp.asarray(surface(t, x, params), x.dtype), (t, x), along)[1]


def _pushed(surface: Guard, field: VectorField, sign: int, t: Time, x: State, params: Params) -> Flag:
    return _push(surface, field, sign, t, x, params) > 0


def _passed(surface: Guard, field: VectorField, sign: int, t: Time, x: State, params: Params) -> Flag:
    return ~_pushed(surface, field, sign, t, x, params)


def _slide(surface: Guard, below: VectorField, above: VectorField, t: Time, x: State, params: Params) -> State:
    """The sliding flow."""
    rise, fall = (_push(surface, field, 1, t, x, params) for field in (below, above))
    apart = jnp.where(rise == fall, 1, rise - fall)
    first, second = below(t, x, params), above(t, x, params)
    return first + rise / apart * (second - first)


class Side(eqx.Module):
    """The domain of a mode: of a side, where the surface's function has its `sign`; of the sliding flow, sign 0, where both
    fields lead to the surface. No run begins on the surface where both lead away."""

    surface: Callable
    below: Callable
    above: Callable
    sign: int = eqx.field(static=True)
    code = RESULTS.not_unique

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        if self.sign:
            return _height(self.surface, self.sign, t, x, params)[None]
        push = lambda field, sign: _push(self.surface, field, sign, t, x, params)
        return jnp.stack([push(self.below, 1), push(self.above, -1)])

    @property
    def guarded(self) -> int:
        """Every limit is left only where a guard has fallen."""
        return 2 - abs(self.sign)

    def admits(self, t: Time, x: State, params: Params, tolerances: tuple) -> Flag:
        rtol, atol = tolerances
        value, slope = jax.value_and_grad(lambda x: _height(self.surface, 1, t, x, params))(x)
        near = jnp.abs(value) <= 8 * jnp.abs(slope) @ (atol + rtol * jnp.abs(x))
        push = lambda field: _push(self.surface, field, 1, t, x, params)
        return ~(near & (push(self.below) < 0) & (push(self.above) > 0))
