r"""Loci of equilibria: curves of folds or of Hopf points over two parameters, with their points of codimension two.

The unknowns are the state and both parameters; $F = 0$ and the corner $g$ of a bordered matrix, see `codimension_two.py`: for a
fold of $A = F_y$, for a Hopf point of the matrix with the eigenvalues $\mu_i + \mu_j$, $i < j$,

$$A_{ik} \delta_{jl} + \delta_{ik} A_{jl} - A_{il} \delta_{jk} - \delta_{il} A_{jk}, \qquad i < j,\ k < l.$$

So a curve of Hopf points passes smoothly through a Bogdanov-Takens point, beyond which $\mu_1 + \mu_2 = 0$ is real: a neutral
saddle. Points of codimension two are zeros of functions along the curve:

| kind | on the locus of | function |
|---|---|---|
| cusp | folds | the tangent's components along the parameters, which turn around |
| bogdanov-takens | folds; Hopf points | the derivative of $\det(A - z)$ at $z = 0$; $\mu_1 \mu_2$ of the pair |
| generalized-hopf | Hopf points | $\operatorname{Re} c$ of the normal form, times $\prod \mu$ |
| fold-hopf | folds; Hopf points | $\prod (\mu_i + \mu_j)$, and $\prod \mu$, of the other eigenvalues |
| double-hopf | Hopf points | $\prod (\mu_i + \mu_j)$ of the others; two curves cross, and the point is interpolated |

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 8 and Sec. 10.2; Govaerts (2000), ch. 3, 4, 8.
"""

import dataclasses
import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics.eager import short_run
from .._results.registry import draw
from .._results.table import Table, without_rounding
from .._system.results import described_code
from .._system.types import Scalar
from .codimension_two import END, least_of, LocusEquation, search_locus, STILL, Test, turning_between
from .curve import Curve, PseudoArclength
from .equilibrium_branch import Equilibria, equilibrium_on, EquilibriumPoint, hopf_form
from .location import Followed, nothing, Place, places_of
from .unfolding import Balance

# The largest residual, in units of that of an equilibrium: the condition has second derivatives.
LOOSER = 16.0
MEANINGS = {
    "cusp": "two curves of folds end: between them there are three equilibria",
    "bogdanov-takens": "two eigenvalues are zero: a curve of Hopf points begins at one of folds",
    "generalized-hopf": "super- and subcritical Hopf points meet, and a curve of folds of periodic orbits begins",
    "double-hopf": "two pairs are imaginary: two curves of Hopf points cross",
    "fold-hopf": "an eigenvalue is zero and a pair is imaginary: curves of folds and Hopf points touch",
}
# Where there is no fold, because the equation's derivative by the state and both parameters is singular.
CROSSING = "an eigenvalue is zero and a pair is imaginary: branches of equilibria cross along a curve of Hopf points"


class EquilibriumLocus(Equilibria):
    r"""A curve of folds or of Hopf points of equilibria in the plane of two parameters, from `locus`.

    **Attributes:** `kind`: `fold` or `hopf`. In the order along the curve: `values` of both parameters, shape `(points, 2)`, that
    of the branch first; `x`, states, `(points, n)`; `eigenvalues`, largest real part first, `(points, k)`; `frequencies`,
    $\omega$ of Hopf points in units of 1/time, NaN at neutral saddles and of folds; `neutral`; `residuals`, scaled. `equilibria`:
    the same points as a batch of `Equilibrium`. `parameters`: the names of both. `special_points`: of codimension two, on a curve
    of folds `cusp`, `bogdanov-takens`, `fold-hopf`; of Hopf points `bogdanov-takens`, `generalized-hopf`, `fold-hopf`,
    `double-hopf`; `unresolved`: intervals of the second parameter in which two may lie, or none. `result`. `unfolding`, `curves`,
    `accept`, `method`: the scaled equation of the equilibrium, the curves in all directions, the largest residual, the method.
    `TypeError` for reading the points under `jit`.

    **Example:**

    >>> field = lambda t, x, p: jnp.stack([x[1], p["a"] + p["b"] * x[1] + x[0] ** 2 + x[0] * x[1]])
    >>> system = hj.HybridSystem({"flow": hj.Mode(field, ("x", "y"))}, ())
    >>> params = {"a": jnp.array(-0.3), "b": jnp.array(0.2)}
    >>> rest = hj.phase.equilibrium(system, "flow", jnp.array([-0.5, 0.0]), params)
    >>> branch = hj.continuation(rest, where=lambda p: p["a"], stop=(-0.5, 0.1))
    >>> hopf, fold = branch.special_points
    >>> folds = hj.locus(fold, where=lambda p: p["b"], stop=-0.2)
    >>> for point in folds.special_points:
    ...     print(point.kind, abs(point.value).round(9))
    ...
    bogdanov-takens [0. 0.]

    Source: Kuznetsov (2004), ch. 8 and Sec. 10.2.
    """

    unfolding: Balance
    curves: Curve
    accept: Scalar
    kind: str = eqx.field(static=True)
    method: PseudoArclength = eqx.field(static=True)

    @property
    def frequencies(self) -> np.ndarray:
        r"""$\omega$, shape `(points,)`."""
        squares = np.array([np.prod(_apart(self.kind, row)[0]).real for row in self.eigenvalues])
        return np.sqrt(np.where((squares > 0) & (self.kind == "hopf"), squares, np.nan))

    @property
    def neutral(self) -> np.ndarray:
        """Whether a point is a neutral saddle, of two real eigenvalues, where no orbit is born, shape `(points,)`."""
        return np.isnan(self.frequencies) & (self.kind == "hopf")

    def _search(self) -> tuple[list[EquilibriumPoint], tuple[tuple[float, float], ...]]:
        equation, kind = LocusEquation(self.unfolding, None, self.kind), self.kind
        curve = Followed(equation, len(self.curves.count), self.method, self.accept, _witness)
        product = lambda values: float(np.prod(values).real)
        sums = lambda values: [a + b for a, b in itertools.combinations(values, 2)]
        square = lambda place: product(_apart(kind, place.values)[0])

        def tests_between(a: Place, b: Place, lyapunov: Test) -> dict[str, Test]:
            # The products of many eigenvalues may be small everywhere.
            unit = np.median(np.abs([a.values, b.values])) or 1.0
            critical, others = (lambda place, k=k: _apart(kind, place.values / unit)[k] for k in (0, 1))
            rest = lambda place: [product(np.delete(place.values / unit, k)) for k in range(len(place.values))]
            if kind == "fold":
                return {
                    "cusp": turning_between(a, b),
                    "bogdanov-takens": lambda place: float(np.sum(rest(place))),
                    "fold-hopf": lambda place: product(sums(others(place))),
                }
            tests: dict[str, Test] = {"bogdanov-takens": lambda place: product(critical(place))}
            tests |= {
                "fold-hopf": lambda place: product(others(place)),
                "double-hopf": lambda place: product(sums(others(place))),
            }
            squares = square(a), square(b)
            if min(squares) > END * max(squares):
                # At a Bogdanov-Takens point the coefficient is infinite.
                tests["generalized-hopf"] = lambda place: lyapunov(place) * product([*critical(place), *others(place)])
            return tests

        lyapunov, point = (lambda place: _lyapunov(equation, place, square(place))), lambda *at: _point(equation, *at)
        return search_locus(curve, places_of(curve, self._points), tests_between, lyapunov, point, float(self.accept))

    def plot(self, ax=None):
        """Draw the curve in the plane of both parameters; see `hyjax.plot.locus_diagram`."""
        return draw(self, ax)

    def _tables(self):
        names = ", ".join(self.parameters)
        shown = without_rounding(self.values[[0, -1]], self.unfolding.scale)
        ends = [", ".join(f"{each:.10g}" for each in row) for row in shown]
        rows = [(names, f"({ends[0]}) to ({ends[1]})"), ("result", described_code(self.result))]
        caption = f"Locus of {self.kind}: {len(self.values)} points, mode {self.unfolding.start.mode}"
        return (Table(caption, rows, notes=self._notes()), *self._special_table())


@short_run
def _witness(equation: LocusEquation, v: Array, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    """No test functions, and the scaled eigenvalues."""
    values = equilibrium_on(equation.unfolding, v).eigenvalues
    return {}, values * equation.unfolding.time_scale.astype(values.dtype)


def _apart(kind: str, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues that are critical all along a locus, and the others."""
    return least_of(values, 1 if kind == "fold" else 2, np.sum)


def _alone(equation: LocusEquation, v: Array) -> tuple[Balance, Array]:
    """The equation with the parameter of the branch alone, and its unknowns."""
    both, start = equation.unfolding, equilibrium_on(equation.unfolding, v)
    first = {name: getattr(both, name)[:1] for name in ("free", "origin", "scale")}
    return dataclasses.replace(both, start=start, **first), v[:-1]


def _lyapunov(equation: LocusEquation, place: Place, square: float) -> float:
    frequency = jnp.sqrt(jnp.asarray(square, place.near.v.dtype)) / equation.unfolding.time_scale
    return float(hopf_form(*_alone(equation, jnp.asarray(place.near.v)), frequency).c.real)


def _point(equation: LocusEquation, kind: str, place: Place) -> EquilibriumPoint | None:
    """The special point at a place; `None` where it is none."""
    v, balance = jnp.asarray(place.near.v), equation.unfolding
    critical, others = _apart(equation.kind, place.values)
    pairs = [critical] if equation.kind == "hopf" else []
    pairs += [_apart("hopf", others)[0]] if kind == "double-hopf" or (len(others) > 1 and not pairs) else []
    squares = [float(np.prod(pair).real) for pair in pairs]
    # Of two real eigenvalues, at a neutral saddle, no orbit is born.
    neutral = kind in ("fold-hopf", "double-hopf") and not min(squares, default=0) > 0
    if neutral or (kind == "cusp" and np.linalg.norm(place.near.tangent[-2:]) > STILL):
        return None
    nan, form = jnp.full((), jnp.nan, v.dtype), None
    frequency = jnp.sqrt(jnp.asarray(squares[0], v.dtype)) / balance.time_scale if kind.endswith("-hopf") else nan
    if kind == "generalized-hopf":
        form = hopf_form(*_alone(equation, v), frequency)
    regular = np.linalg.svd(place.near.jacobian[:-1], compute_uv=False)[-1] > nothing(place)
    found, residual = equilibrium_on(balance, v), balance.residual(v)[1].residual
    return EquilibriumPoint(
        balance.origin + v[-2:] * balance.scale, found, frequency, nan, residual, v, balance, form, None, kind=kind,
        meaning=MEANINGS[kind] if regular or kind != "fold-hopf" else CROSSING,
    )  # fmt: skip
