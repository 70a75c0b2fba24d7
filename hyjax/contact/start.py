"""Where bodies in contact begin: the mode to which a state belongs, and the set of contacts that hold there."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._system.results import nan_unless
from .._system.system import HybridSystem
from .._system.types import Flag, Matrix, Params, State, Time
from .contact import gap, velocity_rows
from .contact_set import ContactSet
from .contact_system import Closed
from .laws import drift_errors
from .mechanism import given_mass, is_symmetric
from .projection import halves, is_affine, project


def start(
    system: HybridSystem, x0: State, params: Params, *, t0: float | Time = 0.0
) -> tuple[str, Float[Array, " state"]]:
    r"""The mode and the state at which bodies in contact begin: which contacts hold, and which way they slip.

    A contact holds where its gap and the gap's rate vanish, and the accelerations by the laws of contact keep it closed; a block
    at rest under a push beyond the limit of friction begins to slip, and one that is lifted flies.

    **Arguments:** `system`, `params`: from `contact_system`, and its parameters. `x0`: positions and velocities, shape `(2 m,)`,
    in the units of the vector field. `t0`: the time. With contacts by name all works under `jit` and `vmap`, where nothing is
    refused and the state of a start without solution is NaN; with a single contact, and with a mode for each set of contacts as
    in `ReturnMap.system`, the name of the mode is found, a static value, so the arguments must have values.

    **Returns:** the name of the mode, and the state, for `simulate`: $(q, v, \text{codes})$ with contacts by name, $(q, v)$ with
    a single contact. `ValueError` for a mass matrix that is not symmetric and positive definite, and a slip that is not affine in
    `v`; where a gap is negative, or closed and closing so that an impact is due; where a contact that cannot slip slips, or the
    law of friction has no solution (Painlevé's paradox); for a set of contacts of which the system has no mode; for a system
    without contacts, and for a state of another shape or that is not finite.

    **Example:**

    >>> mass = hj.contact.Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.stack([p, -9.81]))
    >>> floor = hj.contact.Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], static=0.3, kinetic=0.2)
    >>> block = hj.contact.contact_system(mass, {"floor": floor}, ("x", "y"))
    >>> for push in (2.0, 4.0, -4.0):
    ...     mode, x = hj.contact.start(block, jnp.zeros(4), jnp.array(push))
    ...     print(hj.contact.set_name(block, x))
    floor:stick
    floor:slip+
    floor:slip-
    >>> alone = hj.contact.contact_system(mass, floor, ("x", "y"))
    >>> [hj.contact.start(alone, jnp.zeros(4), jnp.array(push))[0] for push in (2.0, 4.0, -4.0)]
    ['C', 'S+', 'S-']

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. V, for one contact; Stewart, Trinkle (1996), Int. J. Numer. Methods Eng. 39,
    for the problem that decides between several.
    """
    domain = next((each.domain for each in system.modes.values() if isinstance(each.domain, ContactSet | Closed)), None)
    if domain is None:
        raise ValueError("start: the system has no modes of contact. Give one from hj.contact.contact_system.")
    x0, names = jnp.asarray(x0), next(iter(system.modes.values())).held
    size = system.mode(system.names[0]).dimension - len(names)
    if x0.shape != (size,) or not jnp.issubdtype(x0.dtype, jnp.floating):
        raise ValueError(f"start: x0={x0} must be positions and velocities, floating point numbers of shape ({size},).")
    is_traced = lambda tree: any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))
    if not is_traced(x0) and not np.all(np.isfinite(np.asarray(x0))):
        raise ValueError(f"start: x0={x0} must be finite.")
    t = jnp.asarray(t0, x0.dtype)
    if not is_traced((system, x0, params, t0)):
        bodies = (
            domain
            if isinstance(domain, ContactSet)
            else ContactSet(domain.body.mechanism, (domain.body.contact,), None)
        )
        _check_laws(bodies, names or ("the contact",), t, x0, params)
    if (isinstance(domain, Closed) or domain.only is not None) and is_traced((x0, params, t0)):
        raise ValueError(
            "start: the name of a mode is a static value, so that the state must have values. Call start outside of jit and "
            "vmap, or use the system of contact_system(mechanism, {'foot': contact}, ...), whose contacts have names."
        )
    if isinstance(domain, Closed):
        return _mode(system, domain, t, x0, params), x0
    codes, beyond, strikes, fits = eqx.filter_jit(ContactSet.begun)(domain, t, x0, params)
    if not is_traced((codes, beyond, strikes, fits)):
        _refuse(x0, names, beyond, strikes, ~fits)
    good = fits & ~jnp.any(beyond | strikes)
    name = system.names[0] if domain.only is None else domain.label(names, codes)
    if name not in system.names:
        raise ValueError(
            f"start: at x0={np.asarray(x0)} the contacts are {name}, and the modes are {', '.join(system.names)}."
        )
    return name, nan_unless(good, jnp.concatenate([x0, codes.astype(x0.dtype)]))


def _check_laws(bodies: ContactSet, names: Sequence[str], t: Time, x0: State, params: Params) -> None:
    """`ValueError` for a mass matrix that is not symmetric and positive definite, and for a slip that is not affine in `v`."""
    q, v = halves(x0)
    known = bodies.mechanism._rows
    # The bodies of a file move their own contacts by equations for which both hold.
    if known is not None and jax.eval_shape(lambda: known(bodies.contacts, t, q, v, params)) is not None:
        return
    mass, affine = eqx.filter_jit(_laws)(bodies, t, x0, params)
    if not is_symmetric(mass) or not np.linalg.eigvalsh(mass)[0] > 0:
        raise ValueError(
            f"start: the mass matrix must be symmetric and positive definite; at x0={np.asarray(x0)} it is {mass.tolist()}."
        )
    wrong = [names[int(k)] for k, good in zip(bodies.with_slip, affine[len(names) :], strict=True) if not good]
    if wrong:
        raise ValueError(
            f"start: {', '.join(wrong)}: slip must be affine in v, as the velocity of a point of a body is."
        )


def _laws(bodies: ContactSet, t: Time, x0: State, params: Params) -> tuple[Matrix, Bool[Array, " affine"]]:
    """The mass matrix, and which rows are affine in the velocities."""
    q, v = halves(x0)
    rows = lambda v: velocity_rows(bodies.contacts, t, q, v, params)
    return given_mass(bodies.mechanism, q, params), is_affine(rows, jax.jacfwd(rows)(v), v)


def _mode(system: HybridSystem, closed: Closed, t: Time, x0: State, params: Params) -> str:
    """The mode of a single contact: sticking before slipping, slipping before flight."""
    # Of a solver to rounding, as the default integrator.
    rounding = 64 * float(jnp.finfo(x0.dtype).eps)
    tolerances = (rounding, rounding)
    projected = project(closed.body.mechanism, (closed.body.contact,), t, x0, params)
    (near, *_), (still, *_) = drift_errors(projected, tolerances)
    distance, rate, pull = gap(closed.body.contact, t, halves(x0)[0], params), projected.velocity[0], projected.drift[0]
    touches = abs(distance) <= near
    _refuse(x0, ("the contact",), (distance < -near) & (rate <= still), touches & (rate < -still), jnp.array(False))
    for name in ("C", "S", "S+", "S-"):
        domain = system.modes[name].domain if name in system.modes else None
        if not isinstance(domain, Closed) or not bool(domain.admits(t, x0, params, tolerances)):
            continue
        # In Painlevé's paradox no force keeps the contact closed; without force it opens, or there is no solution.
        if np.all(np.isfinite(system.modes[name].vector_field(t, x0, params))):
            return name
    presses = pull < -(float(jnp.finfo(x0.dtype).eps) ** 0.5) * jnp.linalg.norm(
        projected.jacobian[0]
    ) * jnp.linalg.norm(projected.free)
    _refuse(x0, ("the contact",), False, False, touches & (abs(rate) <= still) & presses)
    return "V" if rate > 0 or (rate == 0 and pull > 0) else "U"


# Of one contact, or of each.
Flags = Flag | Bool[Array, " contacts"] | bool


def _refuse(x0: State, names: tuple[str, ...], beyond: Flags, strikes: Flags, unsolved: Flags) -> None:
    for flags, what in (
        (beyond, "the gap is negative, and does not open. Move the bodies apart"),
        (strikes, "the gap is closed and closes: an impact is due. Begin before the impact, or after it"),
        (unsolved, "the laws of contact have no solution: a contact that cannot slip slips, or Painlevé's paradox"),
    ):
        which = [name for name, flag in zip(names, np.broadcast_to(flags, len(names)), strict=True) if flag]
        if which:
            raise ValueError(f"start: at x0={np.asarray(x0)}, {', '.join(which)}: {what}.")
