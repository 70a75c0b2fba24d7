"""The result of a fit: parameters with their errors, residuals, and what the data do not determine."""

import dataclasses
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.integrator import pushable
from .._flow.simulate import simulate
from .._flow.trajectory import Trajectory
from .._numerics.eager import short_run
from .._numerics.linearize import linearizable
from .._results.labels import units_of_params
from .._results.registry import draw, load_xarray
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import counted_codes, described_code, nan_unless, RESULTS
from .._system.types import Scalar
from .gauss_newton import Free
from .least_squares import FitProblem, FitSolution, TINY, with_flows
from .links import FlowLinks
from .recording import Recording

if TYPE_CHECKING:
    import xarray


class Fitted(Shown):
    r"""Parameters fitted to recorded data, from `hj.fit`.

    **Attributes:** `params`: with the fitted values; of several records a list. `values`: of the fitted parameters, shape
    `(n,)`, in their units, and `names`. `covariance`: $(J^\top J)^{-1}$ at the end, of the residuals in units of their
    deviations, shape `(n, n)`; multiplied by `deviation**2`, which is the mean square of the residuals per degree of freedom
    where no `noise` was given, and 1 where it was. NaN for parameters that are not determined. `chi_square`: the sum of
    squares, that of the prior included. `degrees`: of freedom, measurements less unknowns. `x0`: states at the start, shape
    `(records, n)`; `start_covariance` of the numbers of a start that was fitted. `predicted`, `residuals`: for each record of
    the model, in the units of the data, and data less model over the deviation, shape `(rows, quantities)`, NaN where nothing
    was measured; `quantities`: their names. `loose`: of relative changes of the parameters and of the
    numbers of the start, those that change no residual: the range of this matrix, shape `(n + m, n + m)`. `start_values`: the
    numbers of the start, shape `(records, m)`. `estimated`: whether the deviation is. `matching`: of each record pairs of a row
    and the number of events before it that were not recorded, and the rows that are no events of the model. `records`: the
    data; `problem`: residuals and gaps as functions of the unknowns, `None` of a fit from a file. `costs`: of all starts.
    `iterations`: evaluations of the record. `result`: a code; see `hj.fit`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> bounces, x0 = jnp.array([0.4514, 1.1738, 1.7518, 2.2141, 2.5839]), jnp.array([1.0, 0.0])
    >>> found = hj.fit(ball.system, bounces, ball.Params(), over=lambda p: p.gravity, x0=x0, mode="flight")
    >>> print(found.interval(0.9).round(3), f"{found.deviation:.0e}")
    [[9.811 9.812]] 6e-05
    """

    params: Any
    values: Float[Array, "*batch n"]
    covariance: Float[Array, "*batch n n"]
    deviation: Float[Array, "*batch"]
    chi_square: Float[Array, "*batch"]
    degrees: Int[Array, "*batch"]
    x0: Float[Array, "*batch records size"]
    start_values: Float[Array, "*batch records m"]
    start_covariance: Float[Array, "*batch unknowns unknowns"]
    predicted: tuple[Float[Array, "..."], ...]
    residuals: tuple[Float[Array, "..."], ...]
    loose: Float[Array, "*batch both both"]
    costs: Float[Array, "*batch starts"]
    iterations: Int[Array, "*batch"]
    result: RESULTS
    names: tuple[str, ...] = eqx.field(static=True)
    quantities: tuple[str, ...] = eqx.field(static=True)
    estimated: bool = eqx.field(static=True)
    matching: tuple = eqx.field(static=True)
    records: tuple[Recording, ...]
    problem: FitProblem | None

    @property
    def standard_errors(self) -> Float[Array, "*batch n"]:
        """Square roots of the variances."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    @property
    def mean_square(self) -> Scalar:
        """The mean square of the residuals, per degree of freedom: near 1 where the deviations are known and the model
        is right; where they are estimated, in the units of the data."""
        return self.deviation**2 if self.estimated else self.chi_square / self.degrees.astype(self.chi_square.dtype)

    @property
    def correlation(self) -> Float[Array, "*batch n n"]:
        """Covariances over both standard errors."""
        errors = self.standard_errors
        return self.covariance / (errors[..., :, None] * errors[..., None, :])

    def interval(self, level: float = 0.95) -> Float[Array, "*batch n 2"]:
        """Confidence intervals of each parameter alone, of that level: by the normal distribution where the deviations of the
        data are known, by Student's t where they are estimated. `ValueError` for a level that is not between 0 and 1."""
        from scipy.stats import norm, t

        if not 0 < level < 1:
            raise ValueError(f"interval: level={level} must be between 0 and 1.")
        half = (1 + level) / 2
        width = t.ppf(half, np.maximum(np.asarray(self.degrees), 1)) if self.estimated else norm.ppf(half)
        wide = jnp.asarray(width)[..., None] * self.standard_errors
        return jnp.stack([self.values - wide, self.values + wide], axis=-1)

    @property
    def undetermined(self) -> list[str]:
        """The combinations of parameters that the data do not determine, in words."""
        names = (*self.names, *(f"start[{k}]" for k in range(len(self.loose) - len(self.names))))
        values = np.append(np.asarray(self.values), np.asarray(self.start_values))[: len(names)]
        return undetermined_words(np.asarray(self.loose), names, values)

    def log_density(self, values: Float[Array, " n"]) -> Scalar:
        r"""The logarithm of the likelihood of the data times the density of the prior, for a sampler:
        $-\tfrac12|r|^2 - \sum\log(\sqrt{2\pi}\sigma_k)$. NaN where a record cannot be simulated.

        **Arguments:** `values`: of the fitted parameters, in their units; after them the numbers of a start that was fitted. The
        deviation is that of the fit. `ValueError` for a fit that was loaded from a file, and for one of a closed orbit.
        """

        def density(values):
            problem, free, weights = self._unconstrained(values)
            chain = problem.chain(free)
            r = problem.residuals(free, chain) / self._factor
            scale = jnp.where(weights > 0, weights / (jnp.sqrt(2 * jnp.pi) * self._factor), 1)
            return nan_unless(chain.result == RESULTS.successful, -r @ r / 2 + jnp.sum(jnp.log(scale))), None

        lax = self.fitted_problem.link.integrator.loop == "lax"
        return (linearizable(density, values) if lax else density(values))[0]

    @property
    def _factor(self) -> Scalar:
        """The deviation of the residuals in units of the weights."""
        return (
            self.deviation * jnp.max(jnp.stack([jnp.max(each.weights) for each in self.records]))
            if self.estimated
            else jnp.ones_like(self.deviation)
        )

    def hessian_covariance(self) -> Float[Array, "n n"]:
        r"""The covariance by the exact Hessian $J^\top J + \sum_k r_k \nabla^2 r_k$ in place of Gauss and Newton's: the same
        where the model is linear in the parameters, or the residuals are small. Compiles second derivatives. `ValueError` as
        for `log_density`."""
        values = self.values
        if self.fitted_problem.start.free:
            values = jnp.concatenate([values, self.start_values.ravel()])
        hessian, n = np.asarray(_hessian(self, values)), len(self.names)
        # Those at a bound stay there, and those that are not determined have no error.
        errors = np.asarray(jnp.concatenate([self.standard_errors, jnp.sqrt(jnp.diagonal(self.start_covariance))]))
        free = np.flatnonzero(errors[: len(values)] > 0)
        whole = np.where(
            np.isnan(errors)[: len(values), None] | np.isnan(errors)[: len(values)], np.nan, np.zeros_like(hessian)
        )
        whole[np.ix_(free, free)] = np.linalg.inv(hessian[np.ix_(free, free)])
        return jnp.asarray(whole[:n, :n]) * self._factor**2

    @property
    def fitted_problem(self) -> FitProblem:
        """The problem; `ValueError` for a fit that was loaded from a file."""
        if self.problem is None:
            raise ValueError("Fitted: a file holds no functions: this fit was loaded from one. Fit again.")
        return self.problem

    def trajectory(self, record: int = 0) -> Trajectory:
        """The simulation of a record at the fitted parameters, to the last time of the data or of the model. `ValueError` for a
        fit of a return map, whose states between passes are not known, and for one from a file."""
        problem, known = self.fitted_problem, self.records[record]
        if not isinstance(problem.link, FlowLinks):
            raise ValueError("Fitted.trajectory: a return map has states after passes only. Simulate its system.")
        params = self.params[record] if isinstance(self.params, list) else self.params
        start, system = problem.start, problem.system
        mode = start.mode if problem.closing is None else problem.link.automaton.target(start.way)
        end = np.nanmax([float(known.values[-1, 0]), float(np.nanmax(self.predicted[record][:, 0]))])
        most, x0 = max(100, problem.link.max_jumps) + 4 * len(known.labels), self.x0[record]
        return simulate(
            system, x0, params, mode=system.names[int(mode)], t0=start.times[record], t1=end, max_jumps=most,
            integrator=problem.link.integrator, throw=False,
        )  # fmt: skip

    def curves(self, record: int = 0, n_samples: int = 60) -> list[tuple[np.ndarray, np.ndarray]]:
        """Times, shape `(n_samples,)`, and measured quantities, shape `(n_samples, quantities)`, along each arc of `trajectory`;
        none for a fit of a return map."""
        problem = self.fitted_problem
        if not isinstance(problem.link, FlowLinks):
            return []
        run, measured = self.trajectory(record), problem.link.measured
        names, pad = problem.system.names, problem.link.automaton.pad
        seen = lambda mode: jax.vmap(lambda t, x: measured(jnp.array(names.index(mode)), t, pad(x), run.params))
        return [(np.asarray(arc.t), np.asarray(seen(arc.mode)(arc.t, arc.x))) for arc in run.sample(n_samples)]

    def _unconstrained(self, values):
        problem = self.fitted_problem
        if problem.closing is not None:
            raise ValueError("Fitted: the start of a closed orbit is no free unknown. Fit a system or a map.")
        n, start = len(self.names), problem.start
        numbers = values[n:].reshape(start.numbers.shape) / start.scale if start.free else start.numbers[:, :0]
        nodes = jnp.zeros((len(self.records), 0, problem.scales.size), values.dtype)
        own = dataclasses.replace(problem, division=None)
        free = Free(values[:n] / problem.unknowns.scale, numbers, nodes)
        prior = [] if own.prior is None else [own.prior[1] / problem.unknowns.scale]
        weights = [own.links.weights.ravel(), own.links.sample_weights.ravel(), *prior]
        return own, free, jnp.concatenate(weights)

    def to_xarray(self) -> "xarray.Dataset":
        """Values, errors and correlations over `parameter`, and of the data the rows of all records over `row`: measurements,
        predictions, residuals. `ImportError` without xarray."""
        xarray = load_xarray()
        record = np.concatenate([np.full(len(each.labels), k) for k, each in enumerate(self.records)])
        measured = [np.where(np.asarray(each.weights) > 0, each.values, np.nan) for each in self.records]
        pair = ("parameter", "parameter_2")
        data = {
            "value": ("parameter", np.asarray(self.values)),
            "standard_error": ("parameter", np.asarray(self.standard_errors)),
            "correlation": (pair, np.asarray(self.correlation)),
            "measured": (("row", "quantity"), np.concatenate(measured)),
            "predicted": (("row", "quantity"), np.concatenate(self.predicted)),
            "residual": (("row", "quantity"), np.concatenate(self.residuals)),
        }
        names = list(self.names)
        coordinates = {
            "parameter": names,
            "parameter_2": names,
            "quantity": list(self.quantities),
            "record": ("row", record),
        }
        about = {name: float(getattr(self, name)) for name in ("chi_square", "degrees", "deviation")}
        return xarray.Dataset(data, coordinates, about | {"result": str(self.result)})

    def plot(self, record: int = 0):
        """A figure of data and fit over time, with the residuals; see `hyjax.plot.fit_figure`."""
        return draw(self, record)

    def _tables(self):
        return (fit_table(self),)


# Residuals are those of noise up to so many standard deviations of their sum of squares, or of their correlation.
UNLIKELY, CORRELATED = 5.0, 4.0


def misfit_words(fit: Fitted) -> list[str]:
    r"""In words, what tells that the residuals are no noise. Of known deviations $\chi^2$ with $d$ degrees of freedom, whose cube
    root is nearly normal, of mean $1 - 2 / 9d$ and variance $2 / 9d$ relative to $\sqrt[3]{d}$; of deviations that are estimated
    the correlation of successive residuals of a quantity, whose deviation is $1 / \sqrt{n}$ for $n$ residuals. Its mean, as $m$
    parameters take part of the noise, is at most $m / (n - m)$: by the projector $H$ onto their columns it is the sum of
    $-H_{i,i+1}$ to $n - m$.

    Source: Wilson, Hilferty (1931), *The distribution of chi-square*; Seber, Wild (1989), *Nonlinear Regression*, sec. 6.
    """
    degrees = int(fit.degrees)
    if degrees < 1:
        return []
    if not fit.estimated:
        square, width = float(fit.chi_square), 2 / (9 * degrees)
        if not (np.cbrt(square / degrees) - 1 + width) / np.sqrt(width) > UNLIKELY:
            return []
        return [
            f"chi-square {square:.6g} is too large for noise, of which it is {degrees} with a deviation of "
            f"{np.sqrt(2 * degrees):.3g}: the model does not follow the data, noise= is too small, or prior= or bounds= keep the "
            "parameters away"
        ]
    taken = max(sum(int(np.sum(np.isfinite(rows))) for rows in fit.residuals) - degrees, 0)
    found = []
    for k, (record, rows) in enumerate(zip(fit.records, fit.residuals, strict=True)):
        size = np.nanmax(np.abs(np.asarray(record.values)), axis=0)
        for name, column, largest in zip(fit.quantities, np.asarray(rows).T, size, strict=True):
            own = column[np.isfinite(column)]
            # What is left of an exact fit is the error of the flow.
            if len(own) <= taken or np.max(np.abs(own)) * float(fit.deviation) <= TINY * largest:
                continue
            correlation = own[1:] @ own[:-1] / (own @ own)
            if abs(correlation) > CORRELATED / np.sqrt(len(own)) + taken / (len(own) - taken):
                alike = "alternate" if correlation < 0 else "go together"
                of_record = f" of record {k}" if len(fit.records) > 1 else ""
                found.append(
                    f"successive residuals of {name}{of_record} {alike}, with a correlation of {correlation:.2f}: the model does "
                    "not follow the data, and the errors are not those of independent noise"
                )
    return found


def undetermined_words(loose: np.ndarray, names: tuple[str, ...], values: np.ndarray) -> list[str]:
    """Words for the projector `loose` onto relative changes of the parameters that change no residual. **Arguments:** `values`:
    of the parameters, by which a sum is told from a product."""
    if loose.ndim != 2 or not np.any(loose):
        return []
    sizes, vectors = np.linalg.eigh(loose)
    found, basis = [], vectors[:, sizes > 1e-6 * sizes.max()].T.copy()
    # Each direction has one unknown of its own: those of the combinations, in the fewest words.
    for k in range(len(basis)):
        row, column = np.unravel_index(np.argmax(np.abs(basis[k:])), basis[k:].shape)
        basis[[k, k + row]] = basis[[k + row, k]]
        basis[k] /= basis[k, column]
        others = np.arange(len(basis)) != k
        basis[others] -= np.outer(basis[others, column], basis[k])
    there = np.abs(basis) > 1e-4
    left = list(range(len(basis)))
    while left:
        # Directions that share unknowns.
        group, used = [left[0]], there[left[0]]
        while more := [k for k in left if k not in group and np.any(there[k] & used)]:
            group, used = group + more, used | np.any(there[more], axis=0)
        left = [k for k in left if k not in group]
        places, rows = np.flatnonzero(used), basis[group][:, used]
        own, count = [names[k] for k in places], len(places)
        listed = " and ".join([", ".join(own[:-1]), own[-1]] if count > 1 else own)
        if count == 1:
            found.append(f"nothing about {listed}")
        elif len(group) == count - 1:
            found.append(f"{listed} only by {_function_words(np.linalg.svd(rows)[2][-1], own, values[places])}")
        elif len(group) == 1 and np.ptp(rows) < 1e-3:
            found.append(f"{listed} only by their ratios")
        else:
            terms = [" ".join(f"{part[k]:+.3g} d{own[k]}/{own[k]}" for k in np.flatnonzero(part)) for part in rows]
            found += [f"all but the combination {each}" for each in terms]
    return found


def _function_words(slopes: np.ndarray, names: list[str], values: np.ndarray) -> str:
    """Words for a function with these derivatives by the logarithms of its arguments: a product of powers, a sum, or neither."""
    if (powers := _whole(slopes)) is not None:
        if len(names) == 2 and np.all(np.abs(powers) == 1):
            return f"their {'product' if powers[0] == powers[1] else 'ratio'}"
        parts = [(name if abs(k) == 1 else f"{name}^{abs(k)}", k > 0) for name, k in zip(names, powers, strict=True)]
        above, below = ([part for part, sign in parts if sign == wanted] for wanted in (True, False))
        return "/".join(["*".join(above), *below])
    if np.all(values != 0) and (counts := _whole(slopes / values)) is not None:
        parts = [
            f"{'+-'[int(k < 0)]} {'' if abs(k) == 1 else abs(k)}{name}" for name, k in zip(names, counts, strict=True)
        ]
        return " ".join(parts).removeprefix("+ ")
    return "the combination " + " ".join(f"{k:+.3g} d{name}/{name}" for name, k in zip(names, slopes, strict=True))


def _whole(numbers: np.ndarray) -> np.ndarray | None:
    """Small whole numbers, the first of them positive, that have the ratios of the given ones, if there are any."""
    scaled = numbers / np.min(np.abs(numbers)) * np.sign(numbers[0])
    for times in range(1, 5):
        if np.all(np.abs(times * scaled - np.round(times * scaled)) < 1e-3) and np.max(np.abs(times * scaled)) < 9:
            return np.round(times * scaled).astype(int)
    return None


def fit_table(fit: Fitted) -> Table:
    """Parameters with their standard errors and intervals; below it what the data say about the fit."""
    if fit.values.ndim > 1:
        counts = [(str(n), code) for code, n in counted_codes(fit.result)]
        return Table(f"{len(fit.values)} fits of {', '.join(fit.names)}", counts)
    params = fit.params[0] if isinstance(fit.params, list) else fit.params
    units = units_of_params(params)
    rows = []
    for k, name in enumerate(fit.names):
        low, high = np.asarray(fit.interval())[k]
        rows.append(
            [
                name,
                units.get(name, ""),
                f"{float(fit.values[k]):.10g}",
                f"{float(fit.standard_errors[k]):.3g}",
                f"{low:.7g}",
                f"{high:.7g}",
            ]
        )
    heads = ("", "unit", "value", "standard error", "95 % from", "to")
    notes = [f"{int(fit.degrees)} degrees of freedom, {int(fit.iterations)} evaluations"]
    if fit.estimated:
        notes.append(f"deviation of the data, from the residuals: {float(fit.deviation):.4g}")
    else:
        notes[0] = f"chi-square {float(fit.chi_square):.6g} with {notes[0]}"
    strong = [(a, b) for a in range(len(fit.names)) for b in range(a) if abs(float(fit.correlation[a, b])) > 0.95]
    notes += [
        f"correlation of {fit.names[b]} and {fit.names[a]}: {float(fit.correlation[a, b]):.4f}" for a, b in strong[:6]
    ]
    notes += [f"the data determine {words}" for words in fit.undetermined]
    notes += misfit_words(fit)
    left = sum(int(np.sum(~np.any(np.asarray(each.weights) > 0, axis=1))) for each in fit.records)
    notes += [f"{left} rows measure nothing, or are samples too near to an event"] * (left > 0)
    for k, (skips, spurious) in enumerate(fit.matching):
        record = f" of record {k}" if len(fit.matching) > 1 else ""
        notes += [f"{count} not recorded before row {row}{record}" for row, count in skips]
        notes += [f"row {row}{record} is no event of the model" for row in spurious]
    return Table("Fitted", rows, heads, notes=[*notes, f"Result: {described_code(fit.result)}"])


@short_run
def _hessian(fit: Fitted, values: Array) -> Array:
    """The Hessian of half the sum of squares, in units of the weights."""

    def half_square(values):
        problem, free, _ = fit._unconstrained(values)
        problem = with_flows(problem, pushable)
        chain = problem.chain(free)
        r = problem.residuals(free, chain)
        return nan_unless(chain.result == RESULTS.successful, r @ r / 2)

    return jax.jacfwd(jax.jacfwd(half_square))(values)


def fitted_of(
    problem: FitProblem,
    solved: FitSolution,
    records: tuple[Recording, ...],
    costs: Array | None,
    estimated: bool,
    many: bool,
) -> Fitted:
    """The result from the end of the search. **Arguments:** `estimated`: whether the deviation is. `many`: whether the parameters
    are a list."""
    unknowns, free, reached = problem.unknowns, solved.free, solved.chain.reached
    weights = sum(jnp.sum(each > 0) for each in (problem.links.weights, problem.links.sample_weights))
    weights = weights if problem.prior is None else weights + jnp.sum(problem.prior[1] > 0)
    degrees = weights - solved.rank
    # The deviation of residuals in units of the weights; unknown where as many unknowns as measurements leave none.
    mean = jnp.where(degrees > 0, solved.cost / jnp.maximum(degrees, 1).astype(solved.cost.dtype), jnp.nan)
    factor = jnp.sqrt(mean) if estimated else jnp.ones_like(solved.cost)
    unit = 1 / jnp.max(jnp.stack([jnp.max(each.weights) for each in records])) if estimated else 1.0
    start, size = problem.start, jnp.tile(problem.start.scale, len(records))
    loose = jnp.diagonal(solved.projector) > 0

    def covariance(of: Array, scale: Array, off: Array) -> Array:
        return jnp.where(off[:, None] | off, jnp.nan, factor**2 * scale[:, None] * scale * of)

    n = free.theta.size
    numbers = start.at(free.start)
    params = [problem.params_of_record(free.theta, k) for k in range(len(records))]
    sizes = jnp.concatenate([free.theta, free.start.ravel()])
    relative = 1 / jnp.where(sizes == 0, 1, sizes)
    predicted = tuple(_rows(problem, reached, record, k) for k, record in enumerate(records))
    measured = lambda record, values: jnp.where(record.weights > 0, values, jnp.nan)
    return Fitted(
        params=params if many else params[0],
        values=free.theta * unknowns.scale,
        covariance=covariance(solved.covariance, unknowns.scale, loose[:n]),
        deviation=factor * unit,
        chi_square=solved.cost / factor**2,
        degrees=degrees,
        x0=jnp.stack([problem.start_state(*each) for each in zip(numbers, start.times, params, strict=True)]),
        start_covariance=covariance(solved.start_covariance, size, loose[n:]) if start.free else jnp.zeros((0, 0)),
        predicted=predicted,
        residuals=tuple(
            measured(record, record.weights * (record.values - found) / factor)
            for record, found in zip(records, predicted, strict=True)
        ),
        loose=relative[:, None] * relative * solved.projector,
        costs=solved.cost[None] if costs is None else costs,
        iterations=solved.iterations,
        result=solved.result,
        start_values=numbers,
        names=tuple(unknowns.names),
        quantities=records[0].names,
        estimated=estimated,
        matching=((),) * 0,
        problem=problem,
        records=records,
    )


def _rows(problem: FitProblem, reached, record: Recording, k: int) -> Float[Array, "rows quantities"]:
    """The predictions of a record in the order of its rows, NaN for those that no link has."""
    rows, links = len(record.labels), problem.links
    table = jnp.full(record.values.shape, jnp.nan, record.values.dtype)
    for place, values in ((links.row[k], reached.ending[k]), (links.sample_rows[k], reached.samples[k])):
        table = table.at[jnp.where(place < 0, rows, place)].set(values, mode="drop")
    return table
