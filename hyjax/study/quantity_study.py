r"""Which integrator for a quantity: its error and its duration, for integrators at several tolerances."""

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
from .._results.installed import load_xarray
from .._results.labels import described
from .._results.working import progress_bar
from .study_run import interleaved_durations, Method, MOST_STEPS, pairs_of, REFERENCE, require_methods

if TYPE_CHECKING:
    import xarray


# A run that takes longer than this many seconds is made once.
LONG = 2.0


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
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"quantity_study: rounds={rounds!r} must be a positive integer.")
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
            taken = interleaved_durations(programs, rounds, advance, LONG)
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
