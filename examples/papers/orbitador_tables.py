"""The tables of `orbitador.py`: the page's numbers beside ours, and the five defects in sentences."""

import numpy as np
from orbitador_defects import Defects, PERIOD
from orbitador_page import HIGHEST_LOWER, LOWEST_UPPER, PERIODS, PRINTED_SUM, STEPS, TAU, W
from orbitador_tube import ABSCISSA, LOGARITHMIC, RADIAL, READINGS, strobes, TRACE, Tubes
from rich.table import Table


def page_table(found: Tubes, sums: dict[str, float], rest: Defects) -> Table:
    """What the page prints, what we find, and whether it agrees."""
    table = _table("The page's numbers", ("", "page", "hyjax", ""))
    impacts, radial = found.impacts, sums[RADIAL]
    published = found.borders["published"]
    between = np.diff(impacts)[-2:].tolist()
    agrees = "Reproduced" if set(between) == {STEPS} else "Not reproduced"
    fallen = float(np.max(found.misprinted.states[:, 0]))
    table.add_row(
        "steps from impact to impact", str(STEPS), ", ".join(map(str, between)),
        f"{agrees}, with cos(2 phi1) in the reset's second component. With the printed sin(2 phi1) the walker falls after "
        f"{int(found.misprinted.jumps)} impact: phi1 reaches {fallen:.2f}. Impacts at the steps {', '.join(map(str, impacts))}; "
        f"phi1 is at most {np.nanmax(found.page.jump_states[:, 0]):.5f}.",
    )  # fmt: skip
    cycle = float(rest.orbit.period)
    table.add_row(
        "T = k tau", f"{PERIOD:.5f}", f"{cycle:.8f}",
        f"T is the period of Euler's method: that of the limit cycle is shorter by {PERIOD - cycle:.2e}.",
    )  # fmt: skip
    within = "Reproduced" if abs(radial - PRINTED_SUM) < 0.5 else "Not reproduced"
    by_period = ", ".join(f"{each:.1f}" for each in found.sums_by_period)
    table.add_row(
        "sum of lambda, i0 = 4", f"{PRINTED_SUM:.0f}", f"{radial:.2f}",
        f"{within} by the radial quotient x'Jx/|x|^2. In the periods 0 to 4: {by_period}.",
    )  # fmt: skip
    readings = [name for name in READINGS if name != "0"]
    nearest = min(readings, key=lambda name: abs(published[name].lowest_upper - LOWEST_UPPER))
    for name, printed, attribute in (
        ("m+ of phi1, i0 = 4", LOWEST_UPPER, "lowest_upper"),
        ("M- of phi1, i0 = 4", HIGHEST_LOWER, "highest_lower"),
    ):
        values = {reading: getattr(published[reading], attribute) for reading in readings}
        verdict = "Reproduced" if abs(values[nearest] - printed) < 5e-5 else "Approximately only"
        said = "; ".join(f"{value:.4f} for b = {reading}" for reading, value in values.items())
        table.add_row(
            name, f"{printed:.4f}", f"{values[nearest]:.4f}",
            f"{verdict}: {said}. b is the largest size of the disturbance.",
        )  # fmt: skip
    inside = {
        formula: ", ".join(f"b = {name}" for name, each in by.items() if each.inside) or "no b"
        for formula, by in found.borders.items()
    }
    reproduced = any(published[name].inside for name in readings)
    table.add_row(
        "B(5T) in B(4T)", "yes", "yes" if reproduced else "no",
        f"{'Reproduced' if reproduced else 'Not reproduced'}. It holds by the published formula for {inside['published']}, by "
        f"the sharp formula for {inside['sharp']}, of {', '.join(READINGS)}.",
    )  # fmt: skip
    return table


def lambda_table(sums: dict[str, float]) -> Table:
    """The sum over the period i0 = 4 by the definitions of lambda."""
    table = _table(
        f"Sum of lambda over the period i0 = 4, page: {PRINTED_SUM:.0f}", ("lambda", "sum", "growth exp(tau sum)")
    )
    for name, value in sums.items():
        table.add_row(name, f"{value + 0.0:,.2f}", f"{np.exp(TAU * value):.4g}")
    return table


def radius_table(found: Tubes) -> Table:
    """The radii at the strobes."""
    columns = ("radius at", "b", *(f"{k}T" for k in range(PERIODS + 1)))
    table = _table("Radius of the tube, epsilon = 1e-3", columns)
    for formula, readings in found.borders.items():
        for reading, each in readings.items():
            table.add_row(f"radial quotient, {formula} formula", reading, *(f"{radius:.4f}" for radius in each.radii))
    true = strobes(found.true.radii)
    table.add_row("logarithmic norm, sharp formula", "w", *(f"{radius:.3g}" for radius in true))
    return table


def defect_table(found: Tubes, sums: dict[str, float], rest: Defects) -> Table:
    """The five defects, in sentences with their numbers."""
    table = Table(title="Why it is no proof", title_justify="left", box=None, pad_edge=False, show_header=False)
    for name, said in defect_sentences(found, sums, rest).items():
        table.add_row(name, said)
    return table


def defect_sentences(found: Tubes, sums: dict[str, float], rest: Defects) -> dict[str, str]:
    """A sentence or two for each defect."""
    impact, violation = rest.impact, rest.violation
    counts = "; ".join(
        f"radius {each.radius:.4f}: {each.faster}, {each.slower}, {each.undisturbed}" for each in rest.drifts
    )
    return {
        "D1": f"lambda is no one-sided Lipschitz constant. In every norm such constants sum up to at least "
        f"{sums[ABSCISSA]:,.0f} a period, the sum of sqrt(cos(phi1 - gamma)); in the Euclidean norm to "
        f"{sums[LOGARITHMIC]:,.0f}. The trace of J is {sums[TRACE] + 0.0:g}: the flow keeps volumes, and only the impact "
        "contracts.",
        "D2": _contraction(*found.positive_and_negative),
        "D3": f"The radius is not changed by the impact, but the saltation matrix has the norm {impact.saltation:.3f} (the "
        f"reset's Jacobian {impact.reset:.3f}). States of the ball strike within {impact.spread:.3f} of each other, and between "
        f"their impacts they are {impact.jump:.3f} apart.",
        "D4": f"Solutions without disturbance leave the tube: from the ball they are after one period up to "
        f"{violation.reached[0]:.5f} from the Euler state, after two {violation.reached[1]:.5f}. The radii are "
        f"{violation.radii[0]:.4f} and {violation.radii[1]:.4f} with b = w, {violation.doubled[0]:.4f} and "
        f"{violation.doubled[1]:.4f} with b = 2 w.",
        "D5": f"The disturbance w(t) = eta f(x(t)), eta = {W / rest.speed:.3g}, rescales time, and the phase drifts. Strobes "
        f"until a state of the limit cycle has left a ball about itself, for +eta, -eta and 0: {counts}. The largest drift is "
        f"{rest.shift:.2f} w = {rest.shift * W:.2e} a period.",
    }


def _contraction(positive: float, negative: float) -> str:
    exponent = 3 * positive + negative
    return (
        f"Not the sum of lambda decides whether the published radius contracts, but three times the sum of the positive, "
        f"{positive:,.0f}, plus that of the negative, {negative:,.0f}: it is {exponent:+,.0f}, a growth by "
        f"{np.exp(TAU * exponent / 2):.3f} a period without disturbance."
    )


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k == 0 or column == "" else "right", no_wrap=bool(column) or k == 0)
    return table
