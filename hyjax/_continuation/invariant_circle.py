r"""Invariant circles of the return map: born at a Neimark-Sacker point, and followed over the parameter while they are smooth.

On a smooth circle with an irrational rotation number $\rho / 2\pi$ the return map is a rotation in a suitable angle,

$$S(K(\varphi)) = K(\varphi + \rho), \qquad \int K_0'(\varphi) \cdot (K(\varphi) - K_0(\varphi))\,d\varphi = 0 .$$

$K$ is a trigonometric polynomial, known by its values at an odd number $M$ of equal angles, at which the equation holds; the
second equation fixes the origin of the angle. Unknown are these values, $\rho$ and the parameter. Where the map locks to a strong
resonance, or the circle wrinkles, the coefficients of $K$ cease to decay, and the curve ends.

The variations $\delta(\varphi) \mapsto DS\,\delta(\varphi - \rho)$ have a spectrum of circles, whose radii are the multipliers
per pass: 1 along the circle, and those across it.

Source: Kuznetsov (2004), Sec. 7.3; Jorba (2001), *Numerical computation of the normal behaviour of invariant curves of
n-dimensional maps*, Nonlinearity 14, 943-976.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.eager import long_run
from .._numerics.eigenvalues import inside_circle
from .._numerics.linearize import with_columns
from .._orbit.chain import follow_chain
from .._results.shown import computed_once, Shown
from .._results.table import Table
from .._system.results import choose, numbered_code, RESULTS
from .._system.where import leaf_names
from .curve import Curve, follow_curve, Interval, interval_to, PseudoArclength, result_of, Stop
from .normal_form import after_jumps, NormalForm
from .unfolding import Unfolding

# Of the Fourier coefficients of a circle, the largest in the last third of the orders to the largest of all.
SMOOTH = 1e-6
# Of the first circle, the largest amplitude in units of the state's size.
LARGEST = 0.05


class CircleJacobians(eqx.Module):
    """The images of the points of a circle: `by`, the Jacobians of the map, shape `(angles, n, n)`; a code that is not
    `successful`, where there is one."""

    by: Float[Array, "angles n n"]
    result: RESULTS


class InvariantCircles(Shown):
    r"""Invariant circles $S(K(\varphi)) = K(\varphi + \rho)$ over a parameter, from `point.invariant_circles`.

    **Attributes:** in the order along the curve: `values` of the parameter, shape `(points,)`; `x`, states just after the jump
    that closes the orbit at equal angles, `(points, angles, n)`; `rotation`, $\rho / 2\pi$; `multipliers` per pass of the map, by
    modulus, `(points, n)`: that along the circle is 1; `stable`, whether all others are less; `residuals`, in units of the
    state's size. `result`: as of a `Branch`; passes are seen at those angles alone, so that a circle that comes to another guard
    between two of them ends a little later. `unfolding`, `curves`, `angles`: the equation, its
    solutions, and the number of angles.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), coordinates=("now", "before", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[1]), x[0], 0 * x[2]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[2], births),))
    >>> params = {"rate": jnp.array(1.9)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.47, 0.47, 0.0]), params)
    >>> (point,) = hj.continuation(orbit, where=lambda p: p["rate"], stop=2.1).special_points
    >>> circles = point.invariant_circles(stop=2.03)
    >>> print(f"{circles.rotation[-1]:.4f}", bool(circles.stable.all()), circles.result)
    0.1638 True successful

    Source: Kuznetsov (2004), Sec. 7.3.
    """

    unfolding: Unfolding
    curves: Curve  # one in each direction
    angles: int = eqx.field(static=True)

    def _tables(self):
        name = leaf_names(self.unfolding.params)[self.unfolding.free[0]]
        ends = (0, -1) if len(self.values) else ()
        rows = [[f"{self.values[i]:.8g}", f"{self.rotation[i]:.8g}", str(bool(self.stable[i]))] for i in ends]
        caption = f"Invariant circles: {len(self.values)} points, {self.result}, first and last"
        return (Table(caption, rows, (name, "rotation", "stable")),)

    @property
    def values(self) -> np.ndarray:
        """Values of the parameter, shape `(points,)`."""
        return np.asarray(self.unfolding.origin[0] + self.unfolding.scale[0] * self._along[:, -1])

    @property
    def rotation(self) -> np.ndarray:
        """Rotation numbers $\\rho / 2\\pi$, shape `(points,)`."""
        return self._along[:, -2] / (2 * np.pi)

    @property
    def x(self) -> np.ndarray:
        """States just after the jump that closes the orbit, at equal angles, shape `(points, angles, n)`."""
        return computed_once(_states_of, self)

    @property
    def multipliers(self) -> np.ndarray:
        """Multipliers per pass of the map, by modulus, shape `(points, n)`."""
        return computed_once(_multipliers_of, self)

    @property
    def stable(self) -> np.ndarray:
        """Whether all multipliers but that along the circle are less than 1, shape `(points,)`."""
        along = np.argmin(np.abs(self.multipliers - 1), axis=1)
        return np.array([inside_circle(np.delete(row, k)) for row, k in zip(self.multipliers, along, strict=True)])

    @property
    def residuals(self) -> np.ndarray:
        """Largest residuals of the scaled equations, shape `(points,)`."""
        return np.asarray(self.curves.residual[0, : self.curves.count[0]])

    @property
    def result(self) -> RESULTS:
        """`successful` if an end of the interval was reached, otherwise the reason."""
        return result_of(self.curves)

    @property
    def _along(self) -> np.ndarray:
        return np.asarray(self.curves.v[0, : self.curves.count[0]])


def invariant_circles(
    unfolding: Unfolding, form: NormalForm, stop: Stop, amplitude: float | None, n_angles: int, method: PseudoArclength
) -> InvariantCircles:
    """The circles from a Neimark-Sacker point with the normal form `form`, in its equations `unfolding`."""
    if n_angles < 9 or n_angles % 2 == 0:
        raise ValueError(f"invariant_circles: n_angles={n_angles} must be an odd number of at least 9.")
    _, values = unfolding.split(form.v)
    interval = interval_to(stop, values[0], "invariant_circles", behind=1.0)
    unfolding = dataclasses.replace(
        unfolding, params=unfolding.params_at(values), origin=values, scale=interval.span[None]
    )
    rescale = float(form.unfolding.scale[0] / interval.span)
    if amplitude is None:
        # A tenth of the way to `stop`, unless the circle is large there already.
        shift, _, _ = form.circle(1.0, n_angles)
        room = math.sqrt(0.1 / abs(shift * rescale))
    length = float(np.linalg.norm(np.asarray(form.expansion.manifold)[0]))
    a = min(room, LARGEST / length) if amplitude is None else amplitude / length
    ends = []
    for each in (a / 2, a):
        shift, points, turn = form.circle(each, n_angles)
        ends.append(np.append(points[:, : unfolding.dimension] / math.sqrt(n_angles), [turn, shift * rescale]))
    along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    dtype = form.v.dtype
    accept = jnp.asarray(1e3 * sum(unfolding.integrator.tolerances(dtype)), dtype)
    bounds = interval.scaled(unfolding.origin[0], unfolding.scale[0])
    start, along = (jnp.asarray(each, dtype) for each in (ends[1], along))
    return InvariantCircles(
        unfolding, _follow(unfolding, start, along, bounds, method.with_arrays(start.dtype), accept), n_angles
    )


@long_run
def _follow(
    unfolding: Unfolding, start: Array, along: Array, bounds: Interval, method: PseudoArclength, accept
) -> Curve:
    unfolding = unfolding.rolled()
    problem, n = unfolding.moved, unfolding.dimension
    angles = start.size // n
    spectrum = lambda points: jnp.abs(jnp.fft.rfft(points, axis=0))
    order = (angles - 1) // 2
    turned = lambda rho: jax.jvp(lambda rho: _turned(angles, rho), (rho,), (jnp.ones_like(rho),))
    points = lambda u: u[:-2].reshape(angles, n)
    first = points(start)
    _, slope = turned(jnp.zeros((), start.dtype))
    border = slope @ first

    def lap(u):
        params = unfolding.params_at(unfolding.origin + u[n:] * unfolding.scale)
        x = problem.closing_jump(u[:n] * unfolding.state_scale * np.sqrt(angles), params)
        chain, ends = follow_chain(problem, x, params, unfolding.integrator, order=1)
        return ends[-1] / (unfolding.state_scale * np.sqrt(angles)), chain.result

    def evaluate(u):
        states = jnp.column_stack([points(u), jnp.broadcast_to(u[-1], (angles, 1))])
        images, by, results = jax.vmap(lambda each: with_columns(lap, each))(states)
        matrix, change = turned(u[-2])
        residual = images - matrix @ points(u)
        each = jnp.eye(angles, dtype=u.dtype)[:, None, :, None] * by[:, :, None, :n]
        shift = matrix[:, None, :, None] * jnp.eye(n, dtype=u.dtype)[None, :, None, :]
        blocks = (each - shift).reshape(n * angles, n * angles)
        rows = jnp.column_stack([blocks, -(change @ points(u)).reshape(-1), by[:, :, n].reshape(-1)])
        phase = jnp.concatenate([border.reshape(-1), jnp.zeros(2, u.dtype)])
        jacobian = jnp.concatenate([rows, phase[None]])
        passed = CircleJacobians(by[:, :, :n], numbered_code(jnp.max(results._value)))
        return (jnp.append(residual.reshape(-1), jnp.sum(border * (points(u) - first))), jacobian, passed)

    def judge(u, aux):
        sizes = spectrum(points(u))[1:]
        rough = jnp.max(sizes[2 * order // 3 :]) > SMOOTH * jnp.max(sizes)
        smooth = choose(rough, RESULTS.orbit_not_converged, RESULTS.successful)
        return dataclasses.replace(aux, result=choose(aux.result == RESULTS.successful, smooth, aux.result))

    curve = follow_curve(evaluate, start, along, along, bounds, method, accept, judge)[0]
    return jax.tree.map(lambda leaf: leaf[None], curve)


def _turned(angles: int, rho: Array) -> Float[Array, "angles angles"]:
    """The matrix that takes the values of a trigonometric polynomial at equal angles to those at angles turned by `rho`."""
    phi = 2 * np.pi * np.arange(angles) / angles
    waves = jnp.arange(1, (angles + 1) // 2, dtype=rho.dtype)[:, None, None]
    distance = jnp.asarray(phi[:, None] - phi[None, :], rho.dtype)
    return (1 + 2 * jnp.sum(jnp.cos(waves * (distance + rho)), axis=0)) / angles


def _states_of(circles: InvariantCircles) -> np.ndarray:
    v, unfolding = circles._along, circles.unfolding
    n = unfolding.dimension
    states = v[:, :-2].reshape(len(v), -1, n) * np.sqrt(circles.angles)
    points = np.concatenate([states, np.broadcast_to(v[:, None, -1:], (*states.shape[:2], 1))], axis=-1)
    after = after_jumps(unfolding, jnp.asarray(points.reshape(-1, n + 1)))
    return np.asarray(after).reshape(len(v), circles.angles, -1)


def _multipliers_of(circles: InvariantCircles) -> np.ndarray:
    angles, found = circles.angles, []
    for by, v in zip(np.asarray(circles.curves.aux.by[0]), circles._along, strict=False):
        n = by.shape[-1]
        back = np.asarray(_turned(angles, jnp.asarray(-v[-2])))
        blocks = np.einsum("jl,lab->jalb", back, by).reshape(n * angles, n * angles)
        # Each circle of the spectrum has as many eigenvalues as there are angles.
        moduli = np.sort(np.abs(np.linalg.eigvals(blocks)))[::-1].reshape(n, angles)
        found.append(np.median(moduli, axis=1))
    return np.array(found)
