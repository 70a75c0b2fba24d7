r"""Normal forms: what the return map does near a special point, in as many coordinates as multipliers are critical.

The critical coordinates $w$ and the parameter's variation $\delta$ parameterize the center manifold $y = W(w, \delta)$, on which
the return map is $w \mapsto N(w, \delta)$. With $F$ of `unfolding.py`, and $E$ that takes the first state of an orbit of several
strides to the place of the last,

$$F(W) + E\,(W - W \circ N) = 0 .$$

Both are polynomials. A monomial $w^\alpha$ with the product $\mu^\alpha$ of multipliers has the linear equation

$$\big(D_yF + (1 - \mu^\alpha) E\big) W_\alpha - E Q\, N_\alpha + R_\alpha = 0, \qquad P^H E\, W_\alpha = 0,$$

whose $N_\alpha$ is zero unless the monomial is resonant, $\mu^\alpha = \mu_k$, and whose $R_\alpha$ comes from monomials of lower
degree. All equations are solved at once, again and again: each time the next degree becomes right. $F(W)$ is expanded along lines
$(w, \delta) = s u$, by nested derivatives of the strides by $s$, and its monomials follow from enough directions $u$.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, Secs. 8.7, 9.7; Kuznetsov, Meijer (2019), *Numerical
Bifurcation Analysis of Maps*, ch. 3.
"""

import functools as ft
import itertools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._numerics.eager import long_run
from .._numerics.eigenvalues import inside_circle
from .._numerics.elimination import solve
from .._orbit.chain import follow_chain
from .._results.shown import Shown
from .._results.table import Table, without_rounding
from .._system.where import leaf_names
from .criticality import CANCELLED, criticality
from .unfolding import SHIFTS, Unfolding

# A multiplier nearer than this to the unit circle is critical; of a double one, which an error moves by its root, the second.
CRITICAL, TOGETHER = 1e-6, 1e-5
# Real unless a pair of multipliers is critical.
Coefficient = float | complex


class FormShape(NamedTuple):
    """Of a normal form: the `charges` of its coordinates, modulo `moduli` (0: no modulus), whose sums show resonance: of the
    monomials of one coordinate all with its own charge stay; its `order`; whether the coordinates are a `chain` of generalized
    eigenvectors; and the number of parameters."""

    charges: tuple[tuple[int, ...], ...]
    moduli: tuple[int, ...] = (0,)
    order: int = 3
    chain: bool = False
    parameters: int = 0

    @property
    def count(self) -> int:
        """The number of critical coordinates."""
        return len(self.charges)

    def resonant(self, alpha: tuple[int, ...]) -> list[bool]:
        """Whether the monomial stays in the equation of each coordinate; of a chain only in that of the last."""
        total = [sum(a * charge[i] for a, charge in zip(alpha, self.charges)) for i in range(len(self.moduli))]  # noqa: B905
        same = lambda a, b, modulus: (a - b) % modulus == 0 if modulus else a == b
        stays = [all(map(same, total, charge, self.moduli)) for charge in self.charges]
        return [stay and (not self.chain or k == self.count - 1) for k, stay in enumerate(stays)]

    @property
    def monomials(self) -> list[tuple[int, ...]]:
        """The exponents of all monomials up to the order, by degree; those of the coordinates themselves come first."""
        every = itertools.product(range(self.order + 1), repeat=self.count + self.parameters)
        return sorted(
            (each for each in every if 1 <= sum(each) <= self.order), key=lambda each: (sum(each), [-a for a in each])
        )


ONE, MINUS_ONE, PAIR = (0,), (1,), ((1,), (-1,))
FORMS = {
    "fold": FormShape((ONE,), order=2, parameters=1),
    "period-doubling": FormShape((MINUS_ONE,), (2,), parameters=1),
    "neimark-sacker": FormShape(PAIR, parameters=1),
    "branch-point": FormShape((ONE,), parameters=1),
    "cusp": FormShape((ONE,)),
    "generalized-flip": FormShape((MINUS_ONE,), (2,), order=5),
    "chenciner": FormShape(PAIR, order=5),
    "resonance-1:1": FormShape((ONE, ONE), order=2, chain=True),
    "resonance-1:2": FormShape((MINUS_ONE, MINUS_ONE), (2,), chain=True),
    "resonance-1:3": FormShape(PAIR, (3,)),
    "resonance-1:4": FormShape(PAIR, (4,)),
    "fold-flip": FormShape((ONE, MINUS_ONE), (2,)),
    "fold-neimark-sacker": FormShape((*PAIR, ONE)),
    "flip-neimark-sacker": FormShape(((0, 1), (0, -1), (1, 0)), (2, 0)),
    "double-neimark-sacker": FormShape(((1, 0), (-1, 0), (0, 1), (0, -1)), (0, 0)),
}


class Expansion(NamedTuple):
    """The polynomials of a normal form, by the `monomials` of the form: `manifold`, $W$, in scaled unknowns with the parameter,
    shape `(monomials, k + 1)`; `reduced`, $N$, shape `(monomials, coordinates)`, and `straight`, what $N$ would be without the
    bend of $W$. `dual`, $P^H$, shape `(coordinates, k)`; and the eigenvectors as variations of the post-impact state, shape
    `(coordinates, n)`."""

    manifold: Complex[Array, "monomials unknowns"]
    reduced: Complex[Array, "monomials coordinates"]
    straight: Complex[Array, "monomials coordinates"]
    dual: Complex[Array, "coordinates k"]
    eigenvectors: Complex[Array, "coordinates n"]


@long_run
def expansion(unfolding: Unfolding, v: Array, jacobian: Array, multipliers: Array, form: FormShape) -> Expansion:
    """The normal form at a special point, with the critical multipliers in the order of the form's coordinates. `jacobian`: dF
    there, shape `(k, k + 1)`."""
    unfolding = unfolding.rolled()
    n, k, count, monomials = unfolding.dimension, jacobian.shape[0], form.count, form.monomials
    jacobian = jacobian.astype(multipliers.dtype)
    right, left, at_start = _critical(unfolding, v, jacobian, multipliers, form)
    degrees = np.array([sum(alpha) for alpha in monomials])
    stays = jnp.array([form.resonant(alpha) for alpha in monomials], v.dtype)
    lines, values = (each.astype(right.dtype) for each in _lines(form))
    by_degree = [values * (degrees == j) for j in range(form.order + 1)]
    fits = [jnp.asarray(np.linalg.pinv(values[:, degrees == j])) for j in range(1, form.order + 1)]
    # The eigenvectors are given, and so is the parameter's variation.
    linear = np.array([sum(alpha[:count]) == 1 == sum(alpha) for alpha in monomials])
    manifold = jnp.zeros((len(monomials), v.size), right.dtype).at[:count, :k].set(right)
    reduced = jnp.zeros((len(monomials), count), right.dtype).at[np.arange(count), np.arange(count)].set(multipliers)
    if form.chain:
        reduced = reduced.at[np.arange(1, count), np.arange(count - 1)].set(1)
    eigenvalues = jnp.stack([math.prod(multipliers[i] for i in _factors(alpha[:count])) for alpha in monomials])
    if not form.chain:
        # At a strong resonance that the form does not expect, further monomials cannot be removed.
        near = jnp.abs(eigenvalues[:, None] - multipliers) < float(jnp.finfo(v.dtype).eps) ** 0.5
        stays = jnp.maximum(stays, near.astype(v.dtype))

    def solved(eigenvalue, residual, stays):
        """One monomial's equation, with unknowns `(W, N)`."""
        into = jnp.zeros((k, count), right.dtype).at[-n:].set(right[:, :n].T)
        normal = jnp.zeros((count, k), right.dtype).at[:, :n].set(left[:, -n:])
        matrix = jnp.block([
            [unfolding.shifted(jacobian, eigenvalue), -into * stays], [normal * stays[:, None], jnp.diag(1 - stays)]
        ])  # fmt: skip
        return solve(matrix, jnp.append(-residual, jnp.zeros(count, right.dtype)))

    units = jnp.ones(form.parameters, v.dtype)
    for i in range(form.parameters):
        # In a unit in which the states move by no more than it: near another critical multiplier powers of W_delta would cover
        # the other monomials.
        moved = solved(eigenvalues[count + i], jacobian[:, k + i], stays[count + i].astype(right.dtype))
        unit = 1 / jnp.maximum(1, jnp.max(jnp.abs(moved[:k])))
        units = units.at[i].set(unit)
        manifold = manifold.at[count + i, k + i].set(unit.astype(right.dtype))

    def improved(i, found):
        manifold, reduced, straight = found
        curves = jnp.stack([rows @ manifold for rows in by_degree], axis=1)
        residual = _along_lines(unfolding, v, curves[:, 1:].real).astype(right.dtype)
        images = jnp.stack([rows @ reduced for rows in by_degree], axis=1)
        shift = curves[..., :n] - _composed(form, lines, images, manifold[:, :n])
        residual = residual.at[..., -n:].add(shift[:, 1:])
        rows = jnp.concatenate([fit @ residual[:, j] for j, fit in enumerate(fits)])
        change = jax.vmap(solved)(eigenvalues, rows, stays.astype(right.dtype))
        change = jnp.where(linear[:, None], jnp.zeros_like(change), change)
        reduced = reduced + change[:, k:]
        return manifold.at[:, :k].add(change[:, :k]), reduced, jnp.where(i == 0, reduced, straight)

    passes = form.order - 1 + form.parameters + 3 * form.chain
    manifold, reduced, straight = jax.lax.fori_loop(0, passes, improved, (manifold, reduced, reduced))
    powers = jnp.prod(units ** jnp.array([alpha[count:] for alpha in monomials], v.dtype), axis=1)[:, None]
    manifold, reduced, straight = (each / powers.astype(each.dtype) for each in (manifold, reduced, straight))
    return Expansion(manifold, reduced, straight, left, at_start)


def _critical(
    unfolding: Unfolding, v: Array, jacobian: Array, multipliers: Array, form: FormShape
) -> tuple[Array, Array, Array]:
    """Critical eigenvectors of all strides, of length 1 and with a positive largest entry as variations of the post-impact
    state; their dual vectors; and those variations. Of a chain $A q_1 = \\mu q_1 + q_0$, and the first dual vector is that of
    $q_1$."""
    n, k = unfolding.dimension, jacobian.shape[0]
    before, values = unfolding.split(v)
    problem, params = unfolding.problem, unfolding.params_at(values)
    jump = jax.jacfwd(lambda y: problem.closing_jump(y, params))(before[0]) * unfolding.state_scale
    after = lambda q: q[..., :n] @ jump.T.astype(q.dtype)
    groups = [list(same) for _, same in itertools.groupby(range(form.count), key=lambda i: form.charges[i])]
    right, left = [], []
    for same in groups:
        width = 1 if form.chain else len(same)
        matrix = unfolding.shifted(jacobian, multipliers[same[0]])
        u, _, vh = jnp.linalg.svd(matrix)
        q, p = jnp.conj(vh[k - width :]), jnp.conj(u[:, k - width :]).T
        q = solve(jnp.linalg.qr(after(q).T)[1].T, q)
        largest = after(q)[jnp.arange(width), jnp.argmax(jnp.abs(after(q)), axis=1)][:, None]
        q = q * jnp.conj(largest / jnp.abs(largest).astype(q.dtype))
        if form.chain:
            # The chain's multiplier is real.
            border = jnp.block([[matrix, jnp.conj(p).T], [jnp.conj(q), jnp.zeros((1, 1), q.dtype)]])
            none = jnp.zeros(k + 1 - n, q.dtype)
            one = solve(border, jnp.concatenate([none[:-1], q[0, :n], none[-1:]]))[:k]
            one = one - (after(q[0]) @ after(one)) * q[0]
            p = p[0] / (p[0, -n:] @ one[:n])
            dual = solve(border.T, jnp.concatenate([p[-n:], none]))[:k]
            q, p = jnp.stack([q[0], one]), jnp.stack([p, dual - (dual[-n:] @ one[:n]) * p])
        else:
            p = solve(p[:, -n:] @ q[:, :n].T, p)
        right.append(q)
        left.append(p)
    right = jnp.concatenate(right)
    return right, jnp.concatenate(left), after(right)


def _along_lines(unfolding: Unfolding, v: Array, curves: Float[Array, "lines order unknowns"]) -> Array:
    """The Taylor coefficients of F along the curves $v + s c_1 + s^2 c_2 + ...$, from the first on, shape `(lines, order, k)`."""

    def ends(u):
        before, values = unfolding.split(u)
        params = unfolding.params_at(values)
        _, ends = follow_chain(unfolding.problem, None, params, unfolding.integrator, before, None)
        return (ends - jnp.roll(before, -1, axis=0)).reshape(-1) / unfolding.state_scale

    def one(curve):
        along = lambda s: ends(v + s * jnp.polyval(curve[::-1], s))
        for _ in curve:
            along = lambda s, along=along: jax.jvp(along, (s,), (jnp.ones_like(s),))
        # Nested pairs (value, derivative): the derivative of order j is where j derivatives were taken, and then values.
        found: Any = along(jnp.zeros((), v.dtype))
        orders = []
        for j in range(1, len(curve) + 1):
            found = found[1]
            orders.append(ft.reduce(lambda pair, _: pair[0], range(len(curve) - j), found) / math.factorial(j))
        return jnp.stack(orders)

    return jax.lax.map(one, curves)


def _composed(form: FormShape, lines: np.ndarray, images: Array, manifold: Array) -> Array:
    r"""The Taylor coefficients of $W \circ N$ along lines, from those of $N$, shape `(lines, order + 1, coordinates)`."""
    size = form.order + 1
    series = [images[..., i] for i in range(form.count)]
    # The parameter's variation stays.
    series += [
        jnp.zeros_like(series[0]).at[:, 1].set(jnp.asarray(lines[:, i])) for i in range(form.count, lines.shape[1])
    ]
    sums = np.array([[[i + j == m for m in range(size)] for j in range(size)] for i in range(size)], images.dtype)
    powers = {}
    for alpha in form.monomials:
        first, *rest = _factors(alpha)
        lower = tuple(a - (i == first) for i, a in enumerate(alpha))
        powers[alpha] = jnp.einsum("li,lj,ijm->lm", powers[lower], series[first], sums) if rest else series[first]
    return jnp.einsum("alj,an->ljn", jnp.stack(list(powers.values())), manifold)


def _factors(alpha: tuple[int, ...]) -> list[int]:
    """The coordinates of which a monomial is the product."""
    return [i for i, power in enumerate(alpha) for _ in range(power)]


def _lines(form: FormShape) -> tuple[np.ndarray, np.ndarray]:
    """Directions in the coordinates and parameters, those of complex pairs conjugate, from whose values every polynomial of the
    form's order follows; and the values of all monomials there, shape `(lines, monomials)`."""
    size = form.count + form.parameters
    real = np.eye(size, dtype=complex)
    for i in range(form.count - 1):
        if any(form.charges[i]) and form.charges[i + 1] == tuple(-c for c in form.charges[i]):
            real[i : i + 2, i : i + 2] = [[1, 1j], [1, -1j]]
    monomials = np.array(form.monomials)
    count = math.comb(form.order + size - 1, size - 1)
    rng, best = np.random.default_rng(0), (np.inf, np.zeros(0), np.zeros(0))
    for _ in range(50):
        drawn = rng.standard_normal((count, size)) if size > 1 else np.ones((1, 1))
        lines = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) @ real.T
        values = np.prod(lines[:, None, :] ** monomials, axis=-1)
        condition = max(np.linalg.cond(values[:, monomials.sum(1) == j]) for j in range(1, form.order + 1))
        best = min(best, (condition, lines, values), key=lambda each: each[0])
    return best[1:]


class NormalForm(Shown):
    r"""The normal form at a special point: the return map on its center manifold, in critical coordinates $w$.

    With the parameter's variation $\delta$ and, of a pair of multipliers, their angle $\theta$ and $z$, $\bar z$ for $w$:

    - `fold`: $w \mapsto w + \dot w\,\delta + b\,w^2$. Two orbits on the side where $b\,\dot w\,\delta < 0$.
    - `period-doubling`: $w \mapsto -w + \dot\mu\,\delta w + c\,w^3$. Supercritical for $c > 0$.
    - `neimark-sacker`: $z \mapsto e^{i\theta} z\,(1 + e^{-i\theta} \dot\mu\,\delta + d\,|z|^2)$. Supercritical for
      $\mathrm{Re}\,d < 0$.
    - `branch-point`: $w \mapsto w + \dot\mu\,\delta w + b\,w^2 + c\,w^3$. A pitchfork where $b = 0$, supercritical for $c < 0$.
    - `cusp`: $w \mapsto w + c\,w^3$. `generalized-flip`: $w \mapsto -w + e\,w^5$. `chenciner`: $z \mapsto e^{i\theta} z\,(1 +
      d_1 |z|^2 + d_2 |z|^4)$, with $L_2 = \mathrm{Re}\,d_2 + (\mathrm{Im}\,d_1)^2 / 2$.
    - `resonance-1:1`: $(w_1, w_2) \mapsto (w_1 + w_2, w_2 + a\,w_1^2 + b\,w_1 w_2)$. `resonance-1:2`: $(w_1, w_2) \mapsto
      (-w_1 + w_2, -w_2 + C\,w_1^3 + D\,w_1^2 w_2)$.
    - `resonance-1:3`: $z \mapsto e^{2\pi i/3} z + b\,\bar z^2 + c\,z |z|^2$. `resonance-1:4`: $z \mapsto i z + c\,z |z|^2 +
      d\,\bar z^3$, with $A_0 = -i c / |d|$.
    - `fold-flip`, $w_1$ of the multiplier 1; `fold-neimark-sacker` and `flip-neimark-sacker`, with $(z, \bar z, w)$;
      `double-neimark-sacker`, the pair of the smaller angle first; a branch point or doubling of several multipliers: all
      resonant monomials, by name of the equation and exponents. The rows of pairs are divided by their multiplier.

    A coefficient depends on the length of the eigenvectors: here those of the variations of the state just after the jump that
    closes the orbit, in the units of the coordinates, have length 1 and a positive largest entry. In coordinates with the
    derivative $D$ a cubic coefficient is $c\,/\,|D q|^2$.

    Where further multipliers lie on the unit circle at a point of a branch, it is the form of all of them, of codimension two:
    the `kind` says which.

    **Attributes:** `kind`. `coefficients`: by name. `multipliers`: the critical ones, shape `(coordinates,)`. `eigenvectors`:
    shape `(coordinates, n)`. `rate`: $\dot\mu$ on the branch $w = 0$, or at a fold $\dot w$, by the parameter in its own unit;
    NaN where two parameters are free. `criticality`: the meaning of the signs, in words. `expansion`, `form`: the polynomials
    $N$ and $W$, and which monomials they have. `unfolding`, `v`, `tangent`: of the special point.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]), 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> (point,) = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.2).special_points
    >>> form = point.normal_form
    >>> print(f"{form.coefficients['c']:.6f} {form.rate:.6f}")
    9.000000 -1.000000
    >>> form.criticality
    'supercritical: a stable orbit of twice the period for rate > 3, where the orbit is unstable'

    Source: Kuznetsov (2004), chs. 4, 5, 9; Kuznetsov, Meijer (2019), ch. 3.
    """

    kind: str = eqx.field(static=True)
    coefficients: dict[str, Coefficient]
    multipliers: Complex[np.ndarray, " coordinates"]
    eigenvectors: Complex[np.ndarray, "coordinates n"]
    rate: Coefficient
    criticality: str = eqx.field(static=True)
    expansion: Expansion
    form: FormShape = eqx.field(static=True)
    unfolding: Unfolding
    v: Float[Array, " unknowns"]
    tangent: Float[Array, " unknowns"]

    def predictor(self, amplitude: float) -> tuple[float, Float[np.ndarray, "states n"]]:
        r"""The orbits that leave the point, to second order in the `amplitude` $a$ of the critical coordinate.

        **Arguments:** `amplitude`: $a$, in units of the eigenvector. **Returns:** the parameter, in its own unit, and states just
        after the jump that closes the orbit, shape `(states, n)`: at a `fold` those of both orbits, at a `period-doubling`
        both of the doubled orbit, at a `neimark-sacker` point 64 around the invariant circle, at a `branch-point` that of
        the branch that crosses. `ValueError` for other kinds. Source: Kuznetsov (2004), chs. 4, 5.
        """
        of = dict(zip(self.form.monomials, np.asarray(self.expansion.reduced)[:, 0], strict=True))
        both = np.array([[amplitude], [-amplitude]], complex)
        if self.kind == "fold":
            w, shift = both, -of[2, 0].real * amplitude**2 / of[0, 1].real
        elif self.kind == "period-doubling":
            w, shift = both, -of[3, 0].real * amplitude**2 / of[1, 1].real
        elif self.kind == "neimark-sacker":
            shift, points, _ = self.circle(amplitude, 64)
            return self._value(shift), np.asarray(after_jumps(self.unfolding, jnp.asarray(points)))
        elif self.kind == "branch-point" and self.form.count == 1:
            a, shift = self._crossing(of, amplitude)
            w = np.array([[a]], complex)
        else:
            raise ValueError(
                f"predictor: no branch of orbits over one parameter leaves a {self.kind} point that it could predict."
            )
        return self._value(shift), np.asarray(after_jumps(self.unfolding, jnp.asarray(self._points(w, shift))))

    def circle(self, amplitude: float, angles: int) -> tuple[float, np.ndarray, float]:
        r"""The invariant circle $|z| = a$ at a Neimark-Sacker point: the scaled parameter's variation, unknowns `v` at equal
        angles of $z$, shape `(angles, k + 1)`, and the angle by which the map turns the circle."""
        of = dict(zip(self.form.monomials, np.asarray(self.expansion.reduced)[:, 0] * self.multipliers[1], strict=True))
        z = amplitude * np.exp(2j * np.pi * np.arange(angles) / angles)
        shift = -of[2, 1, 0].real * amplitude**2 / of[1, 0, 1].real
        turn = np.angle(self.multipliers[0]) + of[2, 1, 0].imag * amplitude**2 + of[1, 0, 1].imag * shift
        return shift, self._points(np.stack([z, z.conj()], axis=1), shift), float(turn)

    def _points(self, w: np.ndarray, shift: float) -> np.ndarray:
        """Unknowns `v` on the center manifold, from critical coordinates of shape `(points, coordinates)`."""
        powers = np.prod(
            np.append(w, np.full((len(w), 1), shift), axis=1)[:, None] ** np.array(self.form.monomials), axis=-1
        )
        return np.asarray(self.v) + (powers @ np.asarray(self.expansion.manifold)).real

    def _value(self, shift: float) -> float:
        return float(self.unfolding.split(self.v)[1][0] + shift * self.unfolding.scale[0])

    def _crossing(self, of: dict, amplitude: float) -> np.ndarray:
        """The other branch at a branch point, `(w, delta)`: $N = w$ to third order near one of the two lines on which the
        quadratic terms vanish, that which is not tangent to the known branch."""
        a, b, c = (of[2 - j, j].real for j in range(3))
        phase, turn = math.atan2(b, a - c), math.hypot(a - c, b)
        half = math.acos(max(-1.0, min(1.0, -(a + c) / turn)))
        known = _on_known(self.expansion, self.unfolding, self.tangent)
        lines = [np.array([math.cos(angle), math.sin(angle)]) for angle in ((phase + half) / 2, (phase - half) / 2)]
        x, y = max(lines, key=lambda line: abs(known[0] * line[1] - known[1] * line[0]))
        slope = (b * x + 2 * c * y) * x - (2 * a * x + b * y) * y
        cubic = sum(of[3 - j, j].real * x ** (3 - j) * y**j for j in range(4))
        return amplitude * np.array([x, y]) - amplitude**2 * cubic / slope * np.array([-y, x])

    def _tables(self):
        names, values = leaf_names(self.unfolding.params), _shown_values(self.unfolding, self.v)
        place = ", ".join(f"{names[i]} = {value:.10g}" for i, value in zip(self.unfolding.free, values, strict=True))
        largest = max(map(abs, self.coefficients.values()), default=0.0)
        rows = [(key, _number(each, largest)) for key, each in self.coefficients.items()]
        rows += [("rate", _number(self.rate))] if np.isfinite(self.rate) else []
        return (Table(f"Normal form of {self.kind} at {place}", rows, notes=[*filter(None, [self.criticality])]),)


@long_run
def after_jumps(unfolding: Unfolding, points: Array) -> Array:
    """The states after the jump that closes the orbit, from unknowns `points`."""

    def one(v):
        before, values = unfolding.split(v)
        return unfolding.problem.closing_jump(before[0], unfolding.params_at(values))

    return jax.vmap(one)(points)


def _shown_values(unfolding: Unfolding, v: Array) -> np.ndarray:
    return without_rounding(unfolding.split(v)[1], unfolding.scale)


def _number(value: Coefficient, largest: float = 0.0) -> str:
    real, imag = without_rounding(np.array([value.real, value.imag]), max(abs(value), 5e-14 * largest))
    return f"{real:.10g}" if imag == 0 else f"{real:.10g} {'+' if imag >= 0 else '-'} {abs(imag):.10g}i"


def normal_form(
    kind: str, unfolding: Unfolding, v: Array, jacobian: Array, multipliers: Array, tangent: Array, rank: int = 1
) -> NormalForm:
    """The normal form at a special point. `jacobian`: dF there, shape `(k, k + 1)`. `multipliers`: all of the orbit; of a branch
    point `rank` of them are 1."""
    spectrum = np.asarray(multipliers)
    if kind in SHIFTS:
        # Multipliers 1 or -1 with eigenvectors of their own, as those of legs that are alike.
        sizes = np.linalg.svd(np.asarray(unfolding.critical(jacobian, kind)), compute_uv=False)
        rank = max(1, int(np.sum(sizes < CRITICAL)))
    own, kind = kind, with_others(kind, spectrum, rank)
    form = FORMS[kind]
    if rank > 1:
        form = form._replace(charges=form.charges * rank)
    critical = critical_multipliers(kind, spectrum, rank)
    found = expansion(unfolding, v, jacobian, jnp.asarray(critical), form)
    of = dict(zip(form.monomials, np.asarray(found.reduced), strict=True))
    rate: Coefficient = math.nan
    if form.parameters and rank == 1:
        alpha = (0, 1) if kind == "fold" else (1, *[0] * (form.count - 1), 1)
        rate = complex(of[alpha][0]) / float(unfolding.scale[0])
        rate = rate if kind == "neimark-sacker" else rate.real
        if kind == "branch-point" and form.count == 1:
            # The branch is w = k delta; of a pitchfork it may be the other one, on which the parameter has an extremum.
            w, delta = _on_known(found, unfolding, tangent)
            rate += 2 * of[2, 0][0].real * w / delta / float(unfolding.scale[0]) if abs(delta) > CRITICAL else 0.0
    coefficients = _coefficients(kind, form, of, critical)
    inside = bool(inside_circle(_without(spectrum, critical)))
    name, value = leaf_names(unfolding.params)[unfolding.free[0]], f"{_shown_values(unfolding, v)[0]:.6g}"
    # A parameter that does not move the multiplier leaves it open on which side.
    moves = lambda sign: abs(sign) * float(unfolding.scale[0]) > 1e-12
    side = lambda sign: f"{name} {'>' if sign > 0 else '<'} {value}" if moves(sign) else ""
    words = criticality(kind, coefficients, complex(rate), critical, inside, side, ft.partial(_rounding, found, form))
    if kind != own:
        words = f"no {own} alone: the multipliers of a {kind} point, of codimension two, are critical here"
    return NormalForm(
        kind, coefficients, critical, np.asarray(found.eigenvectors), rate, words, found, form, unfolding, v, tangent
    )


def _on_known(found: Expansion, unfolding: Unfolding, tangent: Array) -> np.ndarray:
    """The direction `(w, delta)` of the branch itself at a branch point."""
    n = unfolding.dimension
    return np.array([np.real(found.dual[0, -n:]) @ np.asarray(tangent)[:n], tangent[-1]])


def _rounding(found: Expansion, form: FormShape, degree: int) -> float:
    """What is rounding of a coefficient of so high a degree: see `criticality.py`."""
    manifold, dual, reduced, straight = map(np.asarray, (found.manifold, found.dual, found.reduced, found.straight))
    n = found.eigenvectors.shape[1]
    sizes = np.abs(manifold[:, :n]) @ np.abs(dual[0, -n:])
    degrees = np.array([sum(alpha) * (sum(alpha[: form.count]) == sum(alpha)) for alpha in form.monomials])
    unit = np.max(sizes[: form.count])
    bends = [(np.max(sizes[degrees == j]) / unit**j) ** ((degree - 1) / (j - 1)) for j in range(2, form.order + 1)]
    parts = np.abs(straight[:, 0]) + np.abs(reduced - straight)[:, 0]
    state = np.max(np.linalg.norm(manifold[: form.count, :-1], axis=1)) ** (degree - 1) * np.finfo(sizes.dtype).eps
    return float(max(state, CANCELLED * max(unit ** (degree - 1) * max(bends), np.max(parts[degrees == degree]))))


def _without(spectrum: np.ndarray, critical: np.ndarray) -> np.ndarray:
    """The multipliers but the critical ones."""
    rest = list(spectrum)
    for each in critical:
        rest.pop(int(np.argmin(np.abs(np.array(rest) - each))))
    return np.array(rest)


def with_others(kind: str, spectrum: np.ndarray, rank: int = 1) -> str:
    """The kind of normal form at a point of a branch: of codimension two where other multipliers lie on the unit circle too,
    which a center manifold of those of the `kind` alone leaves out. `ValueError` for too many, or one twice."""
    if not FORMS[kind].parameters:
        return kind
    rest = _without(spectrum, critical := critical_multipliers(kind, spectrum, rank))
    # An error moves a double multiplier by its root.
    double = kind != "neimark-sacker" and rank == 1
    margin = np.where(double & (np.abs(rest - critical[0]) < TOGETHER), TOGETHER, CRITICAL)
    others = rest[np.abs(np.abs(rest) - 1) < margin]
    name = lambda mu: "fold" if abs(mu - 1) < TOGETHER else "flip" if abs(mu + 1) < TOGETHER else "neimark-sacker"
    names = [name(mu) for mu in others]
    if not names and (rank == 1 or kind != "fold"):
        return kind
    again = not double and np.min(np.abs(others - critical[0]), initial=1) < TOGETHER
    if rank > 1 or again or len({*names}) > 1 or len(names) != 1 + ("neimark-sacker" in names):
        listed = ", ".join(_number(complex(mu)) for mu in (*critical, *others))
        raise ValueError(f"normal_form: the multipliers {listed} are on the unit circle: there is no form of so many.")
    met = sorted({*names, name(critical[0])}, key=["fold", "flip", "neimark-sacker"].index)
    twice = {"fold": "resonance-1:1", "flip": "resonance-1:2", "neimark-sacker": "double-neimark-sacker"}
    return "-".join(met) if len(met) > 1 else twice[met[0]]


def critical_multipliers(kind: str, spectrum: np.ndarray, rank: int = 1) -> np.ndarray:
    """The critical multipliers at a special point, in the order of the coordinates of its normal form. `spectrum`: all there."""
    above = sorted(spectrum[np.imag(spectrum) > 0], key=lambda mu: abs(abs(mu) - 1))
    pairs = [[mu / abs(mu), np.conj(mu) / abs(mu)] for mu in above]
    third = np.exp(2j * np.pi / 3)
    exact = {
        "fold": [1] * rank, "period-doubling": [-1] * rank, "branch-point": [1] * rank, "cusp": [1], "generalized-flip": [-1],
        "resonance-1:1": [1, 1], "resonance-1:2": [-1, -1], "resonance-1:3": [third, third.conj()],
        "resonance-1:4": [1j, -1j], "fold-flip": [1, -1],
    }  # fmt: skip
    pairs = sorted(pairs[: 1 + (kind == "double-neimark-sacker")], key=lambda pair: np.angle(pair[0]))
    last = {"fold-neimark-sacker": [1], "flip-neimark-sacker": [-1]}.get(kind, [])
    return np.array(exact.get(kind, [*itertools.chain(*pairs), *last]), complex)


# The coordinate's equation and the exponents of each coefficient that has a name.
NAMES = {
    "fold": {"b": (0, (2,))},
    "period-doubling": {"c": (0, (3,))},
    "neimark-sacker": {"d": (0, (2, 1))},
    "branch-point": {"b": (0, (2,)), "c": (0, (3,))},
    "cusp": {"c": (0, (3,))},
    "generalized-flip": {"e": (0, (5,))},
    "chenciner": {"d1": (0, (2, 1)), "d2": (0, (3, 2))},
    "resonance-1:1": {"a": (1, (2, 0)), "b": (1, (1, 1))},
    "resonance-1:2": {"C": (1, (3, 0)), "D": (1, (2, 1))},
    "resonance-1:3": {"b": (0, (0, 2)), "c": (0, (2, 1))},
    "resonance-1:4": {"c": (0, (2, 1)), "d": (0, (0, 3))},
}
# Of these the multiplier is not a factor of the whole right-hand side.
WHOLE = ("resonance-1:3", "resonance-1:4")
# The equations of the others, whose resonant monomials are all of interest.
ROWS = {
    "fold-flip": ("fold", "flip"),
    "fold-neimark-sacker": ("NS", "", "fold"),
    "flip-neimark-sacker": ("NS", "", "flip"),
    "double-neimark-sacker": ("first", "", "second", ""),
}


def _coefficients(
    kind: str, form: FormShape, of: dict[tuple[int, ...], np.ndarray], critical: np.ndarray
) -> dict[str, Coefficient]:
    """The coefficients by name, of the rows of `N` by exponents."""
    single = form.count == 1 or kind not in ("branch-point", "period-doubling", *ROWS)
    if single:
        named = NAMES[kind]
    else:
        rows = ROWS.get(kind, [f"w{k + 1}" for k in range(form.count)])
        named = {
            f"{row} {alpha[: form.count]}": (k, alpha[: form.count])
            for k, row in enumerate(rows) for alpha in form.monomials
            if row and sum(alpha) > 1 == 1 - sum(alpha[form.count :]) and form.resonant(alpha)[k]
        }  # fmt: skip
    found = {}
    for name, (k, alpha) in named.items():
        pair = bool(critical[k].imag)
        value = complex(of[(*alpha, *[0] * form.parameters)][k])
        value = value * critical[k].conj() if pair and kind not in WHOLE else value
        found[name] = value if pair else value.real
    if kind == "chenciner":
        found["L2"] = found["d2"].real + found["d1"].imag ** 2 / 2
    if kind == "resonance-1:4":
        found["A0"] = -1j * found["c"] / abs(found["d"])
    return found
