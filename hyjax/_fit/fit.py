"""Parameters of a hybrid system from recorded data, by least squares through events."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.automaton import Automaton
from .._flow.check import check_params, check_state, check_system, check_times
from .._flow.choices import shape_of
from .._flow.integrator import for_modes, Integrator, IntegratorLike, Integrators
from .._numerics.eager import short_run
from .._optimize.nonlinear_program import NonlinearProgram
from .._optimize.optimize import starting_points
from .._optimize.orbit_program import Bounds, pairs_of, Unknowns, unknowns_of
from .._orbit.orbit import PeriodicOrbit
from .._orbit.return_map import ReturnMap
from .._orbit.shooting import AbstractShooting, MultipleShooting, SingleShooting
from .._results.failure import raise_failure
from .._results.shown import is_traced
from .._results.working import warn, working
from .._system.results import choose, RESULTS
from .._system.section import Stroboscope
from .._system.system import HybridSystem
from .._system.types import Params, require_counts, require_function
from .._system.where import Where
from .alignment import match, MOST
from .fitted import Fitted, fitted_of, misfit_words
from .gauss_newton import Free
from .least_squares import Division, FitProblem, RecordStart, solve, TINY
from .links import FlowLinks, MapLinks, measured_of
from .recording import (
    BESIDE,
    code_of_record,
    Links,
    links_of,
    Matching,
    of_one_deviation,
    Recording,
    recording,
    ways_of,
)

Data = Any


def fit(
    model: HybridSystem | ReturnMap | PeriodicOrbit,
    data: Data,
    params: Params,
    *,
    over: Where,
    x0: Any = None,
    mode: str | None = None,
    t0: float | None = None,
    observe: Mapping[str, Callable] | None = None,
    noise: Any = None,
    prior: Bounds = None,
    bounds: Bounds = None,
    starts: int | Float[Array, "starts n"] = 1,
    shooting: AbstractShooting = SingleShooting(),
    max_jumps: int = 100,
    max_iterations: int = 64,
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> Fitted:
    r"""Fit parameters to recorded data: $\min_p \sum_k |y_k - h(t_k, x(t_k), p)|^2 / \sigma_k^2$, with residuals that stay smooth
    where events pass samples.

    The data are a table of instants in time, each an event or a sample between events. Events are compared with events, the
    $k$-th with the $k$-th: their times, and what was measured there; different kinds within three deviations of each other may
    have any order. Samples between two events are compared on the clock of the model, at the same part of the interval between
    its two events, so that no event passes a sample; in a record without events, at their own times. Derivatives are exact, and
    the method is Levenberg and Marquardt's.

    Where a fit of event after event fails, or an event is off by a quarter of an interval or by eight deviations, events that
    were not recorded and rows that are no events are searched for, and named in `matching`, and events whose order is the other
    one at the guess; not under `jit`. A sample that is nearer to an event than three deviations of its time is left out: the time
    does not tell on which side of the jump it was.

    **Arguments:**

    - `model`: a `HybridSystem`; a `ReturnMap`, of which every row is one pass, and every column the state after it; or a
      `PeriodicOrbit`, of one lap that starts at its `x`: the state there is unknown, and the orbit stays closed.
    - `data`: a dictionary of columns, a pandas table, an `xarray.Dataset` of one dimension, a series or array that has a name and
      an index or coordinate `time`, or the path of a CSV file. `time`;
      one column for each measured coordinate, or name in `observe`, NaN where it is not measured; at an event the state after
      the jump, and with the name `y_before` before it. `event`: empty, `None` or NaN for a sample; `"*"` or True for an event
      of any kind; of one kind the mode that it enters, `"flight->stance"`, a transition's number, or a guard of a family,
      `"network[3]"`. An array of shape `(events,)` is the times of all events, or passes. A list of tables of the same columns is
      several records, each with its own `x0` and, where `params` is a list, its own other parameters.
    - `params`: with the first guess of those that are fitted. `over`: the lens that selects these, numbers or arrays.
    - `x0`, `mode`, `t0`: state, mode and time at the start. Of a start that is not known, `x0` is a pair of a function
      `(s, params) -> x0` and a guess of its numbers `s`, which are fitted too.
    - `observe`: by name, functions `(t, x, params) -> number`.
    - `noise`: standard deviations: a number, an array over the rows, or one of these for each column, by name, that of the
      times of events as `time`. Without it, of one column alone, the deviation is estimated from the residuals.
    - `prior`: a pair `(mean, deviation)` for each selected parameter, or `None`. `bounds`: a pair `(low, high)`, or `None`;
      a parameter that ends at a bound has the error zero.
    - `starts`: the number of first guesses, spread over finite bounds by Sobol's sequence, or their values, shape `(starts, n)`.
    - `shooting`: `hj.MultipleShooting()` has an unknown state at every event, so that long and chaotic records are fitted, and
      from distant guesses; the gaps close in the end.
    - `max_jumps`: from one event of the data to the next, and of `max_iterations` trials in a search, the largest number, static.
      `integrator`: as in `simulate`. Derivatives of residuals are in forward mode, and in reverse mode where the unknowns are
      more than four times the residuals and gaps, such as the weights of a network, or with `diffrax.RecursiveCheckpointAdjoint`.
      `throw`: raise a `SolveError` on failure.

    **Returns:** `Fitted`, also under `jit` and `vmap` over the numbers of `data`, `params` and `x0`, by which `values` are
    differentiable in forward mode. `result` is `successful`; `undetermined`, where a combination of the
    parameters changes no residual; `unmatched_events`, where an event of the data stays far from those of the model, or the model
    has more of a recorded kind, not under `jit`; `optimum_not_found`; or the code of a simulation, such as `no_crossing` where an
    event of the data has none in the model. Under `jit` and `vmap` times that are NaN at the end of a record are no rows; one
    before the end is `nonfinite`, as is a deviation that is not positive and finite, and times that do not increase are
    `unmatched_events`. `ValueError` for data that do not fit: the message names the column or the number; and for a function of
    `observe` or `x0` with an index out of range. A warning, not under `jit`, where residuals are too large for `noise`, or where
    those of a deviation that is estimated are correlated, as those of an orbit of twice the period, which alternate.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> bounces = jnp.array([0.4514, 1.1738, 1.7518, 2.2141, 2.5839])
    >>> x0 = jnp.array([1.0, 0.0])
    >>> over = lambda p: (p.gravity, p.restitution)
    >>> found = hj.fit(ball.system, bounces, ball.Params(), over=over, x0=x0, mode="flight", noise=1e-4)
    >>> print(found.values.round(3), found.standard_errors.round(4), found.result)
    [9.812 0.8  ] [0.0018 0.    ] successful

    Source: Bock (1987), *Randwertproblemmethoden zur Parameteridentifizierung in Systemen nichtlinearer Differentialgleichungen*;
    Seber, Wild (1989), *Nonlinear Regression*.
    """
    if not isinstance(shooting, SingleShooting | MultipleShooting):
        raise ValueError(f"fit: shooting={shooting!r} must be hj.SingleShooting() or hj.MultipleShooting().")
    divided = isinstance(shooting, MultipleShooting)
    if isinstance(model, ReturnMap | PeriodicOrbit) and mode is not None:
        raise ValueError(f"fit: mode={mode!r} is that of a system; a map and an orbit know theirs.")
    if prior is not None and noise is None:
        raise ValueError("fit: prior= needs noise=, the deviation of the data, by which both are weighed.")
    require_counts("fit", 1, max_iterations=max_iterations)
    require_counts("fit", 0, max_jumps=max_jumps)
    given, x0s, many = _records(data, params, x0)
    if many and isinstance(model, PeriodicOrbit):
        raise ValueError("fit: an orbit has one record, of one lap.")
    if many and isinstance(noise, list):
        raise ValueError("fit: noise= of several records is a number, or one for each column.")
    system, mode, t0, integrator = _of_model(model, mode, t0, integrator)
    start, system = _start(model, system, x0s, given, mode, t0, integrator)
    dtype = start["numbers"][0].dtype
    observe, events = observe or {}, isinstance(model, ReturnMap)
    if not (isinstance(observe, Mapping) and all(map(callable, observe.values()))):
        raise ValueError(f"fit: observe={observe} must hold a function (t, x, params) -> number for each name.")
    for name, function in observe.items():
        require_function(function, "t, x, params", f"fit: observe= of {name!r}")
    records = [
        recording(each, system, given[0], observe, noise, t0, events, dtype)
        for each in (data if many else [data])
    ]  # fmt: skip
    records = of_one_deviation(records) if noise is None else records
    if len({each.names for each in records}) > 1:
        raise ValueError(f"fit: the records have different columns, {[each.names for each in records]}.")
    times = np.full(len(records), t0, dtype)
    # A `zip` of lows and highs is read once.
    bounds = list(bounds) if isinstance(bounds, Iterator) else bounds
    unknowns = unknowns_of(over, given[0], bounds, dtype, "fit")
    labels = [] if events else list(dict.fromkeys(each for own in records for each in own.labels if each is not None))
    kinds = np.stack([ways_of(label, system) for label in labels] or [np.zeros(max(len(system.ways), 1), bool)])
    longest = np.asarray(np.max([part.max_time for part in integrator.parts]), dtype)
    guess = unknowns.vector(given[0])
    bounded = bounds is not None and any(each is not None for each in bounds)
    if bounded or not isinstance(starts, int) or starts != 1:
        inside = NonlinearProgram(lambda u, carry: carry, unknowns.lower, unknowns.upper, 0, 0)
        guesses = starting_points(inside, unknowns, guess, starts, "fit")
    else:
        guesses = guess
    prior = _prior(prior, unknowns)
    # Kinds that share events would take each other's.
    shared = np.any(np.sum(kinds, axis=0) > 1)
    within = None if shared or not labels else BESIDE if noise is not None else 0.0
    passes = (model.sequence, model.strides) if isinstance(model, PeriodicOrbit) else model if events else None
    model_of = system, passes, observe, kinds, integrator, longest, max_jumps, divided

    def solved(matchings: Sequence[Matching], guesses) -> Fitted:
        number = labels.index if labels else lambda label: 0
        links = links_of(records, number, times[0], divided, matchings, within)
        if not any(each.spurious for each in matchings):
            _check_count(records, prior, start, guess.size, isinstance(model, PeriodicOrbit))
        found = _solved(
            model_of, links, given, unknowns, start | {"times": times}, prior, guesses, tuple(records), many,
            bounded, max_iterations, noise is None,
        )  # fmt: skip
        return dataclasses.replace(found, matching=shown(matchings))

    with working("fitting: compiling"):
        found = _matched(solved, records, labels, guesses)
    for each in records:
        if is_traced([each.values, each.weights]):
            code = code_of_record(each, times[0])
            found = dataclasses.replace(found, result=choose(code == RESULTS.successful, found.result, code))
    if not is_traced(found) and _ended(found):
        for words in misfit_words(found):
            warn(f"fit: {words}.")
    return raise_failure("fit", found, remedy=REMEDY) if throw else found


# Fits with the matching of the fit before; and the most fits with an event passed on trial, one before each row: with these a
# record that matches nothing takes about five times as long.
ROUNDS, TRIALS = 5, 40
# Reverse mode pays for more unknowns than so many times the rows: with 193 weights of a network in a ball's drag and 54 rows an
# evaluation takes 20 ms in both modes, with 49 it takes 3 ms and 20 ms.
MANY = 4
REMEDY = "With throw=False the fit is returned, with the code in `result`."


def _records(data: Any, params: Any, x0: Any) -> tuple[list[Params], list, bool]:
    """For each record its parameters and its start; and whether there are several."""
    table = lambda each: (
        isinstance(each, Mapping | str | Path) or hasattr(each, "columns") or hasattr(each, "data_vars")
    )
    many = isinstance(data, list | tuple) and bool(len(data)) and (table(data[0]) or np.ndim(data[0]) > 0)
    if not many:
        if isinstance(params, list):
            raise ValueError(f"fit: params= is a list of {len(params)}, and the data are one record. Give one of them.")
        return [check_params(params)], [x0], False
    own = [check_params(each) for each in params] if isinstance(params, list) else [check_params(params)] * len(data)
    starts = list(x0) if isinstance(x0, list) else [x0] * len(data)
    for name, each in (("params", own), ("x0", starts)):
        if len(each) != len(data):
            raise ValueError(f"fit: {len(data)} records, and a list of {len(each)} in {name}=.")
    return own, starts, True


def _of_model(model, mode: str | None, t0: float | None, integrator) -> tuple[HybridSystem, str, float, Integrators]:
    """System, first mode, start time and integrator of a model."""
    if isinstance(model, PeriodicOrbit):
        if model.period.ndim:
            raise ValueError(f"fit: this is a batch of {len(model)} orbits. Take one of them, such as orbits[0].")
        if not is_traced(model.x) and not np.all(np.isfinite(model.x)):
            raise ValueError(f"fit: this orbit was not found, {model.result}. Find one near the data first.")
        own, given = model.sequence[0], model.integrator
    elif isinstance(model, ReturnMap):
        own, given = model.mode, model.integrator_or(Integrator())
    elif isinstance(model, HybridSystem):
        if mode is None:
            raise ValueError(f"fit: give mode=, the first mode, one of {model.names}.")
        own, given = mode, Integrator()
    else:
        raise ValueError(
            f"fit: {type(model).__name__} must be a hj.HybridSystem, a hj.ReturnMap or a hj.PeriodicOrbit."
        )
    system = model if isinstance(model, HybridSystem) else model.system
    if isinstance(model, ReturnMap) and isinstance(model.section, Stroboscope):
        if len(system.names) > 1 or callable(model.section.phase):
            raise ValueError("fit: a period may end in another mode. Give the system, and samples at those times.")
        t0 = float(model.section.phase) if t0 is None else t0
    t0 = 0.0 if t0 is None else t0
    if not is_traced(t0) and not (np.asarray(t0).dtype.kind in "fiu" and np.all(np.isfinite(t0))):
        raise ValueError(f"fit: t0={t0} must be a finite time.")
    return system, own, t0, for_modes(system, given if integrator is None else integrator)


def _start(
    model, system: HybridSystem, x0s: list, params: list[Params], mode: str, t0: float, integrator: Integrators
) -> tuple[dict[str, Any], HybridSystem]:
    """The start of the records, but for its times, and the system, which knows the sizes of its families."""
    way = -1
    if isinstance(model, PeriodicOrbit):
        if x0s[0] is not None:
            raise ValueError("fit: x0= is that of the orbit, and is fitted.")
        # The state before the jump that closes the orbit.
        x0s, mode, way = [(_itself, model.arc_ends[-1][-1])], model.sequence[-1], system.route(model.sequence)[-1]
    if x0s[0] is None:
        raise ValueError("fit: give x0=, the state at the start, or (function, guess) where it is not known.")
    free = isinstance(x0s[0], tuple)
    function = x0s[0][0] if free else _itself
    if any(isinstance(each, tuple) != free or (free and each[0] is not function) for each in x0s):
        raise ValueError("fit: x0= of several records has one function for all, or none.")
    numbers = [jnp.asarray(each[1] if free else each) for each in x0s]
    numbers = [each if jnp.issubdtype(each.dtype, jnp.floating) else each.astype(float) for each in numbers]
    if free and (not callable(function) or any(each.ndim != 1 for each in numbers)):
        raise ValueError(
            "fit: x0=(function, s) must be a function (s, params) -> x0, and its numbers, shape (numbers,)."
        )
    if wrong := [each for each in numbers if free and not is_traced(each) and not np.all(np.isfinite(each))]:
        raise ValueError(f"fit: the guess {wrong[0]} of x0=(function, guess) is not finite. Give finite numbers.")
    if len({each.shape for each in numbers}) > 1:
        raise ValueError(
            f"fit: the starts of the records have the shapes {[each.shape for each in numbers]}. Give equal ones."
        )
    for each, own in zip(numbers, params, strict=True):
        x = shape_of(function, each, own, what="fit: x0=") if free else each
        x = check_state(jnp.zeros(x.shape, x.dtype) if free else x, system.mode(mode).dimension, mode)
        integrator.tolerances(x.dtype)
        system = check_system(system, check_times(t0, x.dtype, "fit", "t0", 0), x, own)
    known = {"function": function, "numbers": numbers, "mode": system.number(mode), "way": way, "free": free}
    return known, system


def _itself(s, params):
    return s


def _stacked(params: list[Params]) -> Params:
    """The parameters of all records, arrays with an axis for records. `ValueError` for others that differ."""
    arrays, rest = zip(*(eqx.partition(each, eqx.is_array) for each in params), strict=True)
    if any(not eqx.tree_equal(each, rest[0]) for each in rest):
        raise ValueError("fit: the parameters of the records may differ in their arrays only.")
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


def _matched(solved: Callable, records: Sequence[Recording], labels: list, guesses) -> Fitted:
    """The fit, with recorded events that have no partner in the model left out, and events that were not recorded passed, where a
    fit of event after event fails or leaves residuals that are no noise."""
    nothing = (Matching({}, ()),) * len(records)
    found = solved(nothing, guesses)
    if is_traced(found) or not labels or not (_suspicious(found) or _events_left(found, labels)):
        return found
    assert found.problem is not None
    best, done = found, [nothing]
    for theta in (jnp.atleast_2d(guesses)[0], found.values / found.problem.unknowns.scale):
        for _ in range(ROUNDS):
            if not np.all(np.isfinite(np.asarray(theta))):
                break
            matchings = tuple(match(found.problem, record, k, theta, labels) for k, record in enumerate(records))
            dropped = sum(len(each.spurious) for each in matchings)
            if matchings in done or 2 * dropped > sum(len(each.labels) for each in records):
                break
            done.append(matchings)
            other = solved(matchings, guesses)
            theta = other.values / found.problem.unknowns.scale
            # Each row that is left out, and each event that is passed, has to pay for itself.
            better = not _ended(best) or _marked_square(other) < _marked_square(best)
            best = other if _ended(other) and better else best
    if _ended(best) and best.matching != shown(nothing):
        # From there, event after event may succeed.
        whole = solved(nothing, best.values / found.problem.unknowns.scale)
        pays = _ended(whole) and _marked_square(best) >= float(whole.mean_square)
        best = whole if pays else best
    if _astray(best, labels):
        best = _with_events_passed(solved, best, labels, guesses)
    return dataclasses.replace(best, result=RESULTS.unmatched_events) if _astray(best, labels) else best


def _with_events_passed(solved: Callable, best: Fitted, labels: list, guesses) -> Fitted:
    """The fit with events of the model passed one by one, each where that lowers the residuals most, if it follows the data then;
    else `best`. So an error of the guess that is as large as what an event more or less makes does not matter."""
    marks = (Matching({}, ()),) * len(best.records)
    rows = [
        (k, row) for k, each in enumerate(best.records) for row, label in enumerate(each.labels) if label is not None
    ]
    least = np.inf
    for _ in range(min(MOST, TRIALS // max(len(rows), 1))):
        tried = []
        for k, row in rows:
            own = marks[k]._replace(skips={**marks[k].skips, row: marks[k].skips.get(row, 0) + 1})
            own = (*marks[:k], own, *marks[k + 1 :])
            other = solved(own, guesses)
            tried.append((_marked_square(other) if _ended(other) else np.inf, own, other))
        square, marks, other = min(tried, key=lambda each: each[0])
        if not square < least:
            break
        if not _astray(other, labels):
            return other
        least = square
    return best


def _astray(fit: Fitted, labels: list) -> bool:
    """Whether a fit that ended does not follow the events."""
    return _ended(fit) and (_events_off(fit, beyond_noise=True) or _events_left(fit, labels))


def _ended(fit: Fitted) -> bool:
    """Whether a least square was found, of parameters that the data determine, or not."""
    return int(fit.result._value) in (int(RESULTS.successful._value), int(RESULTS.undetermined._value))


def _marked_square(fit: Fitted) -> float:
    """The mean square of the residuals, larger for each mark: Schwarz's criterion, by which a mark costs its place among the rows
    and the number that it frees."""
    marks = sum(len(skips) + len(rows) for skips, rows in fit.matching)
    if marks and fit.degrees < 1:
        return np.inf
    count = sum(len(each.labels) for each in fit.records)
    # Of two exact fits the one with fewer marks.
    times = [np.asarray(each.values * (1.0 if fit.estimated else each.weights))[:, 0] for each in fit.records]
    exact = TINY * max(np.nanmax(np.abs(each)) for each in times)
    return (float(fit.mean_square) + exact**2) * count ** (3 * marks / max(int(fit.degrees), 1))


def _suspicious(found: Fitted) -> bool:
    """Whether the fit failed, or an event is off by a quarter of the interval beside it, or by eight standard deviations."""
    return not _ended(found) or _events_off(found)


def _events_off(found: Fitted, beyond_noise: bool = False) -> bool:
    """Whether an event is off by a quarter of the interval beside it, or by eight standard deviations; or `beyond_noise`, by such
    a quarter and more than noise. Noise of unknown size is what most events are off by, unless that is a quarter of most
    intervals."""
    assert found.problem is not None
    astray = False
    for record, predicted, residuals in zip(found.records, found.predicted, found.residuals, strict=True):
        rows = np.array([row for row, label in enumerate(record.labels) if label is not None], int)
        times, model = (np.asarray(each)[rows, 0] for each in (record.values, predicted))
        between = np.diff(times, prepend=np.asarray(found.problem.start.times)[0])
        near, off = np.minimum(between, np.append(between[1:], np.inf)), np.abs(times - model)
        far = (off > near / 4) & (near > 0)
        if found.estimated:
            typical = np.nanmedian(off) if np.any(np.isfinite(off)) else 0.0
            # Six medians are four standard deviations.
            noise, wild, wide = off <= 6 * typical, False, typical > np.median(between) / 4
        else:
            size = np.abs(np.asarray(residuals)[rows, 0])
            noise, wild, wide = size < 4, np.any(size > 8), False
        astray |= bool(wide or np.any(far & ~noise) if beyond_noise else wild or np.any(far))
    return astray


def _events_left(found: Fitted, labels: list) -> bool:
    """Whether the model has more or fewer events of a recorded kind than the data: links to events of other kinds pass them."""
    assert found.problem is not None
    link = found.problem.link
    if len(labels) < 2 or not isinstance(link, FlowLinks) or found.problem.closing is not None:
        return False
    # A run from the start alone may leave what free states hold.
    if found.problem.division is not None:
        return False
    # Labels that share events are not counted: which of these a row is, it does not say.
    alone, ways = np.sum(kinds := np.asarray(link.kinds), axis=0) == 1, found.problem.system.ways
    for k, (record, (skips, spurious)) in enumerate(zip(found.records, found.matching, strict=True)):
        weights = np.trim_zeros(np.asarray(record.weights[:, 0]))
        if not weights.size:
            continue
        run, predicted = found.trajectory(k), np.asarray(found.predicted[k])[:, 0]
        # At the end the record may have stopped between events; and the run, whose jumps are limited.
        deviation = float(found.deviation) if found.estimated else 1 / weights[-1]
        end, start = np.minimum(np.nanmax(predicted), run.t), found.problem.start.times[k]
        end = end - 1e-6 * (end - start) - (BESIDE * deviation if deviation > 0 else 0)
        met = np.column_stack([run.transitions, run.indices])[np.asarray(run.end_times) < end]
        for label, mask in zip(labels, kinds, strict=True):
            kept = {row for row, own in enumerate(record.labels) if own == label and predicted[row] < end} - {*spurious}
            missed = sum(count for row, count in skips if row in kept)
            if np.all(alone[mask]) and len(kept) + missed != np.sum(np.all(met[:, None] == ways[mask], axis=-1)):
                return True
    return False


def shown(matchings: Sequence[Matching]) -> tuple:
    """The matchings as a result keeps them: for each record pairs of row and count, and rows."""
    return tuple((tuple(sorted(each.skips.items())), each.spurious) for each in matchings)


def _scales(
    start: RecordStart, records: Sequence[Recording], system: HybridSystem, closed: bool
) -> Float[Array, " coordinates"]:
    """Sizes of time and state, by which gaps are measured."""
    dimension, numbers = max(mode.dimension for mode in system.modes.values()), jnp.ones(0, start.scale.dtype)
    numbers = start.scale if closed else numbers
    size = jnp.append(numbers, jnp.ones(dimension - numbers.size, numbers.dtype))
    spans = [(jnp.nanmax(each.values[:, 0]) - start.times[0]) / len(each.labels) for each in records]
    span = jax.lax.stop_gradient(jnp.max(jnp.stack(spans)))
    return jnp.concatenate([jnp.reshape(jnp.where(span > 0, span, 1), 1), size.astype(span.dtype)])


def _prior(prior: Bounds, unknowns) -> tuple | None:
    """Mean and one over the deviation of the scaled unknowns."""
    if prior is None:
        return None
    mean, weight = [], []
    leaves = jax.tree.leaves(unknowns.params)
    for i, pair in zip(unknowns.free, pairs_of(prior, len(unknowns.free), "fit", "prior"), strict=True):
        shape = jnp.shape(leaves[i])
        if pair is not None and any(each is None or isinstance(each, str) for each in pair):
            raise ValueError(f"fit: prior={pair} must be (mean, deviation), two numbers.")
        if pair is not None and not is_traced(pair[1]) and not np.all(np.asarray(pair[1]) > 0):
            raise ValueError(f"fit: prior={pair} must be (mean, deviation) with a positive deviation.")
        if pair is not None and not is_traced(pair[0]) and not np.all(np.isfinite(np.asarray(pair[0]))):
            raise ValueError(f"fit: prior={pair} must be (mean, deviation) with a finite mean.")
        own = (leaves[i], jnp.inf) if pair is None else pair
        mean.append(jnp.ravel(jnp.broadcast_to(jnp.asarray(own[0], unknowns.scale.dtype), shape)))
        deviation = jnp.asarray(own[1], unknowns.scale.dtype)
        weight.append(jnp.ravel(jnp.broadcast_to(jnp.where(deviation > 0, 1 / deviation, jnp.nan), shape)))
    return jnp.concatenate(mean) / unknowns.scale, jnp.concatenate(weight) * unknowns.scale


def _check_count(
    records: Sequence[Recording], prior: tuple | None, start: Mapping[str, Any], count: int, closed: bool
) -> None:
    """`ValueError` for more unknowns than residuals. **Arguments:** `count`: of the parameters."""
    if is_traced(([each.weights for each in records], prior)):
        return
    rows = sum(int(np.sum(np.asarray(each.weights) > 0)) for each in records)
    rows += 0 if prior is None else int(np.sum(np.asarray(prior[1]) > 0))
    # The gap of a closed orbit is as many numbers as its start.
    unknown = count + (sum(each.size for each in start["numbers"]) if start["free"] and not closed else 0)
    if rows < unknown:
        raise ValueError(
            f"fit: {rows} measurements do not determine {unknown} unknowns. Fit fewer parameters, or give a prior=."
        )


def _problem(
    model: tuple, links: Links, params: list[Params], unknowns: Unknowns, start: Mapping[str, Any], prior: tuple | None,
    records: Sequence[Recording],
) -> FitProblem:  # fmt: skip
    """The problem of a fit, made while its program is traced: once for each model and the shapes of its data. **Arguments:**
    `model`: what `fit` makes of it."""
    system, passes, observe, kinds, integrator, longest, max_jumps, divided = model
    closed, times = isinstance(passes, tuple), jnp.asarray(start["times"])
    measured = measured_of(system, records[0].names, observe, times[0], times.dtype, unknowns.params)
    closing = None
    if isinstance(passes, ReturnMap):
        if passes.sequence is None and (divided or any(measured.early)):
            raise ValueError(
                "fit: a map of a section has no states before a jump, and no MultipleShooting. Give a sequence=."
            )
        step = eqx.tree_at(lambda each: each.integrator, passes, integrator, is_leaf=lambda each: each is None)
        link = MapLinks(step, measured)
    else:
        # Free states may lie outside of a domain on the way.
        inside = system.without_domains() if divided or closed else system
        link = FlowLinks(Automaton(inside), measured, jnp.asarray(kinds), integrator, max_jumps, jnp.asarray(longest))
        if closed:
            sequence, strides = passes
            closing = MapLinks(ReturnMap(inside, sequence=sequence, strides=strides, integrator=integrator), measured)
    numbers = jnp.stack(start["numbers"])
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(numbers), axis=0))
    begin = RecordStart(
        eqx.Partial(start["function"]), numbers, jnp.where(size > 0, size, 1), times, jnp.array(start["mode"]),
        jnp.array(start["way"]), start["free"],
    )  # fmt: skip
    scales = _scales(begin, records, system, closed)
    return FitProblem(link, links, _stacked(params), unknowns, begin, prior, closing, None, scales)


@short_run
def _solved(
    model: tuple, links: Mapping[str, Array | np.ndarray], params: list[Params], unknowns: Unknowns, start: Mapping[str, Any],
    prior: tuple | None, guesses: Float[Array, "..."], records: tuple[Recording, ...], many: bool, bounded: bool,
    max_iterations: int, estimated: bool,
) -> Fitted:  # fmt: skip
    columns = Links(**{name: jnp.asarray(column) for name, column in links.items()})
    problem = _problem(model, columns, params, unknowns, start, prior, records)
    guesses, (*_, divided) = jnp.atleast_2d(guesses), model
    own = (
        problem.start.numbers / problem.start.scale
        if problem.start.free
        else jnp.zeros((len(records), 0), guesses.dtype)
    )
    between = problem.links.kind.shape[1] - 1 if divided else 0
    nodes = jnp.zeros((len(records), between, problem.scales.size if between else 0), guesses.dtype)
    if between:
        number = jnp.zeros((len(records), between), int)
        division = Division(number, number, jnp.array(True))
        problem = eqx.tree_at(lambda each: each.division, problem, division, is_leaf=lambda each: each is None)
    # Rows of residuals and gaps; of several records one number shifts all.
    unknown = guesses.shape[1] + own.shape[1] + problem.scales.size * bool(between)
    rows = sum(each.size for each in (problem.links.values, problem.links.sample_values, nodes))
    reverse = problem.link.integrator.loop == "checkpointed" or unknown > MANY * rows
    one = lambda theta: solve(problem, Free(theta, own, nodes), max_iterations, reverse, bounded)
    if len(guesses) == 1:
        return fitted_of(problem, one(guesses[0]), records, None, estimated, many)
    every = jax.vmap(one)(guesses)
    good = every.result == "successful"
    costs = jnp.where(good | (every.result == "undetermined"), every.cost, jnp.inf)
    best = jnp.argmin(costs)
    return fitted_of(problem, jax.tree.map(lambda leaf: leaf[best], every), records, costs, estimated, many)
