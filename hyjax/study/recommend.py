"""A recommendation of an integrator for a system, from measurements on the system itself."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TYPE_CHECKING

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._flow.automaton import Automaton
from .._flow.integrator import for_modes, Integrator, IntegratorLike, without_jacobian
from .._flow.simulate import check_simulation, end_of_simulation, first_arc
from .._results.shown import require_known
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, State, Time
from ..solvers.multistep import NDF
from ..solvers.rosenbrock import Rodas5P, Rosenbrock23
from .study import limited, quantity_study
from .study_run import Method

if TYPE_CHECKING:
    import xarray


def final_state(
    system: HybridSystem, mode: str, params: Params, max_jumps: int = 100
) -> Callable[[IntegratorLike, State, Time, Time], Float[Array, " size"]]:
    """The function `(integrator, x0, t0, t1)` to the final state, padded; NaN where the simulation fails.

    It takes as many arcs as the run has, and allows traced tolerances, unlike `simulate`, whose result keeps its integrator. Not
    differentiable in reverse mode.
    """
    automaton = Automaton(system)
    index = automaton.names.index(mode)

    def final(given: IntegratorLike, x0: State, t0: Time, t1: Time) -> Float[Array, " size"]:
        integrator = without_jacobian(for_modes(system, given))
        first = first_arc(
            automaton, automaton.pad(x0), jnp.array(index), jnp.asarray(t0, x0.dtype), jnp.asarray(t1, x0.dtype)
        )
        last, *_ = end_of_simulation(automaton, first, jnp.asarray(t1, x0.dtype), params, max_jumps, integrator)
        return jnp.where(last.result == RESULTS.successful, last.z, jnp.nan)

    return final


class TimedRun(NamedTuple):
    """One run: its candidate, its tolerances, which are the number `tolerance` of the study, and its error; its durations in the
    rounds, in seconds, NaN where it was not run, and their median."""

    name: str
    rtol: float
    atol: float
    tolerance: int
    error: float
    seconds: float
    durations: np.ndarray

    @property
    def tolerances(self) -> str:
        """`rtol`, and `atol` where the two differ."""
        return f"{self.rtol:g}" + ("" if self.atol == self.rtol else f" (atol {self.atol:g})")

    def slower_than(self, other: "TimedRun") -> bool:
        """Whether this run was slower in all common rounds but at most one; with fewer than four common rounds, by half."""
        both = np.isfinite(self.durations) & np.isfinite(other.durations)
        if np.sum(both) < 4:
            return self.seconds > 1.5 * other.seconds
        return bool(np.sum(both & (self.durations <= other.durations)) <= 1)


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """A recommendation of `hj.study.recommend_integrator`; `print` shows all that was measured.

    **Attributes:** `measured`: the study, see `hj.study.quantity_study`. `accuracy`: the relative error asked for. `about`:
    what was measured, in words. `integrators`: of each candidate, one for each tolerance.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> methods = {"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()}
    >>> found = hj.study.recommend_integrator(
    ...     ball.system, x0, params, mode="flight", t1=1.0, accuracy=1e-3, solvers=methods, reference=methods,
    ...     tolerances=(1e-4,), rounds=2, progress=False,
    ... )
    >>> [row.name for row in sorted(found.rows, key=lambda row: row.name)]
    ['Bosh3', 'Tsit5']
    """

    measured: "xarray.Dataset"
    accuracy: float
    about: str
    integrators: dict[str, list[IntegratorLike]]

    @property
    def known_to(self) -> float:
        """The disagreement of the references, relative: errors below are not known."""
        return float(self.measured.reference_error)

    @property
    def rows(self) -> list[TimedRun]:
        """All runs, those that are accurate enough first, by their durations."""
        study = self.measured
        names, durations = study["solver"].values, study["durations"].values
        of = lambda name, *place: float(study[name].values[place])
        runs = [
            TimedRun(
                str(names[i]), of("rtol", j), of("atol", j), j, of("error", i, j), of("seconds", i, j), durations[i, j]
            )
            for i, j in np.ndindex(durations.shape[:2])
        ]
        return sorted(runs, key=lambda row: (not self.meets(row), row.seconds if self.meets(row) else row.error))

    def meets(self, row: TimedRun) -> bool:
        """Whether a run is as accurate as asked for."""
        return bool(row.error <= self.accuracy)

    @property
    def best(self) -> TimedRun | None:
        """The fastest run that is accurate enough; `None` where there is none, or where the references disagree by more than a
        tenth of the accuracy."""
        first = self.rows[0]
        return first if self.meets(first) and 10 * self.known_to <= self.accuracy else None

    @property
    def ties(self) -> list[TimedRun]:
        """Accurate runs of other candidates that were not slower than the best beyond the scatter: see `TimedRun.slower_than`."""
        if (best := self.best) is None:
            return []
        first: dict[str, TimedRun] = {}
        for row in self.rows:
            if self.meets(row) and row.name != best.name and not row.slower_than(best):
                first.setdefault(row.name, row)
        return list(first.values())

    @property
    def integrator(self) -> IntegratorLike | None:
        """The integrator of the best run."""
        best = self.best
        return None if best is None else self.integrators[best.name][best.tolerance]

    def __str__(self) -> str:
        # A column for the absolute tolerances, unless they are the relative ones.
        apart = any(row.atol != row.rtol for row in self.rows)
        width = max(len(row.name) for row in self.rows)
        more = "     atol" if apart else ""
        head = f"  {'candidate':<{max(width, 9)}}    rtol{more}    error    seconds  (shortest to longest)"
        how = self.measured.attrs
        lines = [
            f"Recommendation for an error of {self.accuracy:g} of {self.about}",
            f"  measured on {how['device']}: {how['rounds']} interleaved rounds, compiled before",
            f"  reference: {how['reference']} at {how['reference_tolerance']:g}, which disagree by {self.known_to:.1e}",
            head,
        ]
        for row in self.rows:
            error = "failed " if np.isnan(row.error) else f"{row.error:.1e}"
            atol = f"  {row.atol:>7.0e}" if apart else ""
            note = "" if self.meets(row) else "  not accurate enough"
            lines.append(
                f"  {row.name:<{max(width, 9)}} {row.rtol:>7.0e}{atol}  {error:>7}  {row.seconds:>9.2e}  "
                f"({np.nanmin(row.durations):.2e} to {np.nanmax(row.durations):.2e}){note}"
            )
        return "\n".join([*lines, *self._verdict()])

    def _verdict(self) -> list[str]:
        best = self.best
        if best is None and self.meets(self.rows[0]):
            return [f"No recommendation: the references disagree by {self.known_to:.1e}; ask for a larger accuracy."]
        if best is None:
            return ["No recommendation: no candidate is accurate enough; give smaller tolerances, or other candidates."]
        lines = [f"Recommended: {best.name} at rtol = {best.tolerances}, the fastest that is accurate enough."]
        if self.ties:
            named = ", ".join(f"{row.name} at {row.tolerances}" for row in self.ties)
            lines.append(f"Not slower than that in all but one of the rounds, so not to be told apart: {named}.")
        return lines


CANDIDATES: dict[str, Method] = {
    "Bosh3": dfx.Bosh3(), "Tsit5": dfx.Tsit5(), "Dopri8": dfx.Dopri8(), "Rosenbrock23": Rosenbrock23(), "Rodas5P": Rodas5P(),
    "NDF": NDF(),
}  # fmt: skip


def recommend_integrator(
    system: HybridSystem,
    x0: State | Float[Array, "lanes n"],
    params: Params,
    *,
    mode: str,
    t1: float | Time,
    t0: float | Time = 0.0,
    accuracy: float = 1e-6,
    solvers: Mapping[str, Method] | None = None,
    tolerances: Sequence[float | tuple[float, float]] = (1e-4, 1e-6, 1e-8, 1e-10),
    quantity: Callable[[IntegratorLike], PyTree] | None = None,
    reference: Mapping[str, Method] | None = None,
    max_jumps: int = 100,
    max_steps: int = 100_000,
    rounds: int = 7,
    progress: bool | None = None,
) -> Recommendation:
    r"""Recommend an integrator for a system: the fastest of some candidates that reaches an accuracy, measured on the system.

    Every candidate simulates the system from `t0` to `t1` at every tolerance. The error is the largest of the final state,
    relative to its largest coordinate, against a reference run at 1e-12; the cost is the median duration of `rounds` runs, which
    are interleaved, after compilation. Nothing is chosen silently: the result has all that was measured, prints it, and names the
    candidates whose durations cannot be told apart. It holds for this system, these parameters, this machine and this batch.

    **Arguments:**

    - `system`, `params`, `mode`, `t0`, `t1`, `max_jumps`: as in `simulate`. `t1` decides what is measured: let it be the time of
      the intended runs, and include all modes. `x0`: shape `(n,)`, or a batch, shape `(lanes, n)`, which runs under `vmap`: steps
      with linear solves cost relatively less or more in a batch than alone.
    - `accuracy`: the relative error that the result must not exceed.
    - `solvers`: `{name: solver}`, each a diffrax solver, one of `hj.solvers`, an `Integrator`, or integrators by mode such as
      `{"stance": Integrator(hj.solvers.Rodas5P()), "flight": Integrator(diffrax.Tsit5())}`. By default Bosh3, Tsit5, Dopri8,
      Rosenbrock23, Rodas5P and NDF. `tolerances`: each `rtol = atol`, or a pair `(rtol, atol)`.
    - `quantity`: another quantity than the final state, such as a gradient: see `quantity_study`. Then `x0` and `t1` are
      only checked.
    - `reference`: two methods or more, by default Dopri8 and Rodas5P, whose disagreement tells how accurate the reference is.
    - `max_steps`: the most steps in an arc. `progress`: show a bar on stderr; by default on a terminal.

    **Returns:** `Recommendation`. Its `integrator` is `None` where no candidate reaches the accuracy, or where the references
    disagree too much to tell. One compilation for each candidate, some seconds each; with `quantity`, one for each tolerance too.
    `ValueError` for arguments that cannot be used, and where the reference run fails.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> methods = {"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()}
    >>> found = hj.study.recommend_integrator(
    ...     ball.system, x0, params, mode="flight", t1=1.0, accuracy=1e-3, solvers=methods, reference=methods,
    ...     tolerances=(1e-4,), rounds=2, progress=False,
    ... )
    >>> found.integrator is not None, found.best.error < 1e-3
    (True, True)
    """
    if not 0 < accuracy < 1:
        raise ValueError(f"recommend_integrator: accuracy={accuracy!r} must lie between 0 and 1, such as 1e-6.")
    require_known("recommend_integrator", x0, params, t1, remedy="Call it outside.")
    x0 = jnp.asarray(x0)
    if x0.ndim not in (1, 2) or not len(x0):
        raise ValueError(
            f"recommend_integrator: x0 has the shape {x0.shape}; it must be (n,), or (lanes, n) for a batch."
        )
    if x0.dtype == jnp.float32:
        raise ValueError(
            "recommend_integrator: x0 has the dtype float32, in which there is no reference run at 1e-12 to measure errors with. "
            "Give x0 in float64, after jax.config.update('jax_enable_x64', True), as jnp.asarray(x0, float)."
        )
    lanes = len(x0) if x0.ndim == 2 else None
    system, start, _, end, *_ = check_simulation(
        system, x0 if lanes is None else x0[0], params, mode, t0, t1, max_jumps, Integrator()
    )
    if not end > start:
        raise ValueError(f"recommend_integrator: t1={t1!r} must lie after t0={t0!r}.")
    given = CANDIDATES if solvers is None else solvers
    for each in given.values():
        if isinstance(each, Mapping):
            for_modes(system, each)

    final = final_state(system, mode, params, max_jumps)

    def states(integrator: IntegratorLike):
        return jax.vmap(lambda x: final(integrator, x, start, end))(x0) if lanes else final(integrator, x0, start, end)

    measured = quantity_study(
        states if quantity is None else quantity, solvers=given, tolerances=tolerances, reference=reference, max_steps=max_steps,
        compile_once=quantity is None, rounds=rounds, progress=progress,
    )  # fmt: skip
    pairs = list(zip(measured["rtol"].values.tolist(), measured["atol"].values.tolist(), strict=True))
    integrators = {
        name: [limited(each, (rtol, atol, max_steps, jnp.inf)) for rtol, atol in pairs] for name, each in given.items()
    }
    what = "the final state" if quantity is None else "the given quantity"
    about = f"{what}, t = {float(start):g} to {float(end):g}" + ("" if lanes is None else f", {lanes} lanes under vmap")
    return Recommendation(measured, float(accuracy), about, integrators)
