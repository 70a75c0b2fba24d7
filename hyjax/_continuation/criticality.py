r"""What the coefficients of a normal form mean, in words.

A coefficient that is zero up to rounding decides nothing. One of degree $d$ is compared with what may cancel in it, in no units
of the coordinates: the sum of its absolute parts by the eigenvectors alone and by the bend of the center manifold, and, with the
absolute dual vector, $|p|\cdot|W_j|$ to the power $(d - 1) / (j - 1)$ of the terms $W_j$ of degree $j$; and with the rounding of
a state.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, chs. 4, 5, 9.
"""

import math
from collections.abc import Callable

import numpy as np

# Below this share of what cancels in it a coefficient is zero. A pair this near to a strong resonance, in turns, is at it.
CANCELLED, RESONANT = 1e-10, 1e-6
# The coefficient that decides, and its degree.
DECIDES = {
    "branch-point": ("c", 3), "period-doubling": ("c", 3), "neimark-sacker": ("d", 3), "cusp": ("c", 3),
    "generalized-flip": ("e", 5), "chenciner": ("L2", 5),
}  # fmt: skip
# Of codimension two: what the coefficients decide.
MEANING = {
    "cusp": "two fold curves meet; between them there are three orbits, the middle one {} in the critical direction",
    "generalized-flip": "a curve of folds of the doubled orbits begins; of two the larger is {} in the critical direction",
    "chenciner": "a curve of folds of invariant circles begins; of two the outer is {} in the critical directions",
}


def criticality(
    kind: str,
    coefficients: dict,
    rate: complex,
    critical: np.ndarray,
    others: bool,
    side: Callable[[float], str],
    rounding: Callable[[int], float],
) -> str:
    """The meaning of the signs in words. `others`: whether all other multipliers lie inside the unit circle. `side`: of a
    positive number the values of the parameter above the point, of a negative one those below, of zero neither. `rounding`: of a
    coefficient of so high a degree."""
    if kind == "fold":
        return f"two orbits for {side(-math.copysign(1, coefficients['b']) * rate.real) or 'one side'}, none beyond"
    if kind == "period-doubling" and "c" not in coefficients:
        return "several multipliers are -1 at once: doubled orbits grow in several directions"
    if kind in ("resonance-1:3", "resonance-1:4"):
        return _at_resonance(kind, coefficients, rounding)
    name, degree = DECIDES.get(kind, ("", 0))
    if name not in coefficients:
        return ""
    decides = complex(coefficients[name]).real
    # The point itself has an error.
    if kind == "branch-point" and abs(coefficients["b"]) > max(1e-6 * math.sqrt(abs(decides)), rounding(2)):
        words = "transcritical: two branches cross and exchange their stability"
        return words if others else f"{words} in the critical direction"
    beside = [coefficients[each] ** power for each, power in (("d", 1), ("d1", 2), ("d2", 1)) if each in coefficients]
    if abs(decides) <= max(rounding(degree), *(CANCELLED * abs(each) for each in beside), 0.0):
        shown = f"Re {name}" if kind == "neimark-sacker" else name
        return f"degenerate: {shown} is zero up to rounding, and terms of higher degree decide"
    if kind in MEANING:
        return MEANING[kind].format("stable" if (decides > 0) != (kind == "chenciner") else "unstable")
    supercritical = (decides > 0) == (kind == "period-doubling")
    # Of the modulus of the multiplier.
    growth = (rate * critical[0].conj()).real
    branches = {"branch-point": "pair of orbits (pitchfork)", "period-doubling": "orbit of twice the period"}
    form, base = ("supercritical", "unstable") if supercritical else ("subcritical", "stable")
    new = f"{'a stable' if supercritical and others else 'an unstable'} {branches.get(kind, 'invariant circle')}"
    where = side((1 if supercritical else -1) * growth)
    words = f"{form}: {new} for {where}, where the orbit" if where else f"{form}: {new} where the orbit"
    more = "more" if supercritical else "fewer"
    words += f" is {base}" if others else f" has {more} multipliers outside the unit circle"
    if kind == "neimark-sacker":
        turn = float(np.angle(critical[0])) / (2 * np.pi)
        words += f"; rotation number {turn:.6g}"
        words += "".join(
            f", near the strong resonance 1:{q}"
            + (", where d alone does not decide" * (abs(q * turn - round(q * turn)) < RESONANT))
            for q in (1, 2, 3, 4)
            if abs(q * turn - round(q * turn)) < 1e-3 * q and math.gcd(round(q * turn), q) == 1
        )
    return words


def _at_resonance(kind: str, coefficients: dict, rounding: Callable[[int], float]) -> str:
    """The orbits of three or four times the period near a strong resonance, in words."""
    name, degree = ("b", 2) if kind == "resonance-1:3" else ("d", 3)
    if abs(coefficients[name]) <= rounding(degree):
        return f"degenerate: {name} is zero up to rounding, and terms of higher degree decide"
    if kind == "resonance-1:3":
        return "a saddle orbit of three times the period comes to the orbit and passes through it"
    if abs(abs(coefficients["A0"]) - 1) < RESONANT:
        return "degenerate: |A0| is 1 up to rounding, and terms of higher degree decide"
    if abs(coefficients["A0"]) < 1:
        return "a saddle orbit of four times the period surrounds the orbit, and comes to it at the point"
    return "two curves of folds of orbits of four times the period begin; between them there are two such orbits, elsewhere none"
