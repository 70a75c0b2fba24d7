r"""Rigid bodies in free motion, $M(q)\,\ddot q + C(q, \dot q)\,\dot q = Q(t, q, \dot q)$.

Bodies are given by their mass matrix, or by their Lagrangian. The Coriolis terms follow by automatic differentiation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.elimination import solve_positive
from .._system.results import nan_unless
from .._system.types import as_array, Flag, Matrix, Params, require_function, Time

Positions = Float[Array, " m"]
Velocities = Float[Array, " m"]
Forces = Float[Array, " m"]
# Gaps of contacts, and of their rows (see `velocity_rows`) the velocities, the accelerations at constant `v`, and the Jacobian.
Motion = tuple[Float[Array, " contacts"], Float[Array, " rows"], Float[Array, " rows"], Float[Array, "rows m"]]


def accelerated(mass: Float[Array, "m m"], force: Forces) -> Velocities:
    """The accelerations by forces, differentiable to every order; NaN where the mass matrix is not positive definite."""

    def solved(_, right):
        found, pivot = solve_positive(mass, right)
        return nan_unless(pivot > 0, found)

    return jax.lax.custom_linear_solve(lambda a: mass @ a, force, solved, symmetric=True)


def no_forces(t: Time, q: Positions, v: Velocities, params: Params) -> Forces:
    return jnp.zeros_like(q)


class Mechanism(eqx.Module):
    r"""Rigid bodies given by their mass matrix. $M(q, p)\,\dot v + c(q, v, p) = Q(t, q, v, p)$ with $\dot q = v$.

    **Arguments:**

    - `mass`: `M(q, params)`, shape `(m,)` to `(m, m)`, symmetric and positive definite.
    - `forces`: `Q(t, q, v, params)`, shape `(m,)`: gravity, springs, damping, inputs. Zero by default.
    - `coriolis`: `c(q, v, params)`, shape `(m,)`. By default $\dot M v - \tfrac12 D_q(v^\top M v)$, from `mass` by
      automatic differentiation: equal to $C(q, v)\,v$ for every choice of the matrix $C$.

    `acceleration(t, q, v, params)` solves the equation for $\dot v$. `reduced(embedding)` are the bodies in fewer coordinates.

    The units are the user's: a row of `M` times an acceleration has the unit of the row's force. Where `mass` is not symmetric,
    or not positive definite, the accelerations are NaN, which an integration reports as `nonfinite`.

    **Example:**

    >>> mechanism = hj.contact.Mechanism(
    ...     mass=lambda q, p: jnp.diag(jnp.array([1.0, 1.0])), forces=lambda t, q, v, p: jnp.array([0.0, -9.81])
    ... )
    >>> mechanism.acceleration(jnp.array(0.0), jnp.zeros(2), jnp.zeros(2), None).tolist()
    [0.0, -9.81]

    Source: Kong, Payne, Zhu, Johnson (2024), eq. 61.
    """

    mass: Callable[[Positions, Params], Matrix]
    forces: Callable[[Time, Positions, Velocities, Params], Forces] = no_forces
    coriolis: Callable[[Positions, Velocities, Params], Forces] | None = None
    # Of bodies that know their contacts: `(contacts, t, q, v, params)`, or `None` for contacts that they do not know.
    _rows: Callable[..., Motion | None] | None = None
    # Of bodies that know the names of their positions.
    _names: tuple[str, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        require_function(self.mass, "q, params", "Mechanism: mass")
        require_function(self.forces, "t, q, v, params", "Mechanism: forces")
        if self.coriolis is not None:
            require_function(self.coriolis, "q, v, params", "Mechanism: coriolis")

    def acceleration(self, t: Time, q: Positions, v: Velocities, params: Params) -> Velocities:
        r"""The acceleration of the free bodies, $\dot v = M^{-1}(Q - c)$, for modes of one's own: `jnp.concatenate([v, a])`.

        **Arguments:** `t`: shape `()`. `q`, `v`: positions and their rates, shape `(m,)`. `params`: of `mass`, `forces` and
        `coriolis`. **Returns:** shape `(m,)`, differentiable to every order. NaN where `M` is not symmetric and positive
        definite; `ValueError` for functions that return another shape, and for positions and rates of another.
        """
        q, v = as_coordinates("acceleration", q, v)
        return accelerated(inertia(self, q, params), load(self, t, q, v, params))

    def reduced(self, embedding: Callable[[Positions, Params], Positions]) -> "Mechanism":
        r"""The bodies held on a surface $q = \phi(\theta, p)$ without friction, such as a leg whose foot is pinned to the ground.

        With $E = D_\theta\phi$, $\dot q = E\dot\theta$ and $\ddot q = E\ddot\theta + \dot E\dot\theta$. The forces that hold the
        bodies have no part along $E$, so

        $$M_r = E^\top M E, \qquad c_r = E^\top(c + M\dot E\dot\theta), \qquad Q_r = E^\top Q$$

        **Arguments:** `embedding`: $\phi$, `(theta, params)`, shape `(k,)` to `(m,)`, with independent columns of $E$.
        **Returns:** a `Mechanism` of the `k` coordinates, where the columns depend on each other with accelerations that are NaN.
        What holds the bodies pulls as well as it pushes.

        **Example:** a mass on a circle of radius 2.

        >>> mass = hj.contact.Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.array([0.0, -9.81]))
        >>> pendulum = mass.reduced(lambda theta, p: 2 * jnp.stack([jnp.sin(theta[0]), -jnp.cos(theta[0])]))
        >>> acceleration = pendulum.acceleration(jnp.array(0.0), jnp.array([jnp.pi / 2]), jnp.array([3.0]), None)
        >>> print(acceleration.round(6))
        [-4.905]

        Source: Murray, Li, Sastry (1994), *A Mathematical Introduction to Robotic Manipulation*, ch. 6.1.
        """
        require_function(embedding, "theta, params", "Mechanism.reduced: embedding")

        def along(theta, params):
            q, pull = jax.vjp(lambda theta: embedding(theta, params), theta)
            return q, lambda force: pull(force)[0]

        def mass(theta, params):
            columns = jax.jacfwd(embedding)(theta, params)
            return columns.T @ inertia(self, embedding(theta, params), params) @ columns

        def forces(t, theta, rate, params):
            q, pull = along(theta, params)
            v = jax.jvp(lambda theta: embedding(theta, params), (theta,), (rate,))[1]
            return pull(as_array(self.forces(t, q, v, params), q.shape, q.dtype, "Mechanism: forces"))

        def coriolis(theta, rate, params):
            moving = lambda theta: jax.jvp(lambda theta: embedding(theta, params), (theta,), (rate,))
            (q, v), (_, turning) = jax.jvp(moving, (theta,), (rate,))
            return along(theta, params)[1](bias(self, q, v, params) + inertia(self, q, params) @ turning)

        return Mechanism(mass, forces, coriolis)


def lagrangian(
    function: Callable[[Positions, Velocities, Params], Float[Array, ""]],
    forces: Callable[[Time, Positions, Velocities, Params], Forces] = no_forces,
) -> Mechanism:
    r"""Rigid bodies given by their Lagrangian. $\frac{d}{dt} D_vL - D_qL = Q$.

    $M = D_v^2L$ and $c = (D_q D_v L)\,v - D_qL$ by automatic differentiation: $c$ holds Coriolis and gyroscopic terms and the
    forces of the potential.

    **Arguments:** `function`: `L(q, v, params)`, shape `()`, at most quadratic in `v`. `forces`: `Q(t, q, v, params)`,
    shape `(m,)`, the forces not contained in `L`.

    **Returns:** a `Mechanism`. Where $D_v^2L$ is not positive definite an integration fails as `nonfinite`.

    **Example:**

    >>> ball = hj.contact.lagrangian(lambda q, v, p: v @ v / 2 - 9.81 * q[0])
    >>> system = hj.contact.contact_system(ball, hj.contact.Contact(gap=lambda t, q, p: q[0]), ("y",))
    >>> system.modes["U"].vector_field(jnp.array(0.0), jnp.array([1.0, 0.0]), None).tolist()
    [0.0, -9.81]
    """
    require_function(function, "q, v, params", "lagrangian: the first argument")
    value = lambda q, v, params: as_array(function(q, v, params), (), q.dtype, "lagrangian: the first argument")

    def mass(q, params):
        return jax.hessian(lambda v: value(q, v, params))(jnp.zeros_like(q))

    def coriolis(q, v, params):
        momentum = lambda q: jax.grad(value, argnums=1)(q, v, params)
        _, momentum_drift = jax.jvp(momentum, (q,), (v,))
        return momentum_drift - jax.grad(value)(q, v, params)

    return Mechanism(mass, forces, coriolis)


def inertia(mechanism: Mechanism, q: Positions, params: Params) -> Matrix:
    """The mass matrix, NaN where it is not symmetric; `ValueError` for a wrong shape."""
    mass = given_mass(mechanism, q, params)
    # A matrix from a file's bodies is symmetric. Of another only one half would count.
    return mass if mechanism._rows is not None else nan_unless(is_symmetric(mass), mass)


def as_coordinates(caller: str, *given: Any, size: int | None = None) -> list[Array]:
    """Positions, and their rates, as real numbers of one kind: integers would cut the numbers of the bodies. `ValueError` unless
    all have the shape `(size,)`, by default that of the first."""
    arrays = [jnp.asarray(each) for each in given]
    size = arrays[0].size if size is None else size
    if any(each.shape != (size,) or jnp.iscomplexobj(each) for each in arrays):
        shapes = " and ".join(str(each.shape) for each in arrays)
        raise ValueError(
            f"{caller}: coordinates of shape {shapes} must be real, of shape ({size},). Use jax.vmap for batches."
        )
    kinds = [each.dtype for each in arrays if jnp.issubdtype(each.dtype, jnp.floating)]
    return [each.astype(max(kinds, key=lambda kind: kind.itemsize) if kinds else float) for each in arrays]


def given_mass(mechanism: Mechanism, q: Positions, params: Params) -> Matrix:
    """The mass matrix as it is given; `ValueError` for a wrong shape."""
    return as_array(mechanism.mass(q, params), (q.size, q.size), q.dtype, "Mechanism: mass")


def is_symmetric(matrix: Matrix) -> Flag:
    r"""Whether entries across the diagonal are equal, up to $\sqrt\varepsilon\sqrt{m_{ii} m_{jj}}$, whatever the units."""
    size, eps = diagonal(matrix), float(jnp.finfo(matrix.dtype).eps)
    return jnp.all((matrix - matrix.T) ** 2 <= eps * jnp.abs(size[:, None] * size))


def diagonal(matrix: Matrix) -> Float[Array, " m"]:
    """Two operations, of which `jnp.diagonal` has twenty."""
    return jnp.sum(matrix * np.eye(len(matrix), dtype=matrix.dtype), axis=1)


def load(mechanism: Mechanism, t: Time, q: Positions, v: Velocities, params: Params) -> Forces:
    r"""The generalized force on free bodies. $Q - c = M\dot v$."""
    force = as_array(mechanism.forces(t, q, v, params), q.shape, q.dtype, "Mechanism: forces")
    return force - bias(mechanism, q, v, params)


def bias(mechanism: Mechanism, q: Positions, v: Velocities, params: Params) -> Forces:
    r"""The Coriolis terms $c(q, v)$, those given or those of `mass`."""
    if mechanism.coriolis is not None:
        given = mechanism.coriolis(q, v, params)
        # One number stands for all, as 0.0 for none.
        given = jnp.full(q.shape, given) if eqx.is_array_like(given) and not jnp.ndim(given) else given
        return as_array(given, q.shape, q.dtype, "Mechanism: coriolis")
    _, momentum_drift = jax.jvp(lambda q: inertia(mechanism, q, params) @ v, (q,), (v,))
    return momentum_drift - jax.grad(lambda q: v @ inertia(mechanism, q, params) @ v / 2)(q)


def check_mechanism(mechanism: Mechanism) -> None:
    """`ValueError` unless the argument is a `Mechanism`."""
    if not isinstance(mechanism, Mechanism):
        given = f"{type(mechanism).__name__}; of a robot from a file it is robot.mechanism"
        raise ValueError(f"mechanism must be a hj.contact.Mechanism, not {given}.")


def names_of(mechanism: Mechanism, coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of the state's coordinates: the positions, then their rates. `ValueError` for other than the bodies have."""
    positions = (coordinates,) if isinstance(coordinates, str) else tuple(coordinates)
    if not positions or not all(isinstance(name, str) for name in positions):
        raise ValueError(f"coordinates: give the names of the positions, such as ('x', 'y'); got {coordinates!r}.")
    if mechanism._names and len(mechanism._names) != len(positions):
        raise ValueError(
            f"coordinates: the bodies have {len(mechanism._names)}, {', '.join(mechanism._names)}, not {len(positions)}. Of a "
            "robot from a file give robot.coordinates."
        )
    return (*positions, *(f"{name}_rate" for name in positions))
