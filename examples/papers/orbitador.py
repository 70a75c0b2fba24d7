"""The biped of the ORBITADOR page: its numbers beside those of hyjax, and why they are no proof.

python examples/papers/orbitador.py [--json] [--plot tube.png]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from orbitador_defects import Defects, defects, PERIOD
from orbitador_page import PERIODS, W
from orbitador_tables import defect_table, lambda_table, page_table, radius_table
from orbitador_tube import ABSCISSA, lambda_sums, strobes, Tubes, tubes
from rich.console import Console
from session import options, picture, save_figure

WIDTH = 132
REMARKS = """\
The page prints -3010 and does not say which lambda it is, nor how w enters. That it is the radial quotient is inferred from this
number. D1, D3 and D5 do not depend on the inference; the radii in D4 and D5 do. The page's conclusion is true all the same: there
is an attracting limit cycle near its start."""


def orbitador(as_json: bool = False, plot: Path | None = None) -> None:
    """Print the page's numbers beside ours, and the five defects of its argument. **Arguments:** `as_json`: print one JSON object
    instead. `plot`: write a picture of the tube to this file."""
    found = tubes()
    sums, rest = lambda_sums(found.last), defects(found)
    if as_json:
        print(json.dumps(record(found, sums, rest)))
    else:
        console = Console(width=WIDTH)
        for table in (
            page_table(found, sums, rest),
            lambda_table(sums),
            radius_table(found),
            defect_table(found, sums, rest),
        ):
            console.print(table)
            console.print()
        console.print(REMARKS, highlight=False, markup=False, soft_wrap=True)
    save_figure(plot, lambda: _figure(found))


def record(found: Tubes, sums: dict[str, float], rest: Defects) -> dict:
    """All numbers, for JSON."""
    borders = {
        formula: {reading: {**each._asdict(), "radii": each.radii.tolist()} for reading, each in readings.items()}
        for formula, readings in found.borders.items()
    }
    positive, negative = found.positive_and_negative
    return {
        "impact_steps": found.impacts.tolist(),
        "largest_phi_1": float(np.nanmax(found.page.jump_states[:, 0])),
        "largest_phi_1_with_the_printed_reset": float(np.max(found.misprinted.states[:, 0])),
        "impacts_with_the_printed_reset": int(found.misprinted.jumps),
        "period_of_the_page": PERIOD,
        "period_of_the_limit_cycle": float(rest.orbit.period),
        "sum_of_lambda_by_period": found.sums_by_period.tolist(),
        "sum_of_lambda": sums,
        "borders": borders,
        "radii_with_the_logarithmic_norm": strobes(found.true.radii).tolist(),
        "D1_least_sum_in_any_norm": sums[ABSCISSA],
        "D2_sum_positive": positive,
        "D2_sum_negative": negative,
        "D2_exponent": 3 * positive + negative,
        "D3": rest.impact._asdict(),
        "D4": rest.violation._asdict(),
        "D5": [each._asdict() for each in rest.drifts],
        "D5_speed": rest.speed,
        "D5_phase_shift": rest.shift * W,
    }


def _figure(found: Tubes):
    """The tube of phi_1 about the last period, and the radii, of the page's method and with the logarithmic norm."""
    from hyjax.plot.figure import COLOURS, INK, open_axes, pyplot

    fig, (left, right) = pyplot().subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    times, phi, radii = (np.asarray(each) for each in (found.page.times, found.page.states[:, 0], found.page.radii))
    shown = times >= (PERIODS - 2) * PERIOD
    open_axes(left).plot(times[shown], phi[shown], color=COLOURS[1], label="Euler's method")
    for border, label in ((phi + radii, "border of the tube"), (phi - radii, None)):
        left.plot(times[shown], border[shown], color=COLOURS[2], lw=0.8, label=label)
    for k in (PERIODS - 1, PERIODS):
        left.axvline(k * PERIOD, color=INK, lw=0.8)
    left.set(xlabel="time", ylabel="$\\phi_1$ (rad)")
    left.legend(frameon=False)
    for tube, label in (
        (found.page, "radial quotient, published formula"),
        (found.true, "logarithmic norm, sharp formula"),
    ):
        open_axes(right).semilogy(tube.times, tube.radii, label=label)
    right.set(xlabel="time", ylabel="radius of the tube")
    right.legend(frameon=False)
    return fig


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", type=picture, help="draw the tube of phi_1 and the radii to this file")
    given = options(parser, arguments)
    orbitador(given.json, given.plot)


if __name__ == "__main__":
    main()
