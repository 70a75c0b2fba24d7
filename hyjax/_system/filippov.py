r"""Filippov systems: a flow whose field jumps at one or two surfaces, which it crosses or along which it slides.

On the side $h > 0$ of the surface the flow is $f_+$, on the other $f_-$. With the rates $L_\pm = D_th + D_xh\,f_\pm$ of $h$ along
both, a flow that meets the surface crosses it where both have one sign. Where they lead towards each other, $L_- > 0 > L_+$, it
slides along the surface by the convex combination of the fields that keeps $h$,

$$f_0 = f_- + a\,(f_+ - f_-), \qquad a = \frac{L_-}{L_- - L_+},$$

until $a$ reaches 0 or 1: there $f_0$ is $f_-$ or $f_+$, which is tangent to the surface, and the flow leaves to that side. Where
they lead away from each other, $L_- < 0 < L_+$, the solution is not unique: it may leave to either side at any time.

Two surfaces that cross have four sides with a field each. Along their intersection the flow slides by the bilinear combination
$\sum w_{ij} f_{ij}$ that keeps both functions, $w_{ij} = w_1^i w_2^j$ with $w_k^+ + w_k^- = 1$. It leaves where a weight reaches
0, and slides along one surface alone. Where the weights are no longer real no flow keeps both functions, and the run ends.
"""

import functools as ft
import itertools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .per_mode import number, PerMode
from .results import choose, RESULTS
from .system import Guard, HybridSystem, Mode, Reset, texts_of, Transition, unchanged, VectorField, with_rest
from .types import as_array, Flag, Matrix, Params, require_function, require_kind, Scalar, State, Time

# For each surface on which side of it a flow is: 1 or -1, or 0 on the surface.
Signs = tuple[int, ...]


def filippov(
    fields: Mapping[int, VectorField] | Mapping[tuple[int, int], VectorField],
    surface: Guard | tuple[Guard, Guard],
    coordinates: tuple[str, ...],
    *,
    units: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
    time_unit: str = "",
    enter: Reset = unchanged,
    leave: Reset = unchanged,
) -> HybridSystem:
    r"""The hybrid system of a flow whose field jumps at a surface, such as that of a relay or of dry friction.

    $\dot x = f_+$ where $h(t, x, p) > 0$, $f_-$ where $h < 0$; on $h = 0$ crossing, or sliding by Filippov's convex combination,
    $f_0 = f_- + a(f_+ - f_-)$ with $D_th + D_xh\,f_0 = 0$.

    **Arguments:** `fields`: `{1: above, -1: below}`, the vector fields $f_\pm(t, x, p)$ by the sign of $h$. `surface`:
    $h(t, x, p)$, shape `()`. For two surfaces that cross a tuple of both functions, and `{(1, 1): ..., (1, -1): ..., (-1, 1):
    ..., (-1, -1): ...}`. `coordinates`, `units`, `held`, `time_unit`: as of `Mode` and `HybridSystem`; fields have no rates for
    what is held. `enter`, `leave`: resets where sliding along a surface begins and ends; by default nothing changes. Where
    sliding along one of two surfaces gives way to sliding along the other, both act, `leave` first.

    **Returns:** a `HybridSystem` with the modes `"+"`, `"-"` and, sliding, `"0"`; of two surfaces `"++"`, ..., `"0+"`, ..., and
    `"00"`, sliding along both. Every run is that of `simulate`, and every map, orbit and derivative that of the system: the
    saltation matrix where sliding begins projects onto the surface, so that an orbit that slides has a multiplier 0; where
    sliding ends, it is the identity. The modes have domains: a start on the wrong side is `outside_domain`; a start on a
    surface where both fields lead away from it is `not_unique`. A flow that slides along one surface onto the other, where none
    of the ways that follow is the only one, ends as `outside_domain`, as does sliding along both where no combination of the
    fields keeps it there. `ValueError` for fields that are not those of all signs.

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
    require_kind(fields, Mapping, "filippov", "fields", "a dictionary, as {1: above, -1: below}")
    surfaces = surface if isinstance(surface, tuple) else (surface,)
    given = {key if isinstance(key, tuple) else (key,): field for key, field in fields.items()}
    count = len(surfaces)
    if count not in (1, 2) or not all(map(callable, surfaces)):
        raise ValueError(f"filippov: surface={surface!r} must be one function h(t, x, params), or a tuple of two.")
    if set(given) != set(itertools.product((1, -1), repeat=count)):
        keys = "{1: above, -1: below}" if count == 1 else "of the keys (1, 1), (1, -1), (-1, 1) and (-1, -1)"
        raise ValueError(f"filippov: fields must be {keys}; got the keys {list(fields)}.")
    for key, field in fields.items():
        require_function(field, "t, x, params", f"filippov: the field of {key}")
    for each in surfaces:
        require_function(each, "t, x, params", "filippov: surface")
    names, held = texts_of(coordinates), texts_of(held)
    if held:
        given = {key: eqx.Partial(with_rest, field, len(held)) for key, field in given.items()}
    flows = Flows(surfaces, given)
    every = list(itertools.product((1, 0, -1), repeat=count))
    mode = lambda s: Mode(
        eqx.Partial(_slide, flows, PerMode(s)), (*names, *held), _side(flows, s), units, held, _whole=bool(held)
    )
    modes = {_name(s): mode(s) for s in every}
    ways = [way for s in every for way in _ways_from(flows, s, enter, leave)]
    return HybridSystem(modes, tuple(ways), time_unit)


def _name(signs: Signs) -> str:
    return "".join("-0+"[sign + 1] for sign in signs)


def _set(signs: Signs, k: int, sign: int) -> Signs:
    return (*signs[:k], sign, *signs[k + 1 :])


# A number out of `Flows.numbers`, its sense and what is added: together a guard.
Pick = tuple[int, int, int]
# What never falls, and is never positive.
NEVER, NOTHING = (0, 0, 1), (0, 0, 0)
# Whether the weights along both surfaces are real: their discriminant.
REAL = (16, 1, 0)


class Flows(eqx.Module):
    """The functions $h_k$ of the surfaces, and the fields of all sides.

    Modes and transitions differ in numbers only (`PerMode`): all guards, flags and limits are picked out of `numbers`, so that
    they, and the fields, are each compiled as one function.
    """

    surfaces: tuple[Guard, ...]
    sides: Mapping[Signs, VectorField]

    def parts(self, signs: Signs | Array | None, t: Time, x: State, params: Params) -> tuple[Array, Array, Array]:
        """The functions $h_k$; the fields, shape `(2, ..., n)`, those of the negative sides first; and the rates of all functions
        along them, shape `(surfaces, 2, ...)`. Of the sides to which a mode of these `signs` does not belong, the fields are
        those of constant inputs, or zero where the signs are known; `None` for all sides."""
        count = len(self.surfaces)

        def along(side: Signs) -> State:
            if isinstance(signs, tuple):
                needed = all(sign in (0, own) for sign, own in zip(signs, side, strict=True))
                return self.sides[side](t, x, params) if needed else jnp.zeros_like(x)
            inputs = t, x, params
            if signs is not None:
                # In reverse mode an infinite derivative of a field beyond its side would be multiplied by zero.
                used = jnp.all((signs == 0) | (signs == jnp.array(side)))
                freeze = lambda leaf: jnp.where(used, leaf, stop_gradient(leaf)) if eqx.is_inexact_array(leaf) else leaf
                inputs = jax.tree.map(freeze, inputs)
            return jnp.asarray(self.sides[side](*inputs), x.dtype)

        fields = jnp.stack([along(side) for side in itertools.product((-1, 1), repeat=count)])
        heights = lambda t, x: jnp.stack(
            [as_array(h(t, x, params), (), x.dtype, "filippov: surface") for h in self.surfaces]
        )
        rate = lambda field: jax.jvp(heights, (t, x), (jnp.ones_like(t), field))[1]
        shape = (2,) * count
        return heights(t, x), fields.reshape(*shape, -1), jax.vmap(rate, out_axes=1)(fields).reshape(count, *shape)

    @ft.partial(eqx.filter_jit, inline=True)  # pyright: ignore  # traced once, for all guards
    def numbers(self, signs: Signs | Array | None, t: Time, x: State, params: Params) -> Array:
        """The functions of the surfaces, and their rates along the fields; of two surfaces also the rates of each along the
        flows that slide along the other one, and the weights of the positive sides along both, with their discriminant."""
        heights, _, rates = self.parts(signs, t, x, params)
        found = [heights, rates.ravel()]
        if len(heights) == 2:
            # Along the first surface at both sides of the second, and along the second.
            along = _between(rates[1, 0], rates[1, 1], _share(rates[0, 0], rates[0, 1]))
            found += [along, _between(rates[0, :, 0], rates[0, :, 1], _share(rates[1, :, 0], rates[1, :, 1]))]
            found += [jnp.stack(_weights(rates))]
        return jnp.concatenate(found)

    def push(self, k: int, signs: Signs, sense: int = 1) -> Pick:
        """The rate of the function of surface `k` along the field of these signs, times `sense`."""
        count, places = len(signs), [(sign + 1) // 2 for sign in signs]
        if 0 in signs:
            return 10 + 2 * signs.index(0) + places[k], sense, 0
        place = sum(each << (count - 1 - i) for i, each in enumerate(places))
        return count + (k << count) + place, sense, 0

    def limits(self, signs: Signs) -> list[Pick]:
        """The numbers that are positive in the mode of these signs: the sides of surfaces, and what holds it where it slides."""
        on = [k for k, sign in enumerate(signs) if not sign]
        if len(on) == 2:
            return [pick for k in on for pick in ((14 + k, 1, 0), (14 + k, -1, 1))]
        sides = [(k, sign, 0) for k, sign in enumerate(signs) if sign]
        return sides + [self.push(k, _set(signs, k, side), -side) for k in on for side in (-1, 1)]


def _share(rise: Array, fall: Array) -> Array:
    """The share of the positive side in the flow along a surface, from the rates along both fields."""
    return rise / jnp.where(rise == fall, 1, rise - fall)


def _between(low: Array, high: Array, share: Array) -> Array:
    return low + share * (high - low)


def _slide(flows: Flows, signs: PerMode | Array, t: Time, x: State, params: Params) -> State:
    """The vector field of a side, or the sliding flow where signs are 0."""
    known = signs.value if isinstance(signs, PerMode) else None
    if known is not None and all(known):
        return flows.sides[known](t, x, params)
    signs = number(signs)
    _, fields, rates = flows.parts(signs if known is None else known, t, x, params)
    for sign, share in reversed([*zip(signs, _shares(signs, rates), strict=True)]):
        fields = _mixed(fields[..., 0, :], fields[..., 1, :], sign, share)
    return fields


def _mixed(low: Array, high: Array, sign: Array, share: Scalar) -> Array:
    """The field on the side of a surface that the sign names; where it is 0, the flow along the surface."""
    return jnp.where(sign == 0, _between(low, high, share), jnp.where(sign < 0, low, high))


def _shares(signs: Array, rates: Array) -> list[Scalar]:
    """The weight of the positive side of each surface in the sliding flow."""
    if len(rates) == 1:
        return [_share(*rates[0])]
    # Along one surface, on the side of the other.
    first = _share(*(jnp.where(signs[1] > 0, each[1], each[0]) for each in rates[0]))
    second = _share(*jnp.where(signs[0] > 0, rates[1, 1], rates[1, 0]))
    both = jnp.all(signs == 0)
    return [jnp.where(both, *pair) for pair in zip(_weights(rates)[:2], (first, second), strict=True)]


class Picked(eqx.Module):
    """A guard, picked out of `Flows.numbers`; or several, as the flag whether the first are positive and the others are not."""

    flows: Flows
    signs: PerMode | Array | None
    picks: PerMode | Array

    def __call__(self, t: Time, x: State, params: Params) -> Array:
        known = self.signs.value if isinstance(self.signs, PerMode) else self.signs
        picks: Any = np.array(self.picks.value) if isinstance(self.picks, PerMode) else self.picks
        place, sense, more = (picks[..., i] for i in range(3))
        numbers = self.flows.numbers(known, t, x, params)  # pyright: ignore
        return sense.astype(x.dtype) * numbers[place] + more.astype(x.dtype)


def _as_wanted(picked: Picked, wanted: PerMode | Array, t: Time, x: State, params: Params) -> Flag:
    """Whether each of the numbers picked is positive, or is not, as it should be."""
    return jnp.all((picked(t, x, params) > 0) == number(wanted))


def _side(flows: Flows, signs: Signs) -> "Side":
    limits, surfaces = flows.limits(signs), range(len(signs))
    away = tuple(tuple(flows.push(k, _set(signs, k, side), side) for side in (-1, 1)) for k in surfaces)
    # Last the limit that is not guarded.
    last = () if len(signs) == 1 else (NEVER if any(signs) else REAL,)
    padded = (*limits, *[NEVER] * (2 * len(signs) - len(limits)), *last)
    return Side(flows, PerMode(signs), PerMode(padded), PerMode(away))


def _ways_from(flows: Flows, signs: Signs, enter: Reset, leave: Reset) -> list[Transition]:
    """The transitions out of the mode of these signs."""
    here, on, own = _name(signs), [k for k, sign in enumerate(signs) if not sign], PerMode(signs)
    over_to = enter if leave is unchanged else leave if enter is unchanged else eqx.Partial(_both, leave, enter)

    def way(target: Signs, guard: Pick, reset: Reset, *conditions: tuple[Pick, bool]) -> Transition:
        padded = [*conditions, *[(NOTHING, False)] * (4 - len(conditions))]
        picks, wanted = zip(*padded, strict=True)
        armed = eqx.Partial(_as_wanted, Picked(flows, None, PerMode(picks)), PerMode(wanted))
        guarded = Picked(flows, own, PerMode(guard))
        return Transition(here, _name(target), guarded, reset, armed=armed, _lands=reset is unchanged)

    found = []
    for limit, (k, side) in zip(
        flows.limits(signs)[len(signs) - len(on) :], itertools.product(on, (-1, 1)), strict=True
    ):
        # A weight reaches 0, or the field of that side becomes tangent to the surface.
        found.append(way(_set(signs, k, side), limit, leave))
    for k, sign in enumerate(signs):
        if not sign:
            continue
        over, meets = _set(signs, k, -sign), (k, sign, 0)
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
            found.append(way(_set(beyond, k, 0), meets, over_to, *off, (again, True), (held, True)))
    return found


def _both(first: Reset, then: Reset, t: Time, x: State, params: Params) -> State:
    return then(t, first(t, x, params), params)


def border_of(way: Transition) -> Guard | None:
    """The function whose sign decides, where the flow meets a surface, whether it slides: the rate of the surface's function
    along the field beyond, towards the side before. `None` for other transitions."""
    guard = way.guard
    if not isinstance(guard, Picked) or 0 in (signs := guard.signs.value):  # pyright: ignore
        return None
    k, sign, _ = guard.picks.value  # pyright: ignore
    return eqx.Partial(_push, guard.flows.surfaces[k], guard.flows.sides[_set(signs, k, -sign)], sign)


def is_tangency(way: Transition) -> bool:
    """Whether sliding along one surface ends with this transition."""
    guard = way.guard
    if not isinstance(guard, Picked):
        return False
    signs, (place, _, _) = guard.signs.value, guard.picks.value  # pyright: ignore
    return signs.count(0) == 1 and place >= len(signs)


def leads_in(border: Guard, t: Time, x: State, params: Params) -> Flag:
    """Whether the field beyond the surface, tangent to it, leads to where the flow slides: the rate of `border_of` along it."""
    _, field, _ = border.args  # pyright: ignore[reportFunctionMemberAccess]
    along = jnp.ones_like(t), field(t, x, params)
    return jax.jvp(lambda t, x: border(t, x, params), (t, x), along)[1] > 0


def _push(surface: Guard, field: VectorField, sense: int, t: Time, x: State, params: Params) -> Scalar:
    """The rate of the surface's function along a field, times `sense`."""
    along = jnp.ones_like(t), field(t, x, params)
    return sense * jax.jvp(lambda t, x: jnp.asarray(surface(t, x, params), x.dtype), (t, x), along)[1]


def _weights(rates: Float[Array, "2 2 2"]) -> tuple[Scalar, Scalar, Scalar]:
    """The weights of the positive sides of both surfaces along their intersection: of the two zeros of the bilinear equations the
    one nearer to equal weights. Last the discriminant, negative where there is none."""
    c, d, e, g = zip(*(_bilinear(*each.ravel()) for each in rates), strict=True)
    square = d[1] * g[0] - g[1] * d[0]
    linear = c[1] * g[0] + d[1] * e[0] - e[1] * d[0] - g[1] * c[0]
    rest = c[1] * e[0] - e[1] * c[0]
    apart = linear**2 - 4 * square * rest
    root = jnp.where(apart > 0, jnp.sqrt(jnp.where(apart > 0, apart, 1)), 0)
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
    return jnp.where(nearer, pairs[0][0], pairs[1][0]), jnp.where(nearer, pairs[0][1], pairs[1][1]), apart


def _nonzero(value: Scalar) -> Scalar:
    return jnp.where(value == 0, 1, value)


def _bilinear(mm: Scalar, mp: Scalar, pm: Scalar, pp: Scalar) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The coefficients of $c + da + eb + gab$ with these values at the corners of the unit square."""
    return mm, pm - mm, mp - mm, pp - pm - mp + mm


class Side(eqx.Module):
    """The domain of a mode: the side of each surface, and for a surface along which the mode slides, where it is held there.

    **Attributes:** `picks`: `Flows.limits`. `away`: for each surface the rates along the fields of both sides, away from it.
    """

    flows: Flows
    signs: PerMode | Array
    picks: PerMode | Array
    away: PerMode | Array

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        picks = self.picks
        if isinstance(picks, PerMode):
            picks = PerMode(tuple(pick for pick in picks.value if pick != NEVER))
        return Picked(self.flows, self.signs, picks)(t, x, params)

    @property
    def guarded(self) -> int:
        """Every limit is left only where a guard has fallen, except that the weights are real."""
        return sum(pick not in (NEVER, REAL) for pick in self.picks.value)  # pyright: ignore

    def led_back(self, t: Time, x: State, params: Params) -> Matrix:
        r"""The projection $I - J (NJ)^{-1} N$ onto the surfaces along which the mode slides, by which the flow leads back what is
        beside them, at once: the rows of $N$ are the gradients, the columns of $J$ the jumps of the field across each of them."""
        known = self.signs.value if isinstance(self.signs, PerMode) else self.signs
        signs, (_, fields, rates) = number(self.signs), self.flows.parts(known, t, x, params)
        normals = jax.jacfwd(lambda x: jnp.stack([jnp.asarray(h(t, x, params), x.dtype) for h in self.flows.surfaces]))(
            x
        )
        jumps = [fields[1] - fields[0]]
        if len(normals) == 2:
            shares = _shares(signs, rates)
            across = jumps[0], fields[:, 1] - fields[:, 0]
            jumps = [_mixed(across[k][0], across[k][1], signs[1 - k], shares[1 - k]) for k in (0, 1)]
        on = (signs == 0)[:, None]
        normals, jumps = jnp.where(on, normals, 0), jnp.where(on, jnp.stack(jumps), 0)
        matrix = jnp.where(jnp.diag(~on[:, 0]), 1, normals @ jumps.T)
        same, two = ft.partial(jnp.eye, dtype=x.dtype), len(matrix) == 2
        adjugate = jnp.trace(matrix) * same(2) - matrix if two else same(1)
        return same(x.size) - jumps.T @ adjugate @ normals / _nonzero((matrix @ adjugate)[0, 0])

    def refusal(self, t: Time, x: State, params: Params, tolerances: tuple) -> RESULTS:
        """`not_unique` on a surface from which both flows lead away; `outside_domain` off one along which the mode slides, by
        more than a long flow drifts from it: sqrt(eps) and a thousand of the solver's errors, as of contacts."""
        rtol, atol = tolerances
        drift = float(jnp.finfo(x.dtype).eps) ** 0.5 * jnp.abs(x) + 1000 * (atol + rtol * jnp.abs(x))
        off, apart = [], []
        leads = Picked(self.flows, None, self.away)(t, x, params) > 0
        for sign, surface, away in zip(number(self.signs), self.flows.surfaces, leads, strict=True):
            value, slope = jax.value_and_grad(lambda x, h=surface: jnp.asarray(h(t, x, params), x.dtype))(x)
            near = jnp.abs(value) <= 8 * jnp.abs(slope) @ (atol + rtol * jnp.abs(x))
            apart.append(near & away[0] & away[1])
            off.append((sign == 0) & ~(jnp.abs(value) <= jnp.abs(slope) @ drift))
        any_of = lambda flags: jnp.any(jnp.stack(flags))
        code = choose(any_of(off), RESULTS.outside_domain, RESULTS.successful)
        return choose(any_of(apart), RESULTS.not_unique, code)
