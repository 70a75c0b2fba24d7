"""The result of a recommendation: what was measured, and which candidate follows from it."""

import dataclasses
from typing import NamedTuple, TYPE_CHECKING

import numpy as np

from .._flow.integrator import IntegratorLike

if TYPE_CHECKING:
    import xarray


class Row(NamedTuple):
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

    def slower_than(self, other: "Row") -> bool:
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
    ...     ball.system, x0, params, mode="flight", t1=1.0, accuracy=1e-3, candidates=methods, reference=methods,
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
    def rows(self) -> list[Row]:
        """All runs, those that are accurate enough first, by their durations."""
        names, study = self.measured["solver"].values, self.measured
        rtols, atols, errors, seconds = (study[key].values for key in ("rtol", "atol", "error", "seconds"))
        runs = [
            Row(
                str(names[i]),
                float(rtols[j]),
                float(atols[j]),
                j,
                float(errors[i, j]),
                float(seconds[i, j]),
                study["durations"].values[i, j],
            )
            for i, j in np.ndindex(errors.shape)
        ]
        return sorted(runs, key=lambda row: (not self.meets(row), row.seconds if self.meets(row) else row.error))

    def meets(self, row: Row) -> bool:
        """Whether a run is as accurate as asked for."""
        return bool(row.error <= self.accuracy)

    @property
    def best(self) -> Row | None:
        """The fastest run that is accurate enough; `None` where there is none, or where the references disagree by more than a
        tenth of the accuracy."""
        first = self.rows[0]
        return first if self.meets(first) and 10 * self.known_to <= self.accuracy else None

    @property
    def ties(self) -> list[Row]:
        """Accurate runs of other candidates that were not slower than the best beyond the scatter: see `Row.slower_than`."""
        if (best := self.best) is None:
            return []
        first: dict[str, Row] = {}
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
