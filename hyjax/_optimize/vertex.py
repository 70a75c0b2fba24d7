r"""The exchange of active constraints at a vertex, where as many are active as there are unknowns.

A further constraint $g \ge 0$ that becomes active there leaves no freedom: another one must become inactive. With the gradient
$\nabla f = \sum_i \lambda_i a_i$, and that of the new constraint $\nabla g = \sum_i \mu_i a_i$, the multipliers for a multiplier
$\nu \ge 0$ of the new one are $\lambda_i - \nu\mu_i$. As $\nu$ grows, the first of them that reaches zero is that of the
inequality that leaves.

Source: Nocedal, Wright (2006), *Numerical Optimization*, sec. 13.3 (the ratio test of the dual simplex method).
"""

import numpy as np
from jaxtyping import Float

from .optimum import Active, Optimum


def leaving(
    normals: Float[np.ndarray, "k n"],
    multipliers: Float[np.ndarray, " k"],
    equalities: int,
    entering: Float[np.ndarray, " n"],
) -> int | None:
    """Which active constraint becomes inactive when another enters; -1 where there is freedom left, and none has to.

    **Arguments:** `normals`: gradients of the active constraints, independent, the `equalities` first. `multipliers`: theirs.
    `entering`: the gradient of the new one.

    **Returns:** its number; `None` where the constraints contradict each other beyond this point.
    """
    shares, *_ = np.linalg.lstsq(normals.T, entering, rcond=None)
    small = np.sqrt(np.finfo(normals.dtype).eps) * np.linalg.norm(entering)
    if np.linalg.norm(normals.T @ shares - entering) > small:
        return -1
    candidates = [k for k in range(equalities, len(shares)) if shares[k] > small]
    return min(candidates, key=lambda k: multipliers[k] / shares[k], default=None)


def exchange(at: Optimum, active: Active, equalities: int, kind: str, k: int) -> tuple[str, int] | str | None:
    """What becomes inactive when an inequality (`rows`) or bound (`low`, `high`) becomes active; `None` where nothing has to; or
    the name of the code where nothing can."""
    n = at.u.size
    rows, sides = at.expansion.jacobian[1:], {"low": np.eye(n), "high": -np.eye(n)}
    held = [("rows", int(i)) for i in np.flatnonzero(active.rows)]
    held += [(side, int(i)) for side in sides for i in np.flatnonzero(getattr(active, side))]
    normal = lambda side, i: rows[equalities + i] if side == "rows" else sides[side][i]
    dual = lambda side, i: at.multipliers[equalities + i] if side == "rows" else sides[side][i, i] * at.duals[i]
    normals = np.concatenate([rows[:equalities], np.reshape([normal(*each) for each in held], (len(held), n))])
    multipliers = np.array([*at.multipliers[:equalities], *(dual(*each) for each in held)])
    out = leaving(normals, multipliers, equalities, normal(kind, k))
    return "infeasible" if out is None else None if out < 0 else held[out - equalities]
