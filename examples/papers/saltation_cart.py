r"""A cart on a rail with a double pendulum whose tip touches an inclined floor: as a `Mechanism`, and with derivatives by hand.

The body has three coordinates, so it still moves while its tip sticks; mass matrix and constraint vary with the coordinates.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hyjax.contact import Contact, contact_system, Mechanism

coordinates = ("cart", "upper", "lower")


class Params(eqx.Module):
    """Masses (kg) of cart, elbow and tip; lengths (m); gravity (m/s^2); amplitude `push` (N) of the force `push cos t` on the
    cart; slope (rad) and height (m) of the floor; coefficients of restitution, static and kinetic friction."""

    masses: Float[Array, "3"] = eqx.field(converter=jnp.asarray)
    lengths: Float[Array, "2"] = eqx.field(converter=jnp.asarray)
    gravity: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    push: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    slope: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    height: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    restitution: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    static: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    kinetic: Float[Array, ""] = eqx.field(converter=jnp.asarray)


# The mechanism, as a user writes it


def mass(q, params):
    (m0, m1, m2), (l1, l2) = params.masses, params.lengths
    _, a, b = q
    upper, lower, both = (m1 + m2) * l1 * jnp.cos(a), m2 * l2 * jnp.cos(b), m2 * l1 * l2 * jnp.cos(a - b)
    rows = [[m0 + m1 + m2, upper, lower], [upper, (m1 + m2) * l1**2, both], [lower, both, m2 * l2**2]]
    return jnp.stack([jnp.stack(row) for row in rows])


def forces(t, q, v, params):
    (_, m1, m2), (l1, l2) = params.masses, params.lengths
    _, a, b = q
    weight = params.gravity * jnp.stack([(m1 + m2) * l1 * jnp.sin(a), m2 * l2 * jnp.sin(b)])
    return jnp.concatenate([params.push * jnp.cos(t)[None], -weight])


def tip(q, params):
    s, a, b = q
    l1, l2 = params.lengths
    return jnp.stack([s + l1 * jnp.sin(a) + l2 * jnp.sin(b), -l1 * jnp.cos(a) - l2 * jnp.cos(b)])


def tip_velocity(q, v, params):
    _, a, b = q
    u1, u2 = params.lengths * v[1:]
    return jnp.stack([v[0] + u1 * jnp.cos(a) + u2 * jnp.cos(b), u1 * jnp.sin(a) + u2 * jnp.sin(b)])


def gap(t, q, params):
    return jnp.stack([jnp.sin(params.slope), jnp.cos(params.slope)]) @ tip(q, params) + params.height


def slip(t, q, v, params):
    return jnp.stack([jnp.cos(params.slope), -jnp.sin(params.slope)]) @ tip_velocity(q, v, params)


mechanism = Mechanism(mass, forces)
frictionless = contact_system(mechanism, Contact(gap, restitution=lambda params: params.restitution), coordinates)
frictional = contact_system(
    mechanism,
    Contact(gap, slip, static=lambda params: params.static, kinetic=lambda params: params.kinetic),
    coordinates,
)


# Derivatives for the closed forms, by hand


class Terms:
    r"""Mass matrix $M$, constraint Jacobian $J$ (normal, tangential) and load $\Upsilon - N$ at a state, with their derivatives
    in `q` along the first axes."""

    def __init__(self, t: float, q: np.ndarray, v: np.ndarray, params: Params):
        (m0, m1, m2), (l1, l2) = np.asarray(params.masses), np.asarray(params.lengths)
        g, push, slope = float(params.gravity), float(params.push), float(params.slope)
        self.v = v
        _, a, b = q
        ca, sa, cb, sb, cd, sd = np.cos(a), np.sin(a), np.cos(b), np.sin(b), np.cos(a - b), np.sin(a - b)
        k1, k2, k3 = (m1 + m2) * l1, m2 * l2, m2 * l1 * l2

        def symmetric(upper, lower, both):
            return np.array([[0, upper, lower], [upper, 0, both], [lower, both, 0]])

        self.M = np.diag([m0 + m1 + m2, k1 * l1, k2 * l2]) + symmetric(k1 * ca, k2 * cb, k3 * cd)
        self.dM = np.stack([symmetric(0, 0, 0), symmetric(-k1 * sa, 0, -k3 * sd), symmetric(0, -k2 * sb, k3 * sd)])
        self.ddM = np.zeros((3, 3, 3, 3))
        self.ddM[1, 1], self.ddM[2, 2] = symmetric(-k1 * ca, 0, -k3 * cd), symmetric(0, -k2 * cb, -k3 * cd)
        self.ddM[1, 2] = self.ddM[2, 1] = symmetric(0, 0, k3 * cd)

        frame = np.array([[np.sin(slope), np.cos(slope)], [np.cos(slope), -np.sin(slope)]])
        self.J = frame @ [[1, l1 * ca, l2 * cb], [0, l1 * sa, l2 * sb]]
        self.dJ, self.ddJ = np.zeros((3, 2, 3)), np.zeros((3, 3, 2, 3))
        self.dJ[1, :, 1], self.dJ[2, :, 2] = frame @ [-l1 * sa, l1 * ca], frame @ [-l2 * sb, l2 * cb]
        self.ddJ[1, 1, :, 1], self.ddJ[2, 2, :, 2] = frame @ [-l1 * ca, -l1 * sa], frame @ [-l2 * cb, -l2 * sb]

        self.load = np.array([push * np.cos(t), -g * k1 * sa, -g * k2 * sb])  # Upsilon - N
        self.d_load = np.diag([0, -g * k1 * ca, -g * k2 * cb])
        self.load_rate = np.array([-push * np.sin(t), 0, 0])  # derivative of the load in t

    # Christoffel's matrix: C_ij = sum_k (D_k M_ij + D_j M_ik - D_i M_jk) v_k / 2
    @property
    def C(self):
        turned = np.einsum("jik,k->ij", self.dM, self.v)
        return (np.einsum("kij,k->ij", self.dM, self.v) + turned - turned.T) / 2

    @property
    def dC(self):
        turned = np.einsum("pjik,k->pij", self.ddM, self.v)
        return (np.einsum("pkij,k->pij", self.ddM, self.v) + turned - turned.transpose(0, 2, 1)) / 2

    @property
    def J_rate(self):
        return np.einsum("kij,k->ij", self.dJ, self.v)

    @property
    def dJ_rate(self):
        return np.einsum("pkij,k->pij", self.ddJ, self.v)
