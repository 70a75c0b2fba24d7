"""Systems of bodies with contacts by name, and the names of their sets."""

import dataclasses
import functools as ft
import re
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .._system.per_mode import PerMode
from .._system.system import Armed, Domain, HybridSystem, Mode, of_arc, Transition
from .._system.types import Params, State, Time
from .contact import Contact
from .contact_set import BACKWARD, ContactSet, OPEN, STUCK
from .mechanism import Mechanism, names_of


def contact_set_system(
    mechanism: Mechanism,
    contacts: Mapping[str, Contact],
    coordinates: Sequence[str],
    domain: Domain | None,
    units: Sequence[str],
    time_unit: str,
) -> HybridSystem:
    """The system of several contacts, see `contact_system`."""
    _check_contacts(contacts)
    bodies = ContactSet(mechanism, tuple(contacts.values()), domain, read_sequence)
    names = names_of(mechanism, coordinates)
    if twice := set(names) & set(contacts):
        raise ValueError(f"contact_system: {sorted(twice)} name both a coordinate and a contact.")
    units = (*units, *("1" for _ in contacts)) if units else ()
    mode = Mode(bodies.flow, names, bodies, units, held=tuple(contacts))
    change = Transition("contacts", "contacts", bodies.distances, bodies.change, bodies.may_change, _lands=True)
    return HybridSystem({"contacts": mode}, (change,), time_unit)


def set_name(system: HybridSystem, x: State | np.ndarray) -> str:
    """The name of the set of contacts in a state, such as `"heel:stick+toe:open"`.

    A contact is `open`, `stick`, `slip+` or `slip-`, by the sign of its slip; without friction `open` or `closed`.

    **Arguments:** `system`: from `contact_system` with contacts by name. `x`: its state, shape `(n,)`, such as one of
    `Trajectory.x_starts`. **Returns:** a text. `ValueError` for a system without contacts by name.

    **Example:**

    >>> ball = hj.contact.lagrangian(lambda q, v, p: v @ v / 2)
    >>> walls = {"left": hj.contact.Contact(lambda t, q, p: q[0]), "right": hj.contact.Contact(lambda t, q, p: 1 - q[0])}
    >>> system = hj.contact.contact_system(ball, walls, coordinates=("y",))
    >>> hj.contact.set_name(system, jnp.array([0.0, 0.0, 1.0, 0.0]))
    'left:closed+right:open'

    Source: Johnson, Burden, Koditschek (2016), *A hybrid systems model for simple manipulation and self-manipulation systems*,
    Int. J. Robot. Res. 35, for modes that are sets of contacts.
    """
    mode = next((each for each in system.modes.values() if hasattr(each.domain, "label")), None)
    if mode is None:
        raise ValueError("The system must be one that contact_system makes of contacts by name.")
    if np.shape(x) != (mode.dimension,):
        raise ValueError(
            f"set_name: x of shape {np.shape(x)} must be one state, of shape ({mode.dimension},): positions, velocities, codes."
        )
    return mode.label("contacts", x)


# Sequences of sets


def read_sequence(system: HybridSystem, sequence: Sequence[str]) -> tuple[HybridSystem, Sequence[str]]:
    """A system whose modes are the sets that a closed sequence names, and the sequence with the guard that ends each arc; as they
    are where it names no sets. What leads to another set than the next is `unexpected_transition`."""
    known = lambda each: of_arc(str(each), system.names)[0] in system.names
    if isinstance(sequence, str) or len(system.names) > 1 or all(map(known, sequence)):
        return system, sequence
    (mode,), (change,), ways = system.modes.values(), system.transitions, []
    bodies, armed = mode.domain, change.armed
    assert isinstance(bodies, ContactSet) and armed is not None
    count, sets = len(bodies.contacts) + 2 * len(bodies.faces), [_named(bodies, mode.held, each) for each in sequence]
    arcs, ends = [], {name: {} for name, _, _ in sets}
    for (name, codes, number), (after, then, _) in zip(sets, [*sets[1:], sets[0]], strict=True):
        found = _guards_between(bodies, codes, then) if number is None else [number]
        others = [each for target, (_, numbers) in ends[name].items() if target != after for each in numbers]
        if len(found) != 1 or found[0] in others or found[0] >= count:
            raise ValueError(
                f"sequence: the event that leads from {name!r} to {after!r} is not determined. Name its guard, as in "
                f"'{name}[0]', one of {count}: of each contact its gap or normal force, then of those that may slide the slip "
                "forward, or its end, then that backward; or give a section."
            )
        ends[name].setdefault(after, (then, []))[1].extend(found)
        arcs.append(f"{name}[{found[0]}]")
    for name, targets in ends.items():
        named = [each for _, numbers in targets.values() for each in numbers]
        for k, (after, (then, numbers)) in enumerate(targets.items()):
            # Guards that no arc names belong to the first.
            own = np.isin(np.arange(count), numbers) | ((k == 0) & ~np.isin(np.arange(count), named))
            reset = dataclasses.replace(bodies, only=PerMode(tuple(then.tolist()))).change
            ways.append(Transition(name, after, change.guard, reset, ft.partial(_armed, armed, own), _lands=True))
    domains = {name: dataclasses.replace(bodies, only=PerMode(tuple(codes.tolist()))) for name, codes, _ in sets}
    modes = {name: dataclasses.replace(mode, domain=domain) for name, domain in domains.items()}
    return HybridSystem(modes, ways, system.time_unit), tuple(arcs)


def _named(bodies: ContactSet, names: Sequence[str], text: str) -> tuple[str, np.ndarray, int | None]:
    """The name of a set, its codes, and the number of the guard that is named with it."""
    words = {"open": 0, "stick": 1, "slip+": 2, "slip-": 3, "closed": 1}
    each = r"\+".join(f"{re.escape(name)}:({'|'.join(map(re.escape, words))})" for name in names)
    found = re.fullmatch(rf"({each})(?:\[(\d+)\])?", str(text))
    name, *known, number = found.groups() if found else ("", None)
    codes = np.array([words[word] for word in known] or np.zeros(len(names), int))
    if bodies.label(names, codes) != name:
        raise ValueError(
            f"sequence: {text!r} names no set of the contacts. Name each of them, in their order, as in "
            f"{bodies.label(names, np.zeros(len(names)))!r}: open, or closed (stick, slip+ or slip- with friction)."
        )
    return name, codes, None if number is None else int(number)


def _guards_between(bodies: ContactSet, codes: np.ndarray, then: np.ndarray) -> list[int]:
    """The guards by which one set may lead to another. Of contacts that change alike, as those of a rigid body, the first."""
    count, of = len(codes), bodies.faces
    strikes, lifts = np.flatnonzero((codes == OPEN) & (then > OPEN)), np.flatnonzero((codes > OPEN) & (then == OPEN))
    slips = np.flatnonzero((codes[of] > OPEN) & (then[of] > OPEN) & (codes[of] != then[of]))
    back = count + slips + len(of) * ((codes[of] == STUCK) & (then[of] == BACKWARD))[slips]
    bounces = np.flatnonzero(codes == OPEN) if np.array_equal(codes, then) else np.zeros(0, int)
    found = [strikes[:1]] if strikes.size else [lifts[:1], back[:1], bounces]
    return np.concatenate(found).tolist()


def _armed(armed: Armed, own: np.ndarray, t: Time, x: State, params: Params) -> Bool[Array, " guards"]:
    return jnp.asarray(armed(t, x, params)) & own


def _check_contacts(contacts: Mapping[str, Contact]) -> None:
    if not contacts:
        raise ValueError("contact_system: give at least one contact, such as {'left': hj.contact.Contact(...)}.")
    for name, contact in contacts.items():
        if not isinstance(name, str) or not name or "+" in name or ":" in name:
            raise ValueError(f"contact_system: {name!r} cannot name a contact: '+' and ':' are for the names of sets.")
        if not isinstance(contact, Contact):
            raise ValueError(f"contact_system: contacts[{name!r}] must be a hj.contact.Contact, not {contact!r}.")
