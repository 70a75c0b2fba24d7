"""Which solver for a system: solvers at several tolerances against a reference, in accuracy and in cost; and their ranking by
points, ten for the best run, one for the worst. Which integrator for a quantity: its error and its duration, likewise."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TYPE_CHECKING

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from .._flow.integrator import Integrator, IntegratorLike, Limits, with_limits
from .._results.failure import codes_only
from .._results.labels import described
from .._results.registry import load_xarray, version
from .._results.shown import require_known
from .._results.working import progress_bar
from .._system.results import code_flags
from .._system.system import HybridSystem, VectorField
from .._system.types import Params, require_counts, State, Time
from .study_run import (
    case_of,
    combined_system,
    coordinate_of,
    integrators_of,
    interleaved_durations,
    listed,
    measures,
    Method,
    MOST_STEPS,
    pairs_of,
    REFERENCE,
    reference_of,
    require_methods,
    thresholds_of,
)

if TYPE_CHECKING:
    import xarray


# The measures of a study, and whether the best is the smallest of the values or the largest.
MEASURES = {
    "divergence_time": "largest",
    "integral_of_error": "smallest",
    "evaluations": "smallest",
    "seconds": "smallest",
}


def points(values: np.ndarray, best: str) -> np.ndarray:
    r"""Points from 10 for the best value to 1 for the worst, $1 + 9\,(v - v_{worst}) / (v_{best} - v_{worst})$.

    **Arguments:** `values`: all those that compete, of any shape. `best`: `smallest` or `largest`. **Returns:** the same shape. A
    value that is not finite, of a run that failed, has 1 point; where all are equal, all have 10. `ValueError` for another
    `best`.

    Source: Dallas, Machairas, Papadopoulos (2017), Sec. V.
    """
    if best not in ("smallest", "largest"):
        raise ValueError(f"points: best={best!r} must be 'smallest' or 'largest'.")
    values = np.asarray(values, float)
    sound = np.isfinite(values)
    if not np.any(sound):
        return np.ones_like(values)
    ends = np.min(values[sound]), np.max(values[sound])
    good, bad = ends if best == "smallest" else ends[::-1]
    share = np.where(sound, values - bad, 0) / (good - bad) if good != bad else np.ones_like(values)
    return np.where(sound, 1 + 9 * share, 1.0)


def solver_points(study: "xarray.Dataset") -> "xarray.Dataset":
    """The points of the solvers in a study, summed over the sets of parameters.

    Of one tolerance, the runs of all solvers, sets and strategies compete: the best has 10 points, the worst 1, and others by
    linear interpolation. So with 13 sets a solver has between 13 and 130.
    Only runs of the same tolerance are compared. A run that failed has 1 point.

    **Arguments:** `study`: from `solver_study`. **Returns:** a dataset over `strategy`, `rtol` and `solver` with the points
    of each measure that the study has: `divergence_time` (largest is best), `integral_of_error`, `evaluations` and `seconds`
    (smallest). A weighted sum of criteria (eq. 36) is `2 * points.seconds + points.integral_of_error`.

    Since the worst run of all sets sets the scale, one run far off gives all others almost 10 points: look at the measures too.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> study = hj.study.solver_study(
    ...     ball.system, x0, params, mode="flight", t1=1.0, n_samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
    ...     solvers={"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()},
    ... )
    >>> hj.study.solver_points(study).evaluations.dims
    ('strategy', 'rtol', 'solver')

    Source: Dallas, Machairas, Papadopoulos (2017), Sec. V and VI.
    """
    import xarray

    dims = ("strategy", "solver", "set")
    found = {}
    for name, best in MEASURES.items():
        if name not in study:
            continue
        ordered = study[name].transpose("rtol", *dims)
        each = np.stack([points(values, best) for values in ordered.values])
        summed = ordered.copy(data=each).sum("set")
        found[name] = summed.transpose("strategy", "rtol", "solver").assign_attrs(long_name=f"points by {name}")
    return described(xarray.Dataset(found))


DIMS = ("strategy", "rtol", "solver", "set")
LONG_NAMES = {
    "divergence_time": "first time of a relative error above the threshold",
    "integral_of_error": "integral of the absolute error over the time",
    "steps_tried": "steps tried, with those that locate events",
    "steps_taken": "steps taken",
    "jumps": "jumps",
    "evaluations": "evaluations of the vector field",
    "jacobians": "linearizations of the vector field",
    "seconds": "median duration of a run",
}


def study_dataset(
    columns: dict[str, np.ndarray],
    known: tuple[np.ndarray, np.ndarray, np.ndarray],
    coordinates: dict[str, Any],
    about: dict[str, Any],
) -> "xarray.Dataset":
    """The measures over `strategy`, `rtol`, `solver` and `set`, with the reference.

    **Arguments:** `columns`: the measures by name. `known`: see `reference_of`. `coordinates`: of every dimension. `about`:
    attributes, values of netCDF.
    """
    data: dict[str, Any] = {
        name: (DIMS, column, {"long_name": LONG_NAMES[name]} | ({"units": "s"} if name == "seconds" else {}))
        for name, column in columns.items()
        if name != "result"
    }
    data["result"] = DIMS, columns["result"].astype(np.int32), code_flags()
    inner = len(coordinates["coordinate"])
    x, error, result = known
    data["reference"] = ("set", "time", "coordinate"), x[:, :, :inner], {"long_name": "reference"}
    data["reference_error"] = "set", error, {"long_name": "largest disagreement of the references"}
    data["reference_result"] = ("set", "method"), result, code_flags()
    device = jax.local_devices()[0]
    attributes = about | {"hyjax_version": version(), "device": f"{device.platform} {device.device_kind}"}
    return described(load_xarray().Dataset(data, coordinates, attributes))


# A run that takes longer than this many seconds is made once: a simulation, an evaluation of a quantity.
LONG, LONG_QUANTITY = 0.3, 2.0


def solver_study(
    system: HybridSystem,
    x0: State | list[State],
    params: Params | list[Params],
    *,
    mode: str,
    t1: float | Time,
    solvers: Mapping[str, Method],
    tolerances: Sequence[float | tuple[float, float]],
    t0: float | Time = 0.0,
    combined: VectorField | None = None,
    of: str | None = None,
    divergence: float | Sequence[float] = 0.01,
    near_zero: float = 0.0,
    n_samples: int = 2001,
    reference: Mapping[str, Method] | None = None,
    reference_tolerance: float = 1e-12,
    max_jumps: int = 1000,
    max_steps: int = 1_000_000,
    timed: bool = True,
    rounds: int = 3,
    progress: bool | None = None,
) -> "xarray.Dataset":
    r"""Compare solvers on a system: simulate it from `t0` to `t1` with each solver at each tolerance, for each set of parameters.

    The accuracy of a run is that of its states $x(t)$ against those of a reference $x_{ref}(t)$, at equidistant times: the
    **divergence time**, the first at which $|x - x_{ref}| / |x_{ref}| \ge \varepsilon$ where $|x_{ref}|$ is at least
    `near_zero`; and the **integral of the absolute error** $\int_{t_0}^{t_1} |x - x_{ref}|\,dt$, by the trapezoidal rule. Its
    cost: steps, evaluations and Jacobians of the vector field, and seconds.

    There are two strategies of transition. `events`: `system`, whose events are located, as in `simulate`. `combined`: one vector
    field that itself distinguishes the modes, discontinuous or not, integrated without regard to events.

    **Arguments:**

    - `x0`, `mode`: initial state, shape `(n,)`, and the name of its mode. `params`: the parameters; or a `list` of several sets
      of the same structure, and `x0` one state for all or a list of as many.
    - `solvers`: `{name: solver}`: a diffrax solver, one of `hj.solvers`, an `Integrator` whose tolerances and `max_steps` are
      replaced (give it `variations=False`, as a solver alone has: a study has no derivatives), or integrators by mode,
      `{"stance": ..., "flight": ...}`, such as one solver per phase, which needs events: not with `combined`.
    - `tolerances`: each `rtol = atol`, or a pair `(rtol, atol)`. One program is compiled for each solver and strategy, for all
      tolerances and sets.
    - `combined`: a vector field `f(t, x, params)` that holds in all modes, such as with a `jnp.where`; without it only events are
      located. It is not derived from the modes: the domains of modes may overlap, and then the state does not tell the mode. All
      modes must have the same coordinates, and resets should not change the state.
    - `of`: the coordinate that is measured; by default the Euclidean norm of the state, for modes with the same coordinates.
    - `divergence`: the threshold $\varepsilon$, or one for each tolerance. `near_zero`: in units of the coordinate.
    - `n_samples`: number of times, `t0` and `t1` included, which is also the resolution of the divergence time.
    - `reference`: two methods or more, by default `Dopri8` and `Rodas5P`; at `reference_tolerance`, events located. The first
      is the reference, and the largest difference of any other from it tells how accurate the reference is.
    - `max_jumps`, `max_steps`: the most jumps in a run, and the most steps in an arc.
    - `timed`: whether to measure seconds: the median over `rounds`, in each of which all runs are made once, one after the
      other, on one thread, compiled before. A run longer than 0.3 s is made once.
    - `progress`: show a bar on stderr; by default on a terminal.

    **Returns:** an `xarray.Dataset` over `strategy`, `rtol` (`atol` and `threshold` beside it), `solver` and
    `set`: `divergence_time`, `integral_of_error`, `steps_tried`, `steps_taken`, `jumps`, `evaluations`, `jacobians` (of
    the vector field in the steps tried, see `hyjax/solvers/one_array.py`; NaN for a solver that is called through diffrax),
    `seconds`, and `result`, a code of `RESULTS`. A run that failed has as
    divergence time the first time that it did not reach, and its integral is NaN. Over `set`: `reference_error`, the largest
    disagreement of the references, in the unit of what is measured, and `reference_result`, over `method`, their codes. Over
    `set`, `time` and `coordinate`: `reference`. `ValueError` for arguments that cannot be used; `ImportError` without xarray.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> study = hj.study.solver_study(
    ...     ball.system, x0, params, mode="flight", t1=1.0, n_samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
    ...     solvers={"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()},
    ... )
    >>> study.jumps.values.ravel().tolist(), bool(study.integral_of_error.max() < 1e-2)
    ([1.0, 1.0, 1.0, 1.0], True)

    Source: Dallas, Machairas, Papadopoulos (2017), *A comparison of ODE solvers for dynamical systems with impacts*, Sec. IV-V.
    """
    load_xarray()
    require_known("solver_study", x0, params, t1, remedy="Call it outside.")
    require_counts("solver_study", 2, n_samples=n_samples)
    states, sets = listed(x0, params)
    case = case_of(system, mode, states, sets, t0, t1, max_jumps, max_steps)
    pairs = pairs_of(tolerances, case.t0.dtype)
    thresholds = thresholds_of(divergence, len(pairs))
    own, size = coordinate_of(system, of), system.mode(mode).dimension
    measured = lambda x: np.linalg.norm(x[:, :size], axis=1) if own is None else np.abs(x[:, own])
    known_by = REFERENCE if reference is None else reference
    require_methods(solvers, known_by)
    methods = integrators_of(system, known_by)
    cases = {"events": case}
    if combined is not None:
        whole = combined_system(system, mode, combined)
        cases["combined"] = case_of(whole, "combined", states, sets, t0, t1, max_jumps, max_steps)
    strategies = [(each, list(integrators_of(each.automaton.system, solvers).values())) for each in cases.values()]

    times = jnp.linspace(case.t0, case.t1, n_samples)
    never = jnp.full_like(times, jnp.inf)
    shape = len(strategies), len(pairs), len(solvers), len(sets)
    total = len(methods) * len(sets) + int(np.prod(shape)) * (1 + timed)
    columns: dict[str, np.ndarray] = {}
    programs = []
    with progress_bar("runs", total, 0, progress) as advance:
        known = reference_of(case, methods, pairs_of([reference_tolerance], case.t0.dtype)[0], times, measured, advance)
        for place in np.ndindex(*shape):
            s, i, j, k = place
            here, integrators = strategies[s]
            run = partial(here.run, integrators[j], pairs[i], k)
            row = measures(times, run(times), known[0][k], measured, thresholds[i], near_zero)
            advance(1)
            # A time that is never reached: the same program, without samples.
            programs.append(partial(run, never))
            for name, number in row.items():
                columns.setdefault(name, np.full(shape, np.nan))[place] = number
        if timed:
            durations = interleaved_durations(programs, rounds, advance, LONG)
            columns["seconds"] = np.array([np.median(each) for each in durations]).reshape(shape)
    coordinates = {
        "strategy": list(cases), "rtol": [rtol for rtol, _ in pairs], "solver": list(solvers),
        "atol": ("rtol", [atol for _, atol in pairs]), "threshold": ("rtol", thresholds),
        "set": np.arange(1, len(sets) + 1), "time": np.asarray(times), "coordinate": list(system.mode(mode).coordinates),
        "method": list(methods),
    }  # fmt: skip
    about = {
        "measured": "norm of the state" if of is None else of, "near_zero": near_zero, "reference": ", ".join(methods),
        "reference_tolerance": reference_tolerance, "rounds": rounds if timed else 0,
    }  # fmt: skip
    return study_dataset(columns, known, coordinates, about)


def quantity_study(
    quantity: Callable[[IntegratorLike], PyTree],
    *,
    solvers: Mapping[str, Method],
    tolerances: Sequence[float | tuple[float, float]],
    reference: Mapping[str, Method] | None = None,
    reference_tolerance: float = 1e-12,
    max_steps: int = 1_000_000,
    compile_once: bool = False,
    timed: bool = True,
    rounds: int = 5,
    progress: bool | None = None,
) -> "xarray.Dataset":
    r"""Compare integrators by what they give for a quantity, such as a gradient, a period, or the final states of a batch.

    The error is $\max_i |q_i - q_i^{ref}| / \max_i |q_i^{ref}|$ over all numbers $q_i$ of the quantity. For example, for the
    derivative of a period by a parameter:

        def derivative(integrator):
            period = lambda k: hj.periodic_orbit(system, guess, Params(k), sequence=sequence, integrator=integrator).period
            return jax.grad(period)(jnp.array(22.8))

        hj.study.quantity_study(derivative, solvers={"Tsit5": diffrax.Tsit5()}, tolerances=(1e-6, 1e-9))

    **Arguments:**

    - `quantity`: a function of an integrator, or of integrators by mode where `solvers` has such; its values are a PyTree of real
      arrays, NaN where they cannot be found. The function is compiled. Where several orbits coexist, start from an accurate one
      with `near=`: from a rough guess another integrator may find another orbit.
    - `solvers`: `{name: solver}`, each a diffrax solver, an `Integrator`, or integrators by mode, whose tolerances and
      `max_steps` are replaced. `tolerances`: each `rtol = atol`, or a pair `(rtol, atol)`.
    - `reference`: two methods or more, by default `Dopri8` and `Rodas5P`, at `reference_tolerance`.
    - `compile_once`: compile one program for all tolerances of a solver, in which they are traced. Not for a
      quantity that takes it from a result which keeps its integrator, such as those of `simulate` and `periodic_orbit`.
    - `timed`, `rounds`: as in `solver_study`; a run longer than 2 s is made once. `progress`: show a bar on stderr; by default
      on a terminal.

    **Returns:** an `xarray.Dataset` over `solver` and `rtol`: `error`, NaN for a failure; with `timed`, `durations`, over `round`
    too, NaN in rounds that were not run, and `seconds`, their median. `reference_error`: the largest error of another reference
    against the first. `ValueError` for arguments that cannot be used, and where the reference is not finite; `ImportError`
    without xarray.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> import diffrax
    >>> def duration(integrator):
    ...     return hj.ReturnMap(wheel.system, sequence=wheel.sequence, integrator=integrator)(
    ...         wheel.guess(params), params
    ...     ).time
    >>> methods = {"Tsit5": diffrax.Tsit5(), "Dopri5": diffrax.Dopri5()}
    >>> study = hj.study.quantity_study(
    ...     duration, solvers=methods, reference=methods, tolerances=(1e-4,), compile_once=True, timed=False, progress=False
    ... )
    >>> bool(study.error.max() < 1e-3)
    True
    """
    load_xarray()
    require_counts("quantity_study", 1, rounds=rounds)
    known = REFERENCE if reference is None else reference
    require_methods(solvers, known)
    pairs = pairs_of(tolerances, jnp.zeros(()).dtype)
    (finest,) = pairs_of([reference_tolerance], jnp.zeros(()).dtype)
    shape = len(solvers), len(pairs)
    total = len(known) + int(np.prod(shape)) * (1 + timed)
    with progress_bar("runs", total, 0, progress) as advance:

        def value(program) -> np.ndarray:
            found = np.asarray(program())
            advance(1)
            return found

        first, *others = (
            value(program)
            for each in known.values()
            for program in _programs(quantity, each, [finest], MOST_STEPS, compile_once)
        )
        if not all(np.all(np.isfinite(each)) for each in (first, *others)):
            single = "" if first.dtype == np.float64 else (
                f" The quantity is computed in {first.dtype}, which cannot resolve reference_tolerance={finest[0]:g}: compute it "
                "in float64, or raise reference_tolerance."
            )  # fmt: skip
            raise ValueError(
                f"quantity_study: the quantity is not finite for the reference.{single or ' Give another reference=.'}"
            )
        scale = np.max(np.abs(first)) or 1.0
        error = lambda found: np.max(np.abs(found - first)) / scale
        programs = [
            program
            for method in solvers.values()
            for program in _programs(quantity, method, pairs, max_steps, compile_once)
        ]
        dims = "solver", "rtol"
        errors = np.array([error(value(program)) for program in programs]).reshape(shape)
        data: dict[str, Any] = {"error": (dims, errors, {"long_name": "largest error, relative to the largest number"})}
        if timed:
            taken = interleaved_durations(programs, rounds, advance, LONG_QUANTITY)
            durations = np.full((len(programs), rounds), np.nan)
            for row, each in zip(durations, taken, strict=True):
                row[: len(each)] = each
            seconds = np.nanmedian(durations, axis=1).reshape(shape)
            data["seconds"] = dims, seconds, {"units": "s", "long_name": "median duration of a run"}
            every = {"units": "s", "long_name": "duration of a run"}
            data["durations"] = (*dims, "round"), durations.reshape(*shape, rounds), every
    data["reference_error"] = (), max(error(each) for each in others)
    coordinates = {
        "solver": list(solvers), "rtol": [rtol for rtol, _ in pairs], "atol": ("rtol", [atol for _, atol in pairs]),
    }  # fmt: skip
    device = jax.local_devices()[0]
    about = {
        "reference": ", ".join(known), "reference_tolerance": reference_tolerance, "rounds": rounds if timed else 0,
        "device": f"{device.platform} {device.device_kind}",
    }  # fmt: skip
    return described(load_xarray().Dataset(data, coordinates, about))


def _programs(
    quantity: Callable, method: Method, pairs: Sequence[tuple[float, float]], max_steps: int, compile_once: bool
) -> list[Callable[[], jax.Array]]:
    """The program for each tolerance."""
    # Numbers that are no arrays are constants of the compiled program.
    number = jnp.asarray if compile_once else lambda value: value
    sizes = [(number(rtol), number(atol), number(max_steps), number(0.0)) for rtol, atol in pairs]
    return [partial(_flat, quantity, method, each) for each in sizes]


@eqx.filter_jit
def _flat(quantity: Callable, method: Method, limits: Limits) -> jax.Array:
    with codes_only():
        return ravel_pytree(quantity(limited(method, limits)))[0]


def limited(method: Method, limits: Limits) -> IntegratorLike:
    """The integrator, or the integrators by mode, of a method at other limits; `max_time` is kept."""
    if isinstance(method, Mapping):
        return {name: limited(each, limits) for name, each in method.items()}  # pyright: ignore[reportReturnType]
    integrator = Integrator(method) if isinstance(method, dfx.AbstractSolver) else method
    return with_limits(integrator, [(*limits[:3], part.max_time) for part in integrator.parts])
