"""Text form of a branch."""

from .._system.results import described_code
from .._system.shown import is_traced


def describe_branch(branch, end: str | None = None) -> str:
    """The text of `print(branch)`: ends, stability, result, and the special points if they have been located. **Arguments:**
    `end`: other words for the result."""
    if is_traced(branch):
        return "Branch(traced)"
    if branch.accept.ndim:
        return f"{branch.accept.size} Branches"
    problem = branch.unfolding.problem
    values, periods, stable = branch.values, branch.periods, branch.stable
    lines = [
        f"Branch: {len(values)} points, {' -> '.join(problem.sequence)}, {problem.strides} stride(s)",
        f"  {branch.parameter:<9}  {values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}",
        f"  period     {periods[0]:.10g} to {periods[-1]:.10g}",
        f"  stable     {int(stable.sum())} of {len(stable)} points",
    ]
    # Locating special points takes computation: printing shows them only if `branch.special_points` was read before.
    special = branch.__dict__.get("special_points")
    if special is None:
        lines.append("  special points are located by branch.special_points")
    else:
        lines += ["  special points", *(f"    {point}" for point in special)] if special else ["  no special points"]
        lines += [f"  not located: a special point between {a:.10g} and {b:.10g}" for a, b in branch.unresolved]
    return "\n".join([*lines, f"  result     {end or described_end(branch)}"])


def described_end(branch) -> str:
    """The result of a branch, described; where its special points have been located, an end at grazing or at a corner is called
    so."""
    values = {kind: _ends_at(branch, kind) for kind in ("grazing", "corner")}
    if values["corner"]:
        place = " and ".join(values["corner"])
        return f"corner: the branch ends at {place}, where an arc begins on the surface of a guard"
    if values["grazing"]:
        return f"grazing: the branch ends at the orbit that grazes at {' and '.join(values['grazing'])}"
    return described_code(branch.result)


def end_name(branch) -> str:
    """The name of a branch's result; `grazing` or `corner` where such an orbit has been located at its end."""
    return next((kind for kind in ("corner", "grazing") if _ends_at(branch, kind)), str(branch.result))


def is_explained(branch) -> bool:
    """Whether a grazing orbit or a corner has been located at an end of the branch."""
    return bool(_ends_at(branch, "grazing") or _ends_at(branch, "corner"))


def _ends_at(branch, kind: str) -> list[str]:
    """The values of the parameter at which the branch ends so, as far as its special points have been located."""
    points = branch.__dict__.get("special_points") or ()
    return [f"{float(point.value):.10g}" for point in points if point.kind == kind]
