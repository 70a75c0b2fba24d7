r"""Existence and uniqueness of a periodic orbit near a numerical one, by Krawczyk's operator for the return map.

For $F(y) = P(y) - y$ on a box $Y = c \pm r$, and any matrix $C$, near $(DP(c) - I)^{-1}$,

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) .$$

Every fixed point of $P$ in $Y$ is in $K$; and if $K$ is in the interior of $Y$, there is one, and only one. Stability does not
matter. Once it is proved, the operator is applied again with $F(c)$ in balls of fifty digits, where its error is some
$10^{-25}$: the remaining width of the bounds is the rounding to floats.

Source: Krawczyk (1969), *Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken*, Computing 4; Rump (2010),
*Verification methods*, Acta Numerica 19, Sec. 13; Wilczak, Zgliczyński (2011), for the return map.
"""

import time
from typing import Literal

import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .assumptions import assumptions_of
from .enclosed_map import ReturnMap
from .krawczyk_boxes import Boxes
from .proved_orbit import Enclosed, ProvedOrbit

# The boxes that "auto" tries, the largest first, in the coordinates' units.
RADII = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


def krawczyk(
    orbit: PeriodicOrbit,
    *,
    radius: float | Literal["auto"] = 1e-8,
    steps: int = 64,
    orders: int = 14,
    degree: int = 1,
) -> ProvedOrbit:
    r"""A proof that exactly one periodic orbit is near a numerical one, stable or not, with bounds of its numbers.

    $$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) \subset \operatorname{int} Y$$

    for $F(y) = P(y) - y$, with $P$ the return map in the coordinates that the closing reset reads, before this reset. The flow is
    enclosed by Taylor series with remainders, rounding included. The route is proved too: each guard fires at the end of its arc
    and no other before it, in the system whose guards fire when they fall from strictly positive to zero or below. Derivatives
    are those of the functions' values, whatever rule a `custom_jvp` has for them. Where a `where`, `sign` or other choice is
    undecided in the box, the proof fails, with the line; a kink of a reset or guard (`abs`, `maximum`) may be in the box, but
    then the multipliers are proved only if the orbit itself is not at it.

    **Arguments:** `orbit`: one `PeriodicOrbit`, in float64. `radius`: half the width of the box about the orbit, for each
    coordinate in its unit; `"auto"`: the largest of $10^{-4}, \ldots, 10^{-10}$ for which the proof succeeds. `steps`: of each
    arc. `orders`: of the series in time. `degree`: of the polynomials in the coordinates.

    **Returns:** `ProvedOrbit`, with bounds to the last digit of a float but for the multipliers, whose bounds are those of the
    return map's derivative in floats. It is `"not proved"`, with `reasons`, where an enclosure is too wide or a guard's condition
    fails, also for orbits with a multiplier 1, which are not isolated. `ValueError` for a batch, an orbit that failed, float32,
    and arguments that are not positive.

    **Example:**

    >>> spiral = lambda t, x, p: 0.1 * (1 - x @ x) * x + jnp.stack([-x[1], x[0]])
    >>> line = hj.Transition("plane", "plane", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    >>> circle = hj.HybridSystem({"plane": hj.Mode(spiral, ("x", "y"))}, (line,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    >>> proved = hj.certify.krawczyk(orbit, steps=48)
    >>> print(proved.status, proved.period.contains("6.283185307179586476925286766559"))
    proved True

    Source: Krawczyk (1969), Computing 4; Rump (2010), Acta Numerica 19, Sec. 13.
    """
    if radius != "auto" and not (isinstance(radius, int | float) and 0 < radius < np.inf):
        raise ValueError(f"krawczyk: radius={radius!r} must be a positive number or 'auto'.")
    for name, number in {"steps": steps, "orders": orders, "degree": degree}.items():
        if number < 1:
            raise ValueError(f"krawczyk: {name}={number} must be at least 1.")
    begun = time.perf_counter()
    boxes = Boxes(ReturnMap(orbit, steps=steps, orders=orders), degree)
    reasons: tuple[str, ...] = ()
    for size in RADII if radius == "auto" else (float(radius),):
        found, reasons = boxes.proved(size)
        if not reasons:
            numbers = boxes.numbers(found)
            break
    else:
        numbers = _no_numbers(boxes.map)
    return ProvedOrbit(
        reasons=reasons, names=boxes.map.section.names, near=boxes.map.z, unique_within=np.nan if reasons else size,
        seconds=time.perf_counter() - begun, assumptions=assumptions_of(boxes.map.forcing, boxes.map.section), orbit=orbit,
        **numbers,
    )  # fmt: skip


def _no_numbers(map: ReturnMap) -> dict:
    """NaN for what is not proved."""
    nothing = Enclosed(np.full(len(map.z), np.nan), np.full(len(map.z), np.nan))
    return {"coordinates": nothing, "starts": (), "ends": (), "period": Enclosed(np.array(np.nan), np.array(np.nan)),
            "multipliers": None}  # fmt: skip
