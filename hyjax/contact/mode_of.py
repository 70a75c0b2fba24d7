"""The mode of bodies in contact to which a state belongs."""

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .._system.system import HybridSystem
from .._system.types import Params, State, Time
from .contact import Contact, gap
from .laws import drift_errors, force_error
from .mechanism import Mechanism
from .projection import halves, project
from .several_contacts import Holding
from .single_contact import Closed


def mode_of(system: HybridSystem, x0: State, params: Params, *, t0: float | Time = 0.0) -> str:
    r"""The mode in which bodies in contact begin at a state: which contacts hold, and which way they slip.

    A mode of contact holds the state where `simulate` may begin in it: gaps, rates and slips that it constrains vanish, and the
    forces are within their laws. Of several modes the one with the most contacts is taken, and sticking before slipping. So a
    block at rest under a push beyond the limit of friction begins to slip, and one that is lifted flies.

    **Arguments:** `system`, `params`: from `contact_system` or `contacts_system`, and its parameters. `x0`: the state, shape
    `(n,)`, in the units of the vector fields. `t0`: the time. Arrays with values, not those that `jit` or `vmap` trace.

    **Returns:** the name of a mode, for `mode=` of `simulate` and others. `ValueError` for a state that no mode holds: a gap is
    negative, or closed and closing, so that an impact is due; a contact that cannot slip slips; or the law of friction has no
    solution (Painlevé's paradox). Also for a system without contacts, and for arguments of a wrong shape or dtype, or that are
    traced.

    **Example:**

    >>> mass = hj.contact.Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.stack([p, -9.81]))
    >>> floor = hj.contact.Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], static=0.3, kinetic=0.2)
    >>> block, rest = hj.contact.contact_system(mass, floor, ("x", "y")), jnp.zeros(4)
    >>> [hj.contact.mode_of(block, rest, jnp.array(push)) for push in (2.0, 4.0, -4.0)]
    ['C', 'S+', 'S-']

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. V.
    """
    mechanism, contacts = _bodies(system)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((x0, params, t0))):
        raise ValueError(
            "mode_of: the name of a mode is a static value, so that the state must have values. Call mode_of outside of jit and "
            "vmap, and give its mode to simulate."
        )
    x0, size = jnp.asarray(x0), system.mode(system.names[0]).dimension
    if x0.shape != (size,) or not jnp.issubdtype(x0.dtype, jnp.floating) or not bool(jnp.all(jnp.isfinite(x0))):
        raise ValueError(f"mode_of: x0={x0} must be a finite state of floating point numbers, of shape ({size},).")
    # Of a solver to rounding, as the default integrator.
    t, rounding = jnp.asarray(t0, x0.dtype), 64 * float(jnp.finfo(x0.dtype).eps)
    tolerances = (rounding, rounding)
    projected = project(mechanism, contacts, t, x0, params)
    near, still = (np.asarray(each)[: len(contacts)] for each in drift_errors(projected, tolerances))
    gaps = np.array([gap(each, t, halves(x0)[0], params) for each in contacts])
    rates, pulls = (np.asarray(each)[: len(contacts)] for each in (projected.velocity, projected.drift))
    beyond, touching = gaps < -near, np.abs(gaps) <= near
    if np.any(beyond & (rates <= still)):
        raise ValueError(
            f"mode_of: at x0={np.asarray(x0)} the gaps are {gaps}: a gap is negative, and does not open. Move the bodies apart."
        )
    if np.any(touching & (rates < -still)):
        raise ValueError(
            f"mode_of: at x0={np.asarray(x0)} a gap is closed and closes with the rate {np.min(rates[touching])}: an impact is "
            "due. Begin before the impact, with a gap that is positive, or after it."
        )
    # Of several contacts a mode that ends with the name of one after a slash flows as that without it.
    named = [name for name in system.names if "/" not in name]
    order = sorted(named, key=lambda name: -len(name.split("+"))) if len(contacts) > 1 else ["C", "S", "S+", "S-"]
    for name in order:
        domain = system.mode(name).domain if name in named else None
        if isinstance(domain, Holding) and not any(domain.held.value):
            continue
        if isinstance(domain, Closed | Holding) and bool(domain.admits(t, x0, params, tolerances)):
            return name
    small = np.array([force_error(projected, i) for i in range(len(contacts))])
    if np.any(touching & (np.abs(rates) <= still) & (pulls < -small)):
        raise ValueError(
            f"mode_of: at x0={np.asarray(x0)} a gap is closed and at rest, and no mode holds it: a contact that cannot slip "
            "slips, or the law of friction has no solution there (Painlevé's paradox)."
        )
    if "free" in named:
        return "free"
    return "V" if rates[0] > 0 or (rates[0] == 0 and pulls[0] > 0) else "U"


def _bodies(system: HybridSystem) -> tuple[Mechanism, tuple[Contact, ...]]:
    """The bodies of a system of contacts, and their contacts."""
    for mode in system.modes.values():
        if isinstance(mode.domain, Closed):
            return mode.domain.body.mechanism, (mode.domain.body.contact,)
        if isinstance(mode.domain, Holding):
            return mode.domain.bodies.mechanism, mode.domain.bodies.contacts
    raise ValueError(
        "mode_of: the system has no modes of contact. Give one from hj.contact.contact_system or contacts_system."
    )
