r"""Bodies with several contacts, each frictionless or without slip: a mode for every set of contacts that hold."""

import functools as ft
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._system.results import nan_unless
from .._system.system import Armed, Domain, Guard, HybridSystem, Mode, Reset, Transition
from .._system.types import Flag, Params, Scalar, State, Time
from .complementarity import choose_set, Set, subsets
from .contact import Contact, gap
from .laws import rebound, settles
from .mechanism import check_mechanism, Mechanism, names_of
from .projection import halves, holding, project, Projection, Rows
from .single_contact import apart, unchanged


def contacts_system(
    mechanism: Mechanism, contacts: Mapping[str, Contact], coordinates: Sequence[str], domain: Domain | None = None
) -> HybridSystem:
    r"""Bodies with several contacts, as a hybrid system with state $x = (q, v)$: a mode for every set that holds.

    In a mode $M\dot v + c = Q + J^\top f$ and $J\dot v + \dot J v = 0$, where $J$ has a row for the gap of every contact
    in its set, and one for its slip where it is rough.

    When a gap closes, the impulses $p$ and the velocities after the impact satisfy $\dot g_j^+ = -e\,\dot g_j^-$ at the
    striking contact $j$, and $p_i \ge 0$, $\dot g_i^+ \ge 0$, $p_i\,\dot g_i^+ = 0$ at the contacts that held. Of the contacts
    with $\dot g^+ = 0$, those hold that satisfy the same complementarity condition for forces and accelerations.

    **Arguments:** `mechanism`: a `Mechanism`. `contacts`: from name to `Contact`, at most four; frictionless, or rough
    (`static=math.inf`). `coordinates`: names of the `m` positions. `domain`: optional `d(t, x, params)`, a domain of all modes
    (see `Mode`).

    **Returns:** a `HybridSystem`. A mode's name is that of its set: `"free"`, `"left"`, `"left+right"`, in the order of
    `contacts`. After an impact whose contact does not hold, for example because it bounces, the name of the striking contact is
    appended: `"free/left"` has the flow of `"free"`, and its name in a `sequence` identifies the contact. Where a contact force
    falls to zero the set without that contact follows.

    How it fails, as a code of the analysis that uses it. `simultaneous_guards`: two gaps close, or two forces vanish,
    together; the state after them depends on their order. `nonfinite`: the mass matrix is not positive definite, or no set
    satisfies the conditions at an impact. `outside_domain`: a gap that is not held closed is negative and closes, or a state is
    outside `domain`.

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. V-A; Johnson, Burden, Koditschek (2016), *A hybrid systems model for
    simple manipulation and self-manipulation systems*, Int. J. Robot. Res. 35.
    """
    names = names_of(coordinates)
    check_mechanism(mechanism)
    _check_contacts(contacts)
    bodies, labels = _Bodies(mechanism, tuple(contacts.values())), tuple(contacts)
    everyone = tuple(range(len(labels)))

    def label(held: Set, struck: int | None = None) -> str:
        name = "+".join(labels[i] for i in held) or "free"
        return name if struck is None else f"{name}/{labels[struck]}"

    modes: dict[str, Mode] = {}
    transitions: list[Transition] = []
    for held in reversed(subsets(everyone)):
        away = tuple(j for j in everyone if j not in held)
        # The same function objects for all names of a set: a system with equal modes is compiled once for them.
        mode = Mode(ft.partial(bodies.flow, held), names, apart(tuple(bodies.contacts[j] for j in away), domain))
        out: list[tuple[str, Guard, Reset, Armed | None]] = [
            (label(_without(held, i)), ft.partial(bodies.force, held, i), unchanged, None) for i in held
        ]
        for j in away:
            strike, impact = ft.partial(bodies.gap, j), ft.partial(bodies.after_impact, held, j)
            for k, after in enumerate(subsets(_with(held, j))):
                target = label(after) if j in after else label(after, j)
                out.append((target, strike, impact, ft.partial(bodies.leads_to, held, j, k)))
        for source in (label(held), *(label(held, j) for j in away)):
            modes[source] = mode
            transitions += [Transition(source, *each) for each in out]
    return HybridSystem(modes, tuple(transitions))


class _Bodies(eqx.Module):
    """Vector fields, guards and resets `(t, x, params)` of a system with several contacts, for the contacts `held`."""

    mechanism: Mechanism
    contacts: tuple[Contact, ...]

    def projected(self, held: Set, t: Time, x: State, params: Params) -> Projection:
        return project(self.mechanism, tuple(self.contacts[i] for i in held), t, x, params)

    def rough(self, held: Set) -> Set:
        """The positions in `held` of the contacts that never slip."""
        return tuple(k for k, i in enumerate(held) if self.contacts[i].rough)

    def hold(self, held: Set, projected: Projection) -> Rows:
        """The forces that keep all gaps of `held` closed."""
        redundant = len(held) > 2 or len(self.rough(held)) > 1
        return holding(projected.compliance, -projected.drift, redundant) if held else projected.drift

    def flow(self, held: Set, t: Time, x: State, params: Params) -> State:
        projected = self.projected(held, t, x, params)
        return projected.flow(self.hold(held, projected))

    def force(self, held: Set, i: int, t: Time, x: State, params: Params) -> Scalar:
        return self.hold(held, self.projected(held, t, x, params))[held.index(i)]

    def gap(self, j: int, t: Time, x: State, params: Params) -> Scalar:
        return gap(self.contacts[j], t, halves(x)[0], params)

    def impact(self, held: Set, j: int, t: Time, x: State, params: Params) -> tuple[State, Bool[Array, " contacts"]]:
        """The state after an impact of `j`, and the contacts whose gaps then neither open nor close."""
        touching = _with(held, j)
        contacts, strikes = [self.contacts[i] for i in touching], touching.index(j)
        projected = self.projected(touching, t, x, params)
        restitution = rebound(contacts[strikes], projected, strikes, params)
        change = -projected.velocity.at[strikes].mul(1 + restitution)
        candidates = tuple(tuple(touching.index(i) for i in _with(each, j)) for each in subsets(held))
        everyone = jnp.ones(len(touching), bool)
        choice = choose_set(
            projected.compliance, projected.velocity, change, candidates, self.rough(touching), everyone
        )

        # A contact that would open more slowly than rounding stays closed. This ends the infinitely many impacts of rocking.
        rates = projected.velocity + projected.compliance @ choice.forces[choice.index]
        slow = jnp.stack([settles(contact, projected, k, rates[k], params) for k, contact in enumerate(contacts)])
        sets = jnp.array([[k in each for k in range(len(touching))] for each in candidates])
        index = jnp.argmax(jnp.all(sets == (sets[choice.index] | slow), axis=1))
        strikes_and_leaves = (jnp.arange(len(touching)) == strikes) & (restitution > 0)
        return projected.kick(nan_unless(choice.fits, choice.forces[index])), sets[index] & ~strikes_and_leaves

    def after_impact(self, held: Set, j: int, t: Time, x: State, params: Params) -> State:
        return self.impact(held, j, t, x, params)[0]

    # All transitions of an impact make the same call, which XLA evaluates once.
    @eqx.filter_jit
    def outcome(self, held: Set, j: int, t: Time, x: State, params: Params) -> Int[Array, ""]:
        """The set of contacts that hold after an impact, by its number among `subsets`."""
        after, near = self.impact(held, j, t, x, params)
        touching = _with(held, j)
        projected = self.projected(touching, t, after, params)
        local = subsets(tuple(range(len(touching))))
        return choose_set(
            projected.compliance, projected.drift, -projected.drift, local, self.rough(touching), near
        ).index

    def leads_to(self, held: Set, j: int, outcome: int, t: Time, x: State, params: Params) -> Flag:
        return self.outcome(held, j, t, x, params) == outcome


def _check_contacts(contacts: Mapping[str, Contact]) -> None:
    if not isinstance(contacts, Mapping) or not contacts:
        raise ValueError(
            f"contacts_system: give contacts by name, such as {{'left': hj.contact.Contact(...)}}; got {contacts!r}."
        )
    if len(contacts) > 4:
        raise ValueError(
            f"contacts_system: {len(contacts)} contacts have {2 ** len(contacts)} sets; give at most four."
        )
    for name, contact in contacts.items():
        if not isinstance(name, str) or name == "free" or "+" in name or "/" in name or not name:
            raise ValueError(
                f"contacts_system: {name!r} cannot name a contact: 'free', '+' and '/' are reserved for modes."
            )
        if not isinstance(contact, Contact):
            raise ValueError(f"contacts_system: contacts[{name!r}] must be a hj.contact.Contact, not {contact!r}.")
        if contact.slips:
            raise ValueError(
                f"contacts_system: contact {name!r} has finite friction, static={contact.static!r}. Of several contacts "
                "each must be frictionless (leave slip out) or never slip (static=math.inf); for one, use contact_system."
            )


def _with(held: Set, j: int) -> Set:
    return tuple(sorted((*held, j)))


def _without(held: Set, i: int) -> Set:
    return tuple(k for k in held if k != i)
