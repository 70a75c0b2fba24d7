r"""Footfalls of an orbit, and the names of gaits.

A leg that stands during $[t, t + d]$, in fractions of the stride, has the duty factor $d$; the phase of a leg is the time of its
touchdown after that of the first leg. A gait is named after the duty factor and the phases: two legs are together where these
differ by at most a sixteenth, and alternate where the difference is within a sixteenth of a half.

Source: Hildebrand (1965), *Symmetrical gaits of horses*, Science 150, 701-708, for the phases of four legs and a sixteenth;
Hildebrand (1989), *The quadrupedal gaits of vertebrates*, BioScience 39, 766-775, for the asymmetrical gaits; Alexander (1984),
*The gaits of bipedal and quadrupedal animals*, Int. J. Robot. Res. 3, 49-59, for walk and run.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._results.shown import Shown
from .._results.table import Table

if TYPE_CHECKING:
    from .orbit import PeriodicOrbit

# And the rounding of a time of touchdown, in fractions of the period.
SIXTEENTH, ROUNDING = 1 / 16, 1e-9
BACK, LEFT = {"back", "hind", "rear"}, {"left"}


class Footfalls(Shown):
    """When the legs of a gait stand, in fractions of the period.

    **Attributes:** `legs`: their names. `stances`: for each leg `(touchdown, duration)` of each of its stances, shape
    `(stances, 2)`, by time from the orbit's start; a leg that never lifts off has the one stance `(0, 1)`. `duty_factors`: the
    part of the period in which each leg stands, shape `(legs,)`. `phases`: the first touchdown of each leg after that of the
    first leg, as a fraction of the time between two touchdowns of a leg, shape `(legs,)`; NaN unless all legs land equally often.
    `name`: of the gait.

    A gait of one leg is a `hop`; of two legs a `hop` where they land together, a `skip` where they neither land together nor
    alternate; where they alternate a `walk` if the mean duty factor is one half or more, else a `run`. Of two legs of which one
    alone is named `back` (or `hind`, `rear`), each a pair of a quadruped seen from the side, a `pronk` where they land together,
    else a `bound`. Of four legs, named `back` and `left`: where the legs of both pairs land together, a `pronk` if all four do,
    else a `bound`; where those of one pair do, a `half-bound`; where both pairs alternate, a `pace` if legs of one side land
    together, a `trot` if diagonal ones do, else `walk` or `run`; all others are a `gallop`. A gait of several strides has the
    name that each of them has. Other gaits have the name `""`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> footfalls = orbit.footfalls({"spoke": ("stance",)})
    >>> footfalls.duty_factors, footfalls.name
    (array([1.]), '')

    Source: Hildebrand (1965), Science 150, 701-708; Hildebrand (1989), BioScience 39, 766-775; Alexander (1984), Int. J. Robot.
    Res. 3, 49-59.
    """

    legs: tuple[str, ...] = eqx.field(static=True)
    stances: tuple[Float[np.ndarray, "_ 2"], ...]

    def _tables(self):
        rows = [
            (leg, f"{duty:.6g}", f"{phase:.6g}", ", ".join(f"{t:.4f} to {t + d:.4f}" for t, d in stances))
            for leg, duty, phase, stances in zip(self.legs, self.duty_factors, self.phases, self.stances, strict=True)
        ]
        return (
            Table(f"Footfalls: {self.name or 'gait without a name'}", rows, ("leg", "duty factor", "phase", "stands")),
        )

    @property
    def duty_factors(self) -> Float[np.ndarray, " legs"]:
        return np.array([each[:, 1].sum() for each in self.stances])

    @property
    def phases(self) -> Float[np.ndarray, " legs"]:
        counts = {len(each) for each in self.stances}
        if len(counts) != 1 or 0 in counts or np.any(self.duty_factors == 1):
            return np.full(len(self.legs), np.nan)
        first = np.array([each[0, 0] for each in self.stances])
        return counts.pop() * (first - first[0]) % 1

    @property
    def name(self) -> str:
        if not self.legs or not np.all(np.isfinite(self.phases)):
            return ""
        lands, duty = [each[:, 0] for each in self.stances], float(np.mean(self.duty_factors))
        strides = np.diff(lands[0], append=lands[0][0] + 1)
        # Of each leg the touchdowns one after another, from that which is not before the first leg's by more than a sixteenth.
        lags = np.array([each - lands[0][0] + SIXTEENTH * strides[0] for each in lands])
        lags = np.sort((lags + ROUNDING) % 1, axis=1) - ROUNDING - SIXTEENTH * strides[0]
        phases = ((lags - lags[0]) / strides).T
        names = {gait_name(self.legs, each, duty) for each in phases}
        return names.pop() if len(names) == 1 and np.max(np.ptp(phases, axis=0)) < 0.5 else ""


def gait_name(legs: Sequence[str], phases: Float[np.ndarray, " legs"], duty: float) -> str:
    """The name of a stride, see `Footfalls`; `duty` is the mean duty factor."""
    words = [set(re.split(r"[\W_]+", leg)) for leg in legs]
    places = {(bool(each & BACK), bool(each & LEFT)): k for k, each in enumerate(words)}
    if not (len(legs) in (1, 2) or len(legs) == len(places) == 4):
        return ""
    if len(legs) == 1:
        return "hop"
    near = lambda pairs, lag: [
        abs((phases[b] - phases[a] - lag + 0.5) % 1 - 0.5) <= SIXTEENTH + ROUNDING for a, b in pairs
    ]
    gait = "walk" if duty >= 0.5 - ROUNDING else "run"
    if len(legs) == 2:
        (together,), (alternate,) = near([(0, 1)], 0), near([(0, 1)], 0.5)
        if {back for back, _ in places} == {True, False}:
            return "pronk" if together else "bound"
        return "hop" if together else gait if alternate else "skip"
    pair = lambda *ends: [(places[a], places[b]) for a, b in ends]
    across = pair(((True, True), (True, False)), ((False, True), (False, False)))
    sides = pair(((True, True), (False, True)), ((True, False), (False, False)))
    diagonals = pair(((True, True), (False, False)), ((True, False), (False, True)))
    together = sum(near(across, 0))
    if together:
        return "half-bound" if together == 1 else "pronk" if all(near(sides + diagonals, 0)) else "bound"
    if not all(near(across, 0.5)):
        return "gallop"
    return "pace" if all(near(sides, 0)) else "trot" if all(near(diagonals, 0)) else gait


def footfalls_of(orbit: "PeriodicOrbit", legs: Sequence[str] | Mapping[str, Collection[str]] | None) -> Footfalls:
    """The footfalls of one orbit; see `PeriodicOrbit.footfalls`."""
    ends, names = orbit.impact_times, orbit.mode_names
    modes = [orbit.system.mode(name) for name in names]
    held = list(dict.fromkeys(name for mode in modes for name in mode.held))
    if legs is None:
        flags = {name.removesuffix("_stands"): name for name in held if name.endswith("_stands")}
        flags = flags or {name: name for name in held}
    elif isinstance(legs, Mapping):
        flags = legs
    else:
        flags = {leg: f"{leg}_stands" if f"{leg}_stands" in held else leg for leg in legs}
    asked = (each for flag in flags.values() for each in ([flag] if isinstance(flag, str) else flag))
    unknown = [each for each in asked if each not in {*held, *names}]
    if unknown or not flags:
        raise ValueError(
            f"footfalls: {f'there is no {unknown[0]!r}' if unknown else 'which legs stand is not held'}. Give legs: names of "
            f"held coordinates ({', '.join(held) or 'none'}), or a dictionary from legs to modes ({', '.join(names)})."
        )
    flags = {leg: flag if flag in held or not isinstance(flag, str) else (flag,) for leg, flag in flags.items()}
    durations = np.diff(np.asarray(ends), prepend=0) / float(orbit.period)
    starts, found = np.cumsum(durations) - durations, []
    for flag in flags.values():
        column = [
            np.full(orbit.strides, name in flag) if not isinstance(flag, str)
            else np.asarray(states)[:, mode.coordinates.index(flag)] if flag in mode.held else np.zeros(orbit.strides)
            for name, mode, states in zip(names, modes, orbit.arc_ends, strict=True)
        ]  # fmt: skip
        stands = np.stack(column, axis=1).ravel() > 0.5
        rows = [(0.0, 1.0)] if stands.all() else []
        for k in np.flatnonzero(stands & ~np.roll(stands, 1)):
            until = int(np.argmin(np.roll(stands, -k)))
            rows.append((starts[k], np.roll(durations, -k)[:until].sum()))
        found.append(np.array(rows).reshape(-1, 2))
    return Footfalls(tuple(flags), tuple(found))
