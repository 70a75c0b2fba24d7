r"""Filippov systems: a flow whose field jumps at one or two surfaces, which it crosses or along which it slides.

On the side $h > 0$ of the surface the flow is $f_+$, on the other $f_-$. With the rates $L_\pm = D_th + D_xh\,f_\pm$ of $h$ along
both, a flow that meets the surface crosses it where both have one sign. Where they lead towards each other, $L_- > 0 > L_+$, it
slides along the surface by the convex combination of the fields that keeps $h$,

$$f_0 = f_- + a\,(f_+ - f_-), \qquad a = \frac{L_-}{L_- - L_+},$$

until $a$ reaches 0 or 1: there $f_0$ is $f_-$ or $f_+$, which is tangent to the surface, and the flow leaves to that side. Where
they lead away from each other, $L_- < 0 < L_+$, the solution is not unique: it may leave to either side at any time.

Two surfaces that cross have four sides with a field each. Along their intersection the flow slides by the bilinear combination
$\sum w_{ij} f_{ij}$ that keeps both functions, $w_{ij} = w_1^i w_2^j$ with $w_k^+ + w_k^- = 1$. It leaves where a weight reaches
0, and slides along one surface alone.
"""

import itertools
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .results import choose, RESULTS
from .system import Guard, HybridSystem, Mode, Reset, Transition, unchanged, VectorField
from .types import Flag, Matrix, Params, Scalar, State, Time

# For each surface on which side of it a flow is: 1 or -1, or 0 on the surface.
Signs = tuple[int, ...]


def filippov(
    fields: Mapping[int, VectorField] | Mapping[tuple[int, int], VectorField],
    surface: Guard | tuple[Guard, Guard],
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
    $h(t, x, p)$, shape `()`. For two surfaces that cross a tuple of both functions, and `{(1, 1): ..., (1, -1): ..., (-1, 1):
    ..., (-1, -1): ...}`. `coordinates`, `units`, `time_unit`: as of `Mode` and `HybridSystem`. `enter`, `leave`: resets where
    sliding along a surface begins and ends; by default nothing changes.

    **Returns:** a `HybridSystem` with the modes `"+"`, `"-"` and, sliding, `"0"`; of two surfaces `"++"`, ..., `"0+"`, ..., and
    `"00"`, sliding along both. Every run is that of `simulate`, and every map, orbit and derivative that of the system: the
    saltation matrix where sliding begins projects onto the surface, so that an orbit that slides has a multiplier 0; where
    sliding ends, it is the identity. The modes have domains: a start on the wrong side is `outside_domain`; a start on a
    surface where both fields lead away from it is `not_unique`. A flow that slides along one surface onto the other, where none
    of the ways that follow is the only one, ends as `outside_domain`. `ValueError` for fields that are not those of all signs.

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
    *Dynamics and Bifurcations of Non-Smooth Mechanical Systems*, for the saltation matrices; Alexander, Seidman (1998), *Sliding
    modes in intersecting switching surfaces, I: blending*, Houston J. Math. 24, for the bilinear combination.
    """
    surfaces = surface if isinstance(surface, tuple) else (surface,)
    given = {key if isinstance(key, tuple) else (key,): field for key, field in fields.items()}
    count = len(surfaces)
    if count not in (1, 2):
        raise ValueError(f"filippov: surface must be one function or a tuple of two, not of {count}.")
    if set(given) != set(itertools.product((1, -1), repeat=count)):
        keys = "{1: above, -1: below}" if count == 1 else "of the keys (1, 1), (1, -1), (-1, 1) and (-1, -1)"
        raise ValueError(f"filippov: fields must be {keys}; got the keys {list(fields)}.")
    flows = Flows(surfaces, given)
    every = list(itertools.product((1, 0, -1), repeat=count))
    modes = {_name(s): Mode(flows.field(s), coordinates, Side(flows, s), units) for s in every}
    ways = [way for s in every for way in _ways_from(flows, s, enter, leave)]
    return HybridSystem(modes, tuple(ways), time_unit)


def _name(signs: Signs) -> str:
    return "".join("-0+"[sign + 1] for sign in signs)


def _set(signs: Signs, k: int, sign: int) -> Signs:
    return (*signs[:k], sign, *signs[k + 1 :])


class Flows(eqx.Module):
    """The functions $h_k$ of the surfaces, and the fields of all sides."""

    surfaces: tuple[Guard, ...]
    sides: Mapping[Signs, VectorField]

    def field(self, signs: Signs) -> VectorField:
        """The vector field of a side, or the sliding flow where signs are 0."""
        on = [k for k, sign in enumerate(signs) if not sign]
        if not on:
            return self.sides[signs]
        if len(on) == 2:
            return eqx.Partial(_slide_along_both, self)
        return eqx.Partial(_slide, self.surfaces[on[0]], *(self.field(_set(signs, on[0], side)) for side in (-1, 1)))

    def push(self, k: int, signs: Signs, sense: int = 1) -> Guard:
        """The rate of the function of surface `k` along the field of these signs, times `sense`."""
        return eqx.Partial(_push, self.surfaces[k], self.field(signs), sense)

    def height(self, k: int, sense: int) -> Guard:
        return eqx.Partial(_height, self.surfaces[k], sense)


def _ways_from(flows: Flows, signs: Signs, enter: Reset, leave: Reset) -> list[Transition]:
    """The transitions out of the mode of these signs."""
    here, on = _name(signs), [k for k, sign in enumerate(signs) if not sign]
    way = lambda target, guard, reset, *armed: Transition(
        here, _name(target), guard, reset, armed=eqx.Partial(_all, armed) if armed else None
    )
    found = []
    if len(on) == 2:
        for k, side in itertools.product(on, (-1, 1)):
            found.append(way(_set(signs, k, side), eqx.Partial(_weight, flows, k, -side), leave))
    elif on:
        (k,) = on
        for side in (-1, 1):
            # The field of that side becomes tangent to the surface.
            found.append(way(_set(signs, k, side), flows.push(k, _set(signs, k, side), -side), leave))
    for k, sign in enumerate(signs):
        if not sign:
            continue
        over, meets = _set(signs, k, -sign), flows.height(k, sign)
        back = flows.push(k, over, sign)
        if not on:
            found.append(way(_set(signs, k, 0), meets, enter, (back, True)))
            found.append(way(over, meets, unchanged, (back, False)))
            continue
        # Sliding along surface `j`, the flow meets surface `k`. Beyond it the flow slides on along `j`, or is led off it.
        (j,) = on
        rise, fall = flows.push(j, _set(over, j, -1), 1), flows.push(j, _set(over, j, 1), -1)
        on_along = ((rise, True), (fall, True))
        found.append(way(_set(signs, k, 0), meets, enter, *on_along, (back, True)))
        found.append(way(over, meets, unchanged, *on_along, (back, False)))
        for side in (-1, 1):
            off = ((rise, side > 0), (fall, side < 0))
            beyond = _set(over, j, side)
            again = flows.push(k, beyond, sign)
            found.append(way(beyond, meets, leave, *off, (again, False)))
            held = flows.push(k, _set(beyond, k, sign), -sign)
            found.append(way(_set(beyond, k, 0), meets, unchanged, *off, (again, True), (held, True)))
    return found


def _all(conditions: tuple[tuple[Guard, bool], ...], t: Time, x: State, params: Params) -> Flag:
    """Whether each function is positive, or is not, as it should be."""
    flags = [(fn(t, x, params) > 0) == wanted for fn, wanted in conditions]
    return jnp.all(jnp.stack(flags))


def border_of(way: Transition) -> Guard | None:
    """The function whose sign decides, where the flow meets one surface, whether it slides: the rate of the surface's function
    along the field beyond, towards the side before. `None` for other transitions."""
    partial = isinstance(way.armed, eqx.Partial) and way.armed.func is _all
    conditions = way.armed.args[0] if partial else ()  # pyright: ignore[reportOptionalMemberAccess]
    return conditions[0][0] if len(conditions) == 1 else None


def is_tangency(way: Transition) -> bool:
    """Whether sliding along a surface ends with this transition."""
    return isinstance(way.guard, eqx.Partial) and way.guard.func is _push


def leads_in(border: Guard, t: Time, x: State, params: Params) -> Flag:
    """Whether the field beyond the surface, tangent to it, leads to where the flow slides: the rate of `border_of` along it."""
    _, field, _ = border.args  # pyright: ignore[reportFunctionMemberAccess]
    along = jnp.ones_like(t), field(t, x, params)
    return jax.jvp(lambda t, x: border(t, x, params), (t, x), along)[1] > 0


def _height(surface: Guard, sense: int, t: Time, x: State, params: Params) -> Scalar:
    return sense * jnp.asarray(surface(t, x, params), x.dtype)


def _push(surface: Guard, field: VectorField, sense: int, t: Time, x: State, params: Params) -> Scalar:
    """The rate of the surface's function along a field, times `sense`."""
    along = jnp.ones_like(t), field(t, x, params)
    return sense * jax.jvp(lambda t, x: jnp.asarray(surface(t, x, params), x.dtype), (t, x), along)[1]


def _slide(surface: Guard, below: VectorField, above: VectorField, t: Time, x: State, params: Params) -> State:
    """The flow along a surface."""
    rise, fall = (_push(surface, field, 1, t, x, params) for field in (below, above))
    apart = jnp.where(rise == fall, 1, rise - fall)
    first, second = below(t, x, params), above(t, x, params)
    return first + rise / apart * (second - first)


def _weights(flows: Flows, t: Time, x: State, params: Params) -> tuple[Scalar, Scalar]:
    """The weights of the positive sides of both surfaces along their intersection: of the two zeros of the bilinear equations the
    one nearer to equal weights."""
    rate = lambda k, i, j: _push(flows.surfaces[k], flows.sides[i, j], 1, t, x, params)
    c, d, e, g = zip(*(_bilinear(*(rate(k, i, j) for i in (-1, 1) for j in (-1, 1))) for k in (0, 1)), strict=True)
    square = d[1] * g[0] - g[1] * d[0]
    linear = c[1] * g[0] + d[1] * e[0] - e[1] * d[0] - g[1] * c[0]
    rest = c[1] * e[0] - e[1] * c[0]
    root = jnp.sqrt(jnp.maximum(linear**2 - 4 * square * rest, 0))
    half = -(linear + jnp.where(linear < 0, -root, root)) / 2

    def second(first):
        below = e[0] + g[0] * first
        other = e[1] + g[1] * first
        use = jnp.abs(below) >= jnp.abs(other)
        return -jnp.where(use, c[0] + d[0] * first, c[1] + d[1] * first) / _nonzero(jnp.where(use, below, other))

    far = jnp.full_like(half, 1e6)
    firsts = [
        jnp.where(half == 0, far, rest / _nonzero(half)), jnp.where(square == 0, far, half / _nonzero(square))
    ]  # fmt: skip
    pairs = [(first, second(first)) for first in firsts]
    off = [jnp.maximum(jnp.abs(a - 0.5), jnp.abs(b - 0.5)) for a, b in pairs]
    nearer = off[0] <= off[1]
    return jnp.where(nearer, pairs[0][0], pairs[1][0]), jnp.where(nearer, pairs[0][1], pairs[1][1])


def _nonzero(value: Scalar) -> Scalar:
    return jnp.where(value == 0, 1, value)


def _bilinear(mm: Scalar, mp: Scalar, pm: Scalar, pp: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The coefficients of $c + da + eb + gab$ with these values at the corners of the unit square."""
    return mm, pm - mm, mp - mm, pp - pm - mp + mm


def _weight(flows: Flows, k: int, sense: int, t: Time, x: State, params: Params) -> Scalar:
    """The weight of one side of a surface: of the positive side for `sense` 1."""
    weight = _weights(flows, t, x, params)[k]
    return weight if sense > 0 else 1 - weight


def _slide_along_both(flows: Flows, t: Time, x: State, params: Params) -> State:
    """The flow along the intersection."""
    first, second = _weights(flows, t, x, params)
    share = {-1: lambda w: 1 - w, 1: lambda w: w}
    parts = [share[i](first) * share[j](second) * flows.sides[i, j](t, x, params) for i, j in sorted(flows.sides)]
    return sum(parts[1:], parts[0])


class Side(eqx.Module):
    """The domain of a mode: the side of each surface, and for a surface along which the mode slides, where it is held there."""

    flows: Flows
    signs: Signs = eqx.field(static=True)

    def _limits(self) -> list[Guard]:
        on = [k for k, sign in enumerate(self.signs) if not sign]
        sides = [self.flows.height(k, sign) for k, sign in enumerate(self.signs) if sign]
        if len(on) == 2:
            return [eqx.Partial(_weight, self.flows, k, sense) for k in on for sense in (1, -1)]
        return sides + [self.flows.push(k, _set(self.signs, k, side), -side) for k in on for side in (-1, 1)]

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        return jnp.stack([limit(t, x, params) for limit in self._limits()])

    @property
    def guarded(self) -> int:
        """Every limit is left only where a guard has fallen."""
        return len(self._limits())

    def led_back(self, t: Time, x: State, params: Params) -> Matrix:
        r"""The projection $I - (f_+ - f_-)\,D_xh / D_xh(f_+ - f_-)$ onto the surface along which the mode slides, by which the
        flow leads back what is beside it, at once; the identity for a mode that slides along none, or along two."""
        if self.signs.count(0) != 1:
            return jnp.eye(x.size, dtype=x.dtype)
        (surface,) = (each for each, sign in zip(self.flows.surfaces, self.signs, strict=True) if not sign)
        above, below = (self.flows.sides[tuple(sign or other for sign in self.signs)] for other in (1, -1))
        normal = jax.grad(lambda x: _height(surface, 1, t, x, params))(x)
        jump = above(t, x, params) - below(t, x, params)
        return jnp.eye(x.size, dtype=x.dtype) - jnp.outer(jump, normal) / _nonzero(normal @ jump)

    def refusal(self, t: Time, x: State, params: Params, tolerances: tuple) -> RESULTS:
        """`not_unique` on a surface from which both flows lead away; `outside_domain` off one along which the mode slides."""
        rtol, atol = tolerances
        off, apart = [], []
        for k, (sign, surface) in enumerate(zip(self.signs, self.flows.surfaces, strict=True)):
            value, slope = jax.value_and_grad(lambda x, h=surface: _height(h, 1, t, x, params))(x)
            near = jnp.abs(value) <= 8 * jnp.abs(slope) @ (atol + rtol * jnp.abs(x))
            away = [self.flows.push(k, _set(self.signs, k, side), side)(t, x, params) > 0 for side in (-1, 1)]
            apart.append(near & away[0] & away[1])
            off.append(~near & (sign == 0))
        any_of = lambda flags: jnp.any(jnp.stack(flags))
        code = choose(any_of(off), RESULTS.outside_domain, RESULTS.successful)
        return choose(any_of(apart), RESULTS.not_unique, code)
