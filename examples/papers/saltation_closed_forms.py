r"""Saltation matrices of one contact in closed form, without automatic differentiation.

The notation is that of the paper, in which a positive contact force $f$ pulls. Two formulas differ from the printed ones: see
`plastic` and `slip_stick`.

Source: Kong, Payne, Zhu, Johnson (2024), eqs. 62-94.
"""

import numpy as np
from saltation_cart import Params, Terms


class Dagger:
    """The blocks of eq. 62, and their derivatives in `q`, for the rows of `J` that a mode holds."""

    def __init__(self, at: Terms, rows: slice):
        J, dJ, k = at.J[rows], at.dJ[:, rows], at.J[rows].shape[0]
        matrix = np.block([[at.M, J.T], [J, np.zeros((k, k))]])
        slope = np.block([[at.dM, dJ.transpose(0, 2, 1)], [dJ, np.zeros((3, k, k))]])
        inverse = np.linalg.inv(matrix)
        d_inverse = -inverse @ slope @ inverse
        self.M, self.J, self.Lambda = inverse[:3, :3], inverse[3:, :3], inverse[3:, 3:]
        self.dM, self.dJ, self.dLambda = d_inverse[:, :3, :3], d_inverse[:, 3:, :3], d_inverse[:, 3:, 3:]


NORMAL, BOTH, NONE = slice(0, 1), slice(0, 2), slice(0, 0)


def flow(at: Terms, rows: slice) -> np.ndarray:
    """The vector field with the constraints `rows`, eq. 64."""
    dagger = Dagger(at, rows)
    return np.concatenate([at.v, dagger.M @ (at.load - at.C @ at.v) - dagger.J.T @ at.J_rate[rows] @ at.v])


def force(at: Terms, rows: slice) -> np.ndarray:
    """The contact force of the constraints `rows`, eq. 65; it pulls where it is positive."""
    dagger = Dagger(at, rows)
    return dagger.J @ (at.load - at.C @ at.v) - dagger.Lambda @ at.J_rate[rows] @ at.v


def sliding_flow(at: Terms, friction: float, side: int) -> np.ndarray:
    """The vector field of sliding: eq. 64 in `S`, with the friction of eq. 66 on the left side, where the unknown force is."""
    normal, tangential = at.J
    matrix = np.block([[at.M, (normal - side * friction * tangential)[:, None]], [normal, np.zeros(1)]])
    known = np.append(at.load - at.C @ at.v, -at.J_rate[0] @ at.v)
    return np.concatenate([at.v, np.linalg.solve(matrix, known)[:3]])


def identity(t: float, x: np.ndarray, params: Params) -> np.ndarray:
    """The identity, eqs. 70 (apex), 72 and 73 (lift-off), 90 (stick-slip with equal coefficients)."""
    return np.eye(6)


def plastic(rows: slice, t: float, x: np.ndarray, params: Params) -> np.ndarray:
    """A plastic impact, eqs. 80-81 into `S`, 82-83 into `C`. Eq. 83 has J_C/(J_C v), of two rows, in place of J_n/(J_n v)."""
    q, v = x[:3], x[3:]
    before = Terms(t, q, v, params)
    dagger, J, normal = Dagger(before, rows), before.J[rows], before.J[:1]
    after = Terms(t, q, dagger.M @ before.M @ v, params)
    d_reset = np.einsum("kij,j->ik", dagger.dM @ before.M + dagger.M @ before.dM, v)
    change = dagger.M @ (before.C @ v - after.C @ after.v) - dagger.J.T @ after.J_rate[rows] @ after.v - d_reset @ v
    upper = np.eye(3) - np.outer(dagger.J.T @ J @ v, normal) / (normal @ v) if rows == BOTH else dagger.M @ before.M
    lower = np.outer(change, normal) / (normal @ v) + d_reset
    return np.block([[upper, np.zeros((3, 3))], [lower, dagger.M @ before.M]])


def elastic(t: float, x: np.ndarray, params: Params) -> np.ndarray:
    """An elastic impact, eqs. 87-88."""
    q, v, e = x[:3], x[3:], float(params.restitution)
    before = Terms(t, q, v, params)
    dagger, J = Dagger(before, NORMAL), before.J[:1]
    bounce = dagger.M @ before.M - e * dagger.J.T @ J
    after = Terms(t, q, bounce @ v, params)
    d_bounce = dagger.dM @ before.M + dagger.M @ before.dM
    d_bounce = d_bounce - e * (dagger.dJ.transpose(0, 2, 1) @ J + dagger.J.T @ before.dJ[:, :1])
    d_reset = np.einsum("kij,j->ik", d_bounce, v)
    free = np.linalg.inv(before.M)
    change = free @ (before.C @ v - after.C @ after.v) - d_reset @ v
    change = change + (1 + e) * dagger.J.T @ J @ free @ (before.load - before.C @ v)
    return np.block([[bounce, np.zeros((3, 3))], [np.outer(change, J) / (J @ v) + d_reset, bounce]])


def stick_slip(side: int, t: float, x: np.ndarray, params: Params) -> np.ndarray:
    """From sticking to slipping, eq. 91. The gradient of the friction cone's guard, eq. 89, is by the product rule on eq. 65."""
    at = Terms(t, x[:3], x[3:], params)
    dagger = Dagger(at, BOTH)
    v, pull = at.v, at.load - at.C @ at.v
    by_q = np.einsum("kij,j->ik", dagger.dJ, pull) + dagger.J @ (at.d_load - np.einsum("kij,j->ik", at.dC, v))
    by_q -= np.einsum("kij,j->ik", dagger.dLambda @ at.J_rate + dagger.Lambda @ at.dJ_rate, v)
    by_v = -2 * (dagger.J @ at.C + dagger.Lambda @ at.J_rate)
    # The guard is positive inside the cone: mu_s f_n + side f_t, for forces that push where they are positive.
    cone = -np.array([float(params.static), side])
    gradient, drift = cone @ np.hstack([by_q, by_v]), cone @ dagger.J @ at.load_rate
    stuck, slides = flow(at, BOTH), sliding_flow(at, float(params.kinetic), side)
    return np.eye(6) + np.outer(slides - stuck, gradient) / (drift + gradient @ stuck)


def slip_stick(side: int, t: float, x: np.ndarray, params: Params) -> np.ndarray:
    """From slipping to sticking, eq. 94, with the rate of J_t for D_q(J_t v): equal where slip is a rate of position, as here."""
    at = Terms(t, x[:3], x[3:], params)
    stuck, slides = flow(at, BOTH), sliding_flow(at, float(params.kinetic), side)
    gradient = np.concatenate([at.J_rate[1], at.J[1]])
    return np.eye(6) + np.outer(stuck - slides, gradient) / (at.J_rate[1] @ at.v + at.J[1] @ slides[3:])
