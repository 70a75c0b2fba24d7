r"""Bodies with several contacts, each frictionless or without slip: a mode for every set of contacts that hold."""

import functools as ft
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._system.per_mode import number, PerMode
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import Armed, Domain, Guard, HybridSystem, Mode, Reset, Transition, unchanged
from .._system.types import Flag, Params, Scalar, State, Time
from .complementarity import choose_set, Contacts, masks, may_depend, rows_of, Set, subsets
from .contact import Contact, gap
from .contact_set import Apart
from .laws import drift_errors, force_error, rebound, settles, Tolerances
from .mechanism import check_mechanism, Mechanism, names_of
from .projection import halves, holding, project, Projection, Rows

Index = Int[Array, ""]


def contacts_system(
    mechanism: Mechanism,
    contacts: Mapping[str, Contact],
    coordinates: Sequence[str],
    domain: Domain | None = None,
    units: Sequence[str] = (),
    time_unit: str = "",
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
    `units`, `time_unit`: optional, of the state's coordinates and of time, such as `("m", "m", "m/s", "m/s")` and `"s"`.

    **Returns:** a `HybridSystem`. A mode's name is that of its set: `"free"`, `"left"`, `"left+right"`, in the order of
    `contacts`. After an impact whose contact does not hold, for example because it bounces, the name of the striking contact is
    appended: `"free/left"` has the flow of `"free"`, and its name in a `sequence` identifies the contact. Where a contact force
    falls to zero the set without that contact follows.

    How it fails, as a code of the analysis that uses it. `simultaneous_guards`: two gaps close, or two forces vanish,
    together; the state after them depends on their order. `nonfinite`: the mass matrix is not positive definite, or no set
    satisfies the conditions at an impact. `outside_domain`: a gap that is not held closed is negative and closes, a state is
    outside `domain`, or `simulate` or `flow_to_guard` starts in a mode to whose contacts the state does not belong (`Holding`).

    **Example:**

    >>> ball = hj.contact.lagrangian(lambda q, v, p: v @ v / 2)
    >>> walls = {"left": hj.contact.Contact(lambda t, q, p: q[0]), "right": hj.contact.Contact(lambda t, q, p: 1 - q[0])}
    >>> system = hj.contact.contacts_system(ball, walls, coordinates=("y",))
    >>> system.names
    ('free', 'free/left', 'free/right', 'right', 'right/left', 'left', 'left/right', 'left+right')

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
    # The functions of all modes and transitions are the same but for numbers: which contacts hold, which of them is meant.
    flow, distance, armed, after_impact = bodies.flow, bodies.guard, bodies.armed, bodies.after_impact
    for held in reversed(subsets(everyone)):
        mask = PerMode(tuple(i in held for i in everyone))
        mode = Mode(ft.partial(flow, mask), names, Holding(bodies, mask, domain), tuple(units))
        away = tuple(i for i in everyone if i not in held)
        out: list[tuple[str, Guard, Reset, Armed]] = []
        for i in held:
            opens = ft.partial(armed, mask, PerMode(i), PerMode(0))
            out.append((label(_without(held, i)), ft.partial(distance, mask, PerMode(i)), unchanged, opens))
        for i in away:
            strike, impact = ft.partial(distance, mask, PerMode(i)), ft.partial(after_impact, mask, PerMode(i))
            for k, after in enumerate(subsets(everyone)):
                if set(after) <= {*held, i}:
                    target = label(after) if i in after else label(after, i)
                    out.append((target, strike, impact, ft.partial(armed, mask, PerMode(i), PerMode(k))))
        for source in (label(held), *(label(held, j) for j in away)):
            modes[source] = mode
            transitions += [Transition(source, *each) for each in out]
    return HybridSystem(modes, tuple(transitions), time_unit)


class Holding(eqx.Module):
    """The domain of a mode: no gap that is not held is negative, unless it opens (`Apart`), and what `further` says. A run begins
    in it only where the gaps that are held, their rates and the slips of those that are rough vanish, and no force is negative.
    """

    bodies: "_Bodies"
    held: PerMode
    further: Domain | None

    @property
    def guarded(self) -> int:
        return len(self.bodies.contacts)

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        return Apart(self.bodies.contacts, self.further, self.held)(t, x, params)

    def refusal(self, t: Time, x: State, params: Params, tolerances: Tolerances) -> RESULTS:
        return choose(self.admits(t, x, params, tolerances), RESULTS.successful, RESULTS.outside_domain)

    def admits(self, t: Time, x: State, params: Params, tolerances: Tolerances) -> Flag:
        held, count = number(self.held), len(self.bodies.contacts)

        projected = self.bodies.projected(held, t, x, params)
        near, still = drift_errors(projected, tolerances)
        gaps = jnp.stack([gap(each, t, halves(x)[0], params) for each in self.bodies.contacts])
        closed = jnp.all(~held | (jnp.abs(gaps) <= near[:count]))
        forces = self.bodies.hold(held, projected)[:count]
        small = jnp.stack([force_error(projected, i) for i in range(count)])
        return closed & jnp.all(jnp.abs(projected.velocity) <= still) & ~jnp.any(held & (forces < -small))


class _Bodies(eqx.Module):
    """Vector fields, guards and resets `(t, x, params)` of a system with several contacts.

    **Arguments of the methods:** `held`: which contacts hold. `i`: a contact. `k`: the number of a set among `subsets`. Of one
    mode these are known (`PerMode`), and only its contacts are looked at (`among`). Where the mode is known only at run time,
    they are arrays.
    """

    mechanism: Mechanism
    contacts: tuple[Contact, ...]

    @property
    def rough(self) -> Set:
        """The contacts that never slip."""
        return tuple(i for i, contact in enumerate(self.contacts) if contact.rough)

    def among(self, those: Set) -> "_Bodies":
        """The bodies with those contacts alone."""
        return _Bodies(self.mechanism, tuple(self.contacts[i] for i in those))

    def flow(self, held: PerMode | Contacts, t: Time, x: State, params: Params) -> State:
        if isinstance(held, PerMode):
            return self.among(_set(held)).flow(jnp.ones(len(_set(held)), bool), t, x, params)
        projected = self.projected(held, t, x, params)
        return projected.flow(self.hold(held, projected))

    def guard(self, held: PerMode | Contacts, i: PerMode | Index, t: Time, x: State, params: Params) -> Scalar:
        """The force of a contact that holds, the gap of another."""
        if not isinstance(held, PerMode):
            return self.distances(held, t, x, params)[number(i)]
        assert isinstance(i, PerMode)
        if not held.value[i.value]:
            return gap(self.contacts[i.value], t, halves(x)[0], params)
        those = _set(held)
        return self.among(those).distances(jnp.ones(len(those), bool), t, x, params)[those.index(i.value)]

    def after_impact(self, held: PerMode | Contacts, i: PerMode | Index, t: Time, x: State, params: Params) -> State:
        if isinstance(held, PerMode):
            assert isinstance(i, PerMode)
            those = _with(_set(held), i.value)
            return self.among(those).impact(*_one_strikes(those, i.value), t, x, params)[0]
        return self.impact(held, number(i), t, x, params)[0]

    def armed(
        self, held: PerMode | Contacts, i: PerMode | Index, k: PerMode | Index, t: Time, x: State, params: Params
    ) -> Flag:
        """Whether a contact that holds opens, which it may always; whether the impact of another leads to set `k`."""
        if not isinstance(held, PerMode):
            return held[number(i)] | (self.outcomes(held, t, x, params)[number(i)] == number(k))
        assert isinstance(i, PerMode) and isinstance(k, PerMode)
        if held.value[i.value]:
            return jnp.array(True)
        those = _with(_set(held), i.value)
        after = subsets(tuple(range(len(self.contacts))))[k.value]
        wanted = subsets(tuple(range(len(those)))).index(tuple(those.index(j) for j in after))
        return self.among(those).outcome(*_one_strikes(those, i.value), t, x, params) == wanted

    def projected(self, taking: Contacts, t: Time, x: State, params: Params) -> Projection:
        return project(self.mechanism, self.contacts, t, x, params, rows_of(taking, self.rough))

    def hold(self, held: Contacts, projected: Projection) -> Rows:
        """The forces that keep all gaps of `held` closed."""
        if not self.contacts:
            return projected.drift
        redundant = may_depend(len(self.contacts), self.rough)
        return holding(projected.compliance, -projected.drift, rows_of(held, self.rough), redundant)

    # All guards of a mode make the same call, as all its conditions do below, which XLA evaluates once.
    @eqx.filter_jit
    def distances(self, held: Contacts, t: Time, x: State, params: Params) -> Float[Array, " contacts"]:
        """For each contact the distance from its event: its force if it holds, else its gap."""
        forces = self.hold(held, self.projected(held, t, x, params))[: len(self.contacts)]
        gaps = jnp.stack([gap(each, t, halves(x)[0], params) for each in self.contacts])
        return jnp.where(held, forces, gaps)

    def impact(self, held: Contacts, i: Index, t: Time, x: State, params: Params) -> tuple[State, Contacts]:
        """The state after an impact of `i`, and the contacts whose gaps then neither open nor close."""
        struck = jnp.arange(held.size) == i
        touching = held | struck
        projected = self.projected(touching, t, x, params)
        each = tuple(enumerate(self.contacts))
        restitution = jnp.stack([rebound(contact, projected, k, params) for k, contact in each])[i]
        gained = jnp.where(jnp.arange(projected.velocity.size) == i, 1 + restitution, 1)
        change = -projected.velocity * gained
        chosen, fits, forces = choose_set(
            projected.compliance, projected.velocity, change, self.rough, touching, struck
        )

        # A contact that would open more slowly than rounding stays closed. This ends the infinitely many impacts of rocking.
        rates = projected.velocity + projected.compliance @ forces[chosen]
        slow = touching & jnp.stack([settles(contact, projected, k, rates[k], params) for k, contact in each])
        sets = jnp.asarray(masks(held.size))
        index = jnp.argmax(jnp.all(sets == (sets[chosen] | slow), axis=1))
        strikes_and_leaves = struck & (restitution > 0)
        return projected.kick(nan_unless(fits, forces[index])), sets[index] & ~strikes_and_leaves

    @eqx.filter_jit
    def outcome(self, held: Contacts, i: Index, t: Time, x: State, params: Params) -> Index:
        """The set of contacts that hold after an impact of `i`."""
        after, near = self.impact(held, i, t, x, params)
        projected = self.projected(near, t, after, params)
        return choose_set(projected.compliance, projected.drift, -projected.drift, self.rough, near)[0]

    @eqx.filter_jit
    def outcomes(self, held: Contacts, t: Time, x: State, params: Params) -> Int[Array, " contacts"]:
        """For each contact the set of contacts that hold after its impact."""
        return jax.vmap(lambda i: self.outcome(held, i, t, x, params))(jnp.arange(held.size))


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


def _set(held: PerMode) -> Set:
    """Which contacts hold in a mode, by number."""
    return tuple(i for i, holds in enumerate(held.value) if holds)


def _one_strikes(those: Set, i: int) -> tuple[Contacts, Index]:
    """All `those` contacts hold but for `i`, which strikes: which hold, and the place of `i`, among those."""
    return jnp.array([j != i for j in those]), jnp.array(those.index(i))


def _with(held: Set, i: int) -> Set:
    return tuple(sorted((*held, i)))


def _without(held: Set, i: int) -> Set:
    return tuple(k for k in held if k != i)
