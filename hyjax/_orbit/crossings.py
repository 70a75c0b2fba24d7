r"""Where two manifolds meet, curves or a curve and a surface, and the parameters at which two such points merge.

At a **tangency** of the unstable manifold $W$ with the stable one $V$ these have a common point and direction. With the local
polynomials $W_0, V_0$, $n$ passes from one to the other, and multipliers $\mu, \lambda$,

$$S^n(W_0(s / \mu^i)) = V_0(\lambda^{n-i} t), \qquad \partial_s S^n(W_0(s / \mu^i)) \parallel \partial_t V_0(\lambda^{n-i} t),$$

in a plane three equations for $s$, $t$ and a parameter. The polynomials have their own, $S(W_0(s)) = W_0(\mu s)$ at more points
than they have coefficients. The points from there to $V_0$ are unknowns too, as in multiple shooting, since passes near a stable
manifold multiply what is off it. From the derivatives by all of them, by automatic differentiation, all but three are eliminated,
and Newton's method solves for the rest. No map is inverted.

Source: Beyn, Kleinkauf (1997), *The numerical computation of homoclinic orbits for maps*, SIAM J. Numer. Anal. 34, 1207-1236.
"""

import dataclasses
import functools as ft
from typing import Any, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from .._flow.integrator import Integrator
from .._numerics.eager import long_run, short_run
from .._numerics.linearize import with_columns
from .._results.failure import raise_failure
from .._system.results import numbered_code, RESULTS
from .._system.types import Scalar
from .._system.where import free_leaves, leaf_names, Where, with_leaves
from .mesh import beyond
from .problem import DIVERGED, in_lanes, Lap, SUCCESSFUL

if TYPE_CHECKING:
    from .manifold import Manifold

# Coefficients of a local polynomial.
DEGREE = 16
# Of Newton's method the number of iterations and the largest relative change of one. Points that are closer, in units of the
# states, are one.
MANY, LONGEST, MET = 40, 0.3, 1e-7
# Of a step over the second parameter: the shortest, as a part of the way, the largest relative distance from the tangent, and the
# number of iterations.
SHORTEST, ASIDE, FEW = 1e-2, 0.1, 20
# How far outside of a triangle a chord may pass that is a guess, as a part of the triangle.
NEAR = 0.1


class Crossings(NamedTuple):
    """Where two manifolds meet: see `Manifold.crossings`."""

    s: np.ndarray
    t: np.ndarray
    x: np.ndarray
    sine: np.ndarray


class Tangency(NamedTuple):
    """Where two manifolds touch: see `Manifold.tangency`."""

    solved: np.ndarray
    s: np.ndarray
    t: np.ndarray
    x: np.ndarray
    result: RESULTS


def crossings_of(one: "Manifold", other: "Manifold") -> Crossings:
    space, curves = plane_of(one, other), [each.s.ndim == 1 for each in (one, other)]
    if not any(curves):
        raise ValueError("manifold: two surfaces meet in curves. Give which= one multiplier of one of them.")
    s, t = _met(one, other, space) if all(curves) else _pierced(one, other, space)
    if not curves[0]:
        s, t = t, s
    good = np.zeros(len(s), bool)
    by = lambda reached: reached.direction.reshape(*reached.x.shape, -1)
    for _ in range(8 * bool(s.size)):
        s, t = (
            np.clip(each, of.s[0], of.s[-1]) if curve else each
            for each, of, curve in zip((s, t), (one, other), curves, strict=True)
        )
        here, there = one._at(s), other._at(t)
        off, slopes = here.x - there.x, np.concatenate([by(here), -by(there)], axis=2)
        change = np.einsum("pij,pj->pi", np.linalg.pinv(np.nan_to_num(slopes)), np.nan_to_num(off))
        good = (here.codes == SUCCESSFUL) & (there.codes == SUCCESSFUL)
        good &= np.max(np.abs(off), axis=1) <= 1e-9 * np.max(np.abs(one.x))
        s, t = s - change[:, : by(here).shape[2]].reshape(s.shape), t - change[:, by(here).shape[2] :].reshape(t.shape)
    here, there = one._at(s), other._at(t)
    # Not the orbit itself, nor what is beyond a border, nor a crossing that was found from two pairs of chords.
    good &= np.max(np.abs(here.x - one(0 * one.s[0])), axis=1) > 1e-6 * np.max(np.abs(one.x))
    for each, of in ((s, one), (t, other)):
        good &= (of.s.ndim == 1) | ~beyond(of, each)
    on = s if curves[0] else t
    order = [k for k in np.argsort(on) if good[k]]
    order = [k for n, k in enumerate(order) if not n or on[k] - on[order[n - 1]] > 1e-9 * abs(on[k])]
    unit = lambda d: np.swapaxes(space.T @ _orthonormal(d), 1, 2)
    sine = np.linalg.det(np.concatenate([unit(by(here)[order]), unit(by(there)[order])], axis=1))
    return Crossings(s[order], t[order], here.x[order], sine)


def _met(one: "Manifold", other: "Manifold", plane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the chords of two curves meet in a plane."""
    a, b = one.x @ plane, other.x @ plane
    u, v = np.diff(a, axis=0)[:, None], np.diff(b, axis=0)[None]
    apart = b[None, :-1] - a[:-1, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        along, across = _cross(apart, v) / _cross(u, v), _cross(apart, u) / _cross(u, v)
    i, j = np.nonzero((along >= 0) & (along < 1) & (across >= 0) & (across < 1))
    return one.s[i] + along[i, j] * np.diff(one.s)[i], other.s[j] + across[i, j] * np.diff(other.s)[j]


def _pierced(one: "Manifold", other: "Manifold", space: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the chords of a curve meet the triangles of a surface, or pass near their edges: parameters of both."""
    curve, surface = (one, other) if one.s.ndim == 1 else (other, one)
    triangles = np.asarray(surface.triangles)
    a, (corner, *sides) = curve.x @ space, np.moveaxis((surface.x @ space)[triangles], 1, 0)
    u, v = (each - corner for each in sides)
    found = [(np.zeros(0), np.zeros((0, 2)))]
    for k, way in enumerate(np.diff(a, axis=0)):
        apart, normal = a[k] - corner, np.cross(way, v)
        turned, volume = np.cross(apart, u), np.sum(u * normal, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            x, y, along = (
                p / volume for p in (np.sum(apart * normal, axis=1), turned @ way, np.sum(turned * v, axis=1))
            )
            inside = np.minimum.reduce([x, y, 1 - x - y, along, 1 - along]) >= -NEAR
        (near,) = np.nonzero(inside)
        p, q, r = np.moveaxis(surface.s[triangles[near]], 1, 0)
        at = p + x[near, None] * (q - p) + y[near, None] * (r - p)
        found += [(curve.s[k] + along[near] * (curve.s[k + 1] - curve.s[k]), at)]
    s, t = (np.concatenate(each) for each in zip(*found, strict=True))
    return s, t


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    q, upper = np.linalg.qr(np.nan_to_num(columns))
    return q * np.sign(np.diagonal(upper, axis1=-2, axis2=-1))[..., None, :]


def plane_of(one: "Manifold", other: "Manifold") -> np.ndarray:
    """Orthonormal directions, in which the eigenvectors of both lie, shape `(n, 2)`, or `(n, 3)` of a curve and a surface."""
    return _orthonormal(np.column_stack([one.direction, other.direction]))


def _cross(p, q):
    """The area that two vectors of a plane span."""
    return p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]


class TangencyEquation(eqx.Module):
    """The equations of a tangency of an unstable and a stable manifold. **Attributes:** `scales`, of both polynomials; `nodes`,
    where their equations are to hold, in units of these. `levels`: passes from the first polynomial to the point, and on to the
    second. `plane`: in which the manifolds meet. `free`: indices of the parameters."""

    lap: Lap
    scales: Float[Array, " 2"]
    nodes: Float[Array, "2 nodes"]
    levels: Float[Array, " 2"]
    plane: Float[np.ndarray, "n 2"]
    free: tuple[int, ...] = eqx.field(static=True)

    def onward(self, w: np.ndarray, by_w: np.ndarray, p: np.ndarray):
        """A pass of states with directions, shape `(points, 2 m)`: `((x, by_x), (end, by_end), (guard, by_guard), codes)`, with
        the derivatives by all unknowns, of which those of the parameters `p` are the last."""
        out, by, codes = in_lanes(
            ft.partial(_passes, self.lap, self.free), np.column_stack([w, np.tile(p, (len(w), 1))])
        )
        by_p = np.tile(np.eye(by_w.shape[2])[by_w.shape[2] - p.size :], (len(w), 1, 1))
        with np.errstate(over="ignore", invalid="ignore"):
            by = [each @ np.concatenate([by_w, by_p], axis=1) for each in by]
        return *zip(out, by, strict=True), codes

    def linearized(self, v: "TangencyUnknowns"):
        """`((residuals, Jacobian) of polynomials and points, those of the tangency, the point, gap, codes)`, by all unknowns."""
        c, mu, chain, at = v
        (starts, images, ends), by = jax.tree.map(np.asarray, _points(self, (c, mu, at)))
        count = c.size + 2 + chain.size + at.size
        own = np.eye(chain.size, count, c.size + 2).reshape(*chain.shape, count)
        by_starts, by_images, by_ends = (np.insert(each, [c.size + 2] * chain.size, 0, axis=2) for each in by)
        chain, by_chain = np.concatenate([ends[:1], chain, ends[1:]]), np.concatenate([by_ends[:1], own, by_ends[1:]])
        p, m, met = np.asarray(at[2:]), starts.shape[1], starts[0]
        _, (end, by_end), _, codes = self.onward(
            np.hstack([starts, 0 * starts]), np.hstack([by_starts, 0 * by_starts]), p
        )
        # From the first polynomial outwards, then from each point of the second manifold to the next.
        w, by_w, codes = chain[:1], by_chain[:1], [codes]
        for _ in range(int(self.levels[0])):
            _, (w, by_w), _, code = self.onward(w, by_w, p)
            codes += [code]
        w, by_w = np.concatenate([w, chain[1:]]), np.concatenate([by_w, by_chain[1:]])
        # What leaves the tangency itself need not come anywhere: of that point the state after the jump is used.
        (x, by_x), (onto, by_onto), (guard, by_guard), code = self.onward(w, by_w, p)
        off = [end[:, :m] - images, onto[1:-1] - chain[2:], guard[1:-1]]
        by_off = [by_end[:, :m] - by_images, by_onto[1:-1] - by_chain[2:], by_guard[1:-1]]
        fit = np.concatenate([each.ravel() for each in off])
        by_fit = np.concatenate([each.reshape(-1, count) for each in by_off])
        n, met = x.shape[1] // 2, x[0, : self.plane.shape[0]]
        project = lambda each: np.concatenate([self.plane.T @ each[:n], self.plane.T @ each[n:]])
        (a, b), (by_a, by_b) = map(project, x[:2]), map(project, by_x[:2])
        # In a sharp fold the angle turns suddenly, the height above the other curve does not.
        off = np.append((a - b)[:2], _cross(a[2:], b[2:]))
        by_off = np.vstack([(by_a - by_b)[:2], _cross(by_a[2:].T, b[2:]) + _cross(a[2:], by_b[2:].T)])
        return (fit, by_fit), (off, by_off), met, np.max(np.abs(x[0] - x[1])[:n]), np.concatenate([*codes, code[1:-1]])


# Coefficients, multipliers, points of the second manifold from the tangency to its polynomial, with directions; s, t and the
# parameters.
TangencyUnknowns = tuple[Array, Array, Array, Array]


@short_run
def _points(touch: TangencyEquation, v: tuple[Array, Array, Array]) -> tuple[tuple, tuple]:
    r"""By the polynomials $W_0(s)$ and $W_0(\mu s)$ at all nodes, and the outermost points with their derivatives by s and t; the
    Jacobians of all by coefficients, multipliers, s, t and the parameters."""
    flat, unravel = ravel_pytree(v)

    def points(flat):
        c, mu, at = unravel(flat)
        of = lambda z, c: jax.vmap(_powers)(z) @ c
        inner = jnp.array([1 / mu[0] ** touch.levels[0], mu[1] ** touch.levels[1]]) / touch.scales
        curve = lambda s, inner, c: jnp.append(*jax.jvp(lambda s: _powers(s * inner) @ c, (s,), (jnp.ones_like(s),)))
        nodes, m = touch.nodes, c.shape[2]
        starts, images = jax.vmap(of)(nodes, c).reshape(-1, m), jax.vmap(of)(mu[:, None] * nodes, c).reshape(-1, m)
        return starts, images, jax.vmap(curve)(at[:2], inner, c)

    return points(flat), jax.jacfwd(points)(flat)


def _powers(z: Scalar) -> Array:
    r"""$1, z, z^2 T_0(z), z^2 T_1(z), \dots$, of Chebyshev's polynomials, which the coefficients multiply."""
    chebyshev = [jnp.ones_like(z), z]
    while len(chebyshev) < DEGREE:
        chebyshev.append(2 * z * chebyshev[-1] - chebyshev[-2])
    return jnp.stack([jnp.ones_like(z), z, *[z**2 * each for each in chebyshev]])


@long_run
def _passes(lap: Lap, free: tuple[int, ...], w: Float[Array, "lanes _"]) -> tuple[tuple, tuple, Int[Array, " lanes"]]:
    """A pass from states before the closing jump, each with a direction, and parameters: the states after it and before the next
    one, and the guard, each with its directional derivative; the Jacobians, and the codes."""

    def one(w):
        y, u, p = jnp.split(w, [(w.size - len(free)) // 2, w.size - len(free)])
        at = dataclasses.replace(lap, params=with_leaves(lap.params, free, p))

        def through(y):
            x = at.jump(y)
            end, _, result = at.onward(x)
            return (x, end, at.guard(y)), result

        values, by, result = jax.jvp(through, (y,), (u,), has_aux=True)
        return jax.tree.map(jnp.append, values, by), result

    out, by, result = jax.vmap(lambda w: with_columns(one, w))(w)
    return out, by, result._value


class _TangencySolution(NamedTuple):
    """Unknowns of a tangency, their derivatives by the second parameter, the point, s and t of it, and the code."""

    v: TangencyUnknowns
    slope: np.ndarray
    x: np.ndarray
    st: np.ndarray
    code: int


def tangency_of(
    one: "Manifold",
    other: "Manifold",
    solve: Where,
    guess: tuple[float, float] | None,
    where: Where | None,
    values: Any,
    throw: bool,
) -> Tangency:
    """`Manifold.tangency`."""
    if any(each.s.ndim > 1 for each in (one, other)):
        raise ValueError(
            "manifold: tangencies are those of curves. Give which= one multiplier, as in manifold(0, ...)."
        )
    if not abs(one.multiplier) > 1 > abs(other.multiplier):
        raise ValueError(
            "tangency: give the stable manifold to the unstable one, as in unstable.tangency(stable, ...)."
        )
    params = one.lap.params
    if not eqx.tree_equal((one.lap.step, params), (other.lap.step, other.lap.params)):
        raise ValueError("tangency: the manifolds are not of the same map at the same parameters.")
    if (where is None) != (values is None):
        raise ValueError("tangency: where= and values= of a second parameter come together.")
    free = free_leaves(lambda p: (solve(p),) if where is None else (solve(p), where(p)), params)
    if len(free) != 1 + (where is not None):
        raise ValueError("tangency: solve= and where= must pick one parameter each.")
    leaves, both = jax.tree.leaves(params), (one, other)
    if values is not None and (np.ndim(values) != 1 or not np.size(values) or not np.all(np.isfinite(values))):
        raise ValueError(
            f"tangency: values={values} must be finite numbers of the shape (values,), such as [0.1, 0.2]."
        )
    if guess is not None and (np.shape(guess) != (2,) or not np.all(np.isfinite(guess)) or not np.all(guess)):
        raise ValueError(
            f"tangency: guess={guess} must be (s, t), two finite numbers other than 0, where the orbit is."
        )
    guess = _nearest_pair(one, other) if guess is None else guess
    c, mu = (jnp.array([getattr(each, name) for each in both]) for name in ("coefficients", "multiplier"))
    at = jnp.array([*guess, *[leaves[i] for i in free]], c.dtype)
    # The points of the stable manifold, as it is, are a start.
    inwards = other.multiplier ** np.arange(1 + other._levels(np.array([guess[1]]))[0])
    on = other._at(guess[1] * inwards)
    chain = jnp.asarray(np.hstack([on.y, on.slope * inwards[:, None]])[:-1])
    first, given = _touched(both, free, (c, mu, chain, at), MANY), np.asarray([] if values is None else values, c.dtype)
    found, known = [first] * (1 if values is None else len(given)), [first]
    # Outwards from the value at hand, each from the solution nearest to it.
    for k in np.argsort(np.abs(given - float(at[-1]))) if first.code == SUCCESSFUL else ():
        near = min(known, key=lambda each: abs(float(each.v[-1][3]) - given[k]))
        found[k] = _led(both, free, near, float(given[k]))
        known += [found[k]] * (found[k].code == SUCCESSFUL)
    codes = np.array([each.code for each in found])
    rows = np.array([[each.v[-1][2], *each.st, *each.x] for each in found])
    rows[codes != SUCCESSFUL] = np.nan
    rows, codes = (rows[0], codes[0]) if values is None else (rows.T, codes)
    solved, s, t, *x = rows
    tangency = Tangency(solved, s, t, np.stack(x, axis=-1), numbered_code(jnp.asarray(codes)))
    return raise_failure("Manifold.tangency", tangency) if throw else tangency


def _nearest_pair(one: "Manifold", other: "Manifold") -> tuple[float, float]:
    """The middle of two consecutive crossings of opposite sines, the nearest to each other in units of their parameters."""
    s, t, _, sine = crossings_of(one, other)
    apart = [np.abs(np.diff(v)) / np.maximum(np.abs(v[1:]), np.abs(v[:-1])) for v in (s, t)]
    apart = np.where(sine[1:] * sine[:-1] < 0, np.maximum(*apart), np.inf)
    if not np.any(apart < 1):
        raise ValueError("tangency: no two consecutive crossings have opposite sines. Give guess=(s, t).")
    # Their images are as near to each other, up to rounding: those of the fewest passes.
    k = int(np.argmin(np.where(apart <= 1.001 * np.min(apart), np.abs(s[1:]), np.inf)))
    return float(s[k] + s[k + 1]) / 2, float(t[k] + t[k + 1]) / 2


def _led(
    both: tuple["Manifold", "Manifold"], free: tuple[int, ...], near: _TangencySolution, value: float
) -> _TangencySolution:
    """The tangency at another value of the second parameter, in steps along the tangents that are shorter where one fails."""
    whole = step = value - float(near.v[-1][3])
    code = DIVERGED
    while abs(step) > SHORTEST * abs(whole):
        (flat, unravel), left = ravel_pytree(near.v), value - float(near.v[-1][3])
        # At the end of the way the value itself, not one that is rounded.
        ahead = unravel(jnp.append((flat + step * near.slope)[:-1], value if step == left else flat[-1] + step))
        tried = _touched(both, free, ahead, FEW)
        code = DIVERGED if tried.code == SUCCESSFUL else tried.code
        if tried.code == SUCCESSFUL and np.max(np.abs(tried.v[-1][:2] / ahead[-1][:2] - 1)) <= ASIDE:
            near, left = tried, value - float(tried.v[-1][3])
            step = left if abs(left) <= 2 * abs(step) else 2 * step
        else:
            step /= 2
    return near._replace(code=code if step else SUCCESSFUL)


def _touched(
    both: tuple["Manifold", "Manifold"], free: tuple[int, ...], v: TangencyUnknowns, iterations: int
) -> _TangencySolution:
    """The tangency near a start, by Newton's method. `ValueError` where the parameter that is solved for changes nothing."""
    # Passes by the multipliers of the start, of the second polynomial's points as many as those are, or one more or less.
    now = [dataclasses.replace(each, multiplier=float(mu)) for each, mu in zip(both, v[1], strict=True)]
    levels = np.array([each._levels(np.asarray(v[-1][k : k + 1]))[0] for k, each in enumerate(now)])
    angles, lap = (np.arange(2 * DEGREE) + 0.5) * np.pi / (2 * DEGREE), both[0].lap
    nodes, scales = [min(1, 1 / abs(each.multiplier)) * np.cos(angles) for each in both], [each.scale for each in both]
    touch = TangencyEquation(
        lap, jnp.array(scales), jnp.array(nodes), jnp.array(levels, v[1].dtype), plane_of(*both), free
    )
    for level in range(len(v[2]), levels[1]):
        at_level = eqx.tree_at(lambda touch: touch.levels, touch, jnp.array([0, level], v[1].dtype))
        v = (*v[:2], jnp.concatenate([v[2], _points(at_level, (*v[:2], v[3]))[0][2][1:]]), v[3])
    v = (*v[:2], v[2][: levels[1]], v[3])
    (flat, unravel), count, part = ravel_pytree(v), v[0].size + 2 + v[2].size, v[0][0].size
    flat, last, code, size = np.array(flat), np.inf, DIVERGED, np.max(np.abs(both[0].x))
    slope, x, gap, fit, change = np.eye(flat.size)[-1], both[0].x[0], np.inf, np.array(np.inf), np.zeros_like(flat)
    eps = float(np.finfo(flat.dtype).eps)
    for iteration in range(iterations):
        (fit, by_fit), (off, by_off), x, gap, codes = touch.linearized(unravel(jnp.asarray(flat)))
        failed = codes[codes != SUCCESSFUL]
        code = int(failed[0]) if failed.size else DIVERGED
        if failed.size:
            if not np.any(change):
                break
            flat, change = flat - change / 2, change / 2
            continue
        # The eigenvectors keep their lengths.
        rows = np.zeros((2, flat.size))
        for k, (_, direction) in enumerate(np.asarray(v[0])[:, :2]):
            rows[k, k * part + direction.size :][: direction.size] = direction
        # The changes of the coefficients that their own equations ask for, also with each of the other unknowns.
        by_fit, fit = np.vstack([by_fit, rows]), np.append(fit, [0, 0])
        own = -np.linalg.lstsq(by_fit[:, :count], np.column_stack([fit, by_fit[:, count:]]), rcond=1e-13)[0]
        left = by_off[:, count : count + 3] + by_off[:, :count] @ own[:, 1:4]
        # In units of the parameters, row by row.
        effect = np.abs(left) * np.maximum(np.abs(flat[count : count + 3]), [0, 0, 1])
        if not iteration and iterations == MANY and np.all(effect[:, 2] <= 256 * eps * np.max(effect, axis=1)):
            name = leaf_names(lap.params)[free[0]]
            raise ValueError(f"tangency: the manifolds do not depend on {name}. Give another parameter to solve=.")
        right = np.column_stack([off, by_off[:, count + 3 :]]) + by_off[:, :count] @ np.delete(own, [1, 2, 3], axis=1)
        step = -np.linalg.lstsq(left, right, rcond=None)[0]
        step = np.vstack([step, np.eye(step.shape[1])[1:]])
        whole = np.vstack([own[:, 1:] @ step, step])
        whole[:count, 0] += own[:, 0]
        slope, moved = whole[:, -1], float(np.max(np.abs(step[:2, 0] / flat[count : count + 2])))
        if moved < eps**0.5 and not moved < last:
            code = SUCCESSFUL
            break
        change, last = min(1.0, LONGEST / moved) * whole[:, 0], moved
        flat = flat + change
    c, mu, _, at = v = unravel(jnp.asarray(flat))
    # Within the polynomials, and these as exact as the map.
    inner = np.abs(at[:2] / np.maximum(np.abs(mu), 1 / np.abs(mu)) ** levels) / np.array([each.radius for each in both])
    exact = max(256 * eps, float(sum(lap.step.integrator_or(Integrator()).tolerances(flat.dtype))))
    if code == SUCCESSFUL and not (
        np.all(inner <= 1.5) and np.max(np.abs(fit)) <= 16 * exact * size and gap <= MET * size
    ):
        code = DIVERGED
    # From the parameters in which the eigenvectors before the jump keep their lengths to those in which q has the length 1.
    w = np.hstack([c[:, 0], c[:, 1] / touch.scales[:, None]])
    (q, _), *_ = touch.onward(w, np.zeros((*w.shape, flat.size)), np.asarray(at[2:]))
    return _TangencySolution(v, slope, x, np.linalg.norm(q[:, q.shape[1] // 2 :], axis=1) * at[:2], code)
