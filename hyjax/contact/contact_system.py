r"""The hybrid systems of bodies with contacts: of a single one, with modes for approach, separation, sliding in both directions
and sticking; and of contacts by name, with the names of their sets."""

import dataclasses
import functools as ft
import re
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._system.per_mode import number, PerMode
from .._system.results import choose, code_of_state, nan_unless, RESULTS
from .._system.system import Armed, Domain, HybridSystem, Mode, of_arc, Transition, unchanged
from .._system.types import Flag, Params, require_function, Scalar, State, Time
from .contact import coefficient, Contact, gap, gap_rates, slip, tangents
from .contact_set import BACKWARD, ContactSet, OPEN, STUCK
from .laws import can_hold, cone, drift_errors, force_error, gives_way, impact, pressed, slide, stick, Tolerances
from .mechanism import check_mechanism, Mechanism, names_of
from .projection import Apart, halves, project, Projection

SlipSide = PerMode | Int[Array, ""]
# The mode after an impact. Without two directions of slip, a closed contact is `_HELD`.
_APART, _FORWARD, _BACKWARD, _HELD = range(4)
# The sign of the slip.
_SIDES = {"S+": PerMode(1), "S-": PerMode(-1)}


def contact_system(
    mechanism: Mechanism,
    contact: Contact | Mapping[str, Contact],
    coordinates: Sequence[str],
    domain: Domain | None = None,
    units: Sequence[str] = (),
    time_unit: str = "",
) -> HybridSystem:
    r"""Bodies with one contact, as a hybrid system with state $x = (q, v)$.

    In flight $M\dot v + c = Q$; in contact $M\dot v + c = Q + J^\top f$ and $J\dot v + \dot Jv = 0$, where $J$ has the rows that
    the mode constrains: in `S` the row of the gap, in `C` also the row of the slip.

    **Arguments:** `mechanism`, `contact`: a `Mechanism` and a `Contact`; or contacts by name, see below. `coordinates`: names of
    the `m` positions, such as `("x", "y")`. The names of the state's coordinates are these, then `"x_rate"` and `"y_rate"`.
    `domain`: optional `d(t, x, params)`, a domain of all modes (see `Mode`). `units`, `time_unit`: optional, of the state's
    coordinates and of time, such as `("m", "m", "m/s", "m/s")` and `"s"`.

    **Returns:** a `HybridSystem` with the modes

    - `U`: free, approaching. An impact where the gap falls to zero: if elastic to `V`, if plastic to `S+`, `S-` or `C` by the
      law of friction. (Also a plastic impact leads to `V` if the gap would open in free motion.)
    - `V`: free, separating. To `U` at the apex, where the gap's rate falls to zero.
    - `S+`, `S-`: sliding, with positive and with negative slip. Friction is discontinuous where the slip vanishes, so each
      direction is a mode with a smooth flow and a smooth guard. To `V` where the normal force falls to zero. Where the slip
      vanishes, to `C` if static friction can hold, otherwise to the other direction.
    - `C`: sticking. To `S+` or `S-` where the required friction leaves the cone $|f_t| < \mu_s f_n$; to `V` where the
      normal force vanishes.

    A contact without `slip` has one frictionless `S` in place of `S+`, `S-` and `C`; a rough one has `C` alone.

    **Contacts by name**, such as `{"heel": ..., "toe": ...}`, any number: one mode, `"contacts"`, whose state $(q, v,
    \text{codes})$ holds a code of each contact, under its name: 0 open, 1 stuck (or closed, without friction), 2 and 3 sliding
    with positive and negative slip. `start` finds the codes, `set_name` names them. The guards are one family: the gap of each
    contact, or its normal force where the gap is closed; then, of each that may slide, the faces of its cone (first all positive
    slips), or its slip. After an event impulses, and then forces, satisfy the laws of all contacts at once, as a linear
    complementarity problem: that of Stewart and Trinkle, solved by Lemke's pivoting. Events at one time, as of a box that falls
    flat on two corners, are one: a single impact by the laws of all contacts, whatever contact is named first. One after the
    other they may lead elsewhere, as those of a box that is tilted do: past such events the derivatives of `simulate` are NaN,
    and maps and orbits are `simultaneous_guards`, except for gaps that close together because the bodies are rigid, as those of
    a table's feet, or whose order does not matter.

    An impact's impulse $(p_n, p_t)$ stops the slip, or reverses it to $-e_t s^-$, if $|p_t| \le \mu_s p_n$; otherwise $p_t =
    -\mu_k p_n\,\mathrm{sign}(s^+ + e_t s^-)$. A plastic impact of one contact never adds energy. Newton's law of restitution
    would at some impacts where friction is coupled to the gap (Kane, 1984). Poisson's law (`Contact(poisson=True)`) returns at
    least a part of each normal impulse in place of the closing rate.

    How it fails, as a code of the analysis that uses it. `nonfinite`: the mass matrix is not symmetric and positive definite, a
    slip is not affine in the velocities, or a push would close the gap (Painlevé's paradox). `gains_energy`: an impact would add
    energy. `not_unique`: friction allows an impact two ends, which is looked for among up to 64 sets of contacts.
    `simultaneous_guards`: two guards fall together (see above). In contact the constraint is imposed on accelerations, so the gap
    drifts from zero by the integration's error. `outside_domain`: a flight in which the gap is negative and closes, a state
    outside `domain`, or a start of `simulate` or `flow_to_guard` in a mode of contact to which the state does not belong; `start`
    names the mode to which it does.

    **Example:**

    >>> ball = hj.contact.lagrangian(lambda q, v, p: v @ v / 2 - 9.81 * q[0])
    >>> floor = hj.contact.Contact(gap=lambda t, q, p: q[0], restitution=0.5, settle=1.0)
    >>> system = hj.contact.contact_system(ball, floor, coordinates=("y",))
    >>> run = hj.simulate(system, jnp.array([1.0, 0.0]), None, mode="U", t1=2.0, max_jumps=10)
    >>> run.mode_names
    ('U', 'V', 'U', 'V', 'U', 'V', 'U', 'S')

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. V, eqs. 59-94 and Fig. 8; Stewart, Trinkle (1996), *An implicit time-stepping
    scheme for rigid body dynamics with inelastic collisions and Coulomb friction*, Int. J. Numer. Methods Eng. 39; Pfeiffer,
    Glocker (1996), *Multibody Dynamics with Unilateral Contacts*, ch. 8, for Poisson's law.
    """
    check_mechanism(mechanism)
    names = names_of(mechanism, coordinates)
    if domain is not None:
        require_function(domain, "t, x, params", "contact_system: domain")
    if isinstance(contact, Mapping):
        return _contact_set_system(mechanism, contact, names, domain, units, time_unit)
    if not isinstance(contact, Contact):
        raise ValueError(f"contact_system: contact must be a hj.contact.Contact, or contacts by name; got {contact!r}.")
    if contact.poisson:
        raise ValueError(
            "contact_system: Poisson's law is for contacts by name: give {'foot': Contact(..., poisson=True)}."
        )
    body = _Body(mechanism, contact)
    flight = Mode(body.fly, names, Apart(mechanism, (contact,), domain), tuple(units))
    held = Mode(body.hold, names, Closed(body, PerMode(0), domain), tuple(units))
    # Each method is taken from the body once: modes and transitions that differ in numbers share its program (`PerMode`).
    slide, closes, after_impact, leads_to = body.slide, body.gap, body.after_impact, body.leads_to
    if contact.slips:
        modes = {
            name: Mode(ft.partial(slide, side), names, Closed(body, side, domain), tuple(units))
            for name, side in _SIDES.items()
        } | {"C": held}
        transitions = [*_friction(body), Transition("C", "V", body.normal_force, unchanged)]
        outcomes = {"V": _APART, "S+": _FORWARD, "S-": _BACKWARD, "C": _HELD}
    else:
        touching = "C" if contact.rough else "S"
        modes = {touching: held}
        transitions = [Transition(touching, "V", body.normal_force, unchanged)]
        outcomes = {"V": _APART, touching: _HELD}
    apex = Transition("V", "U", body.gap_rate, unchanged)
    impacts = [
        Transition("U", target, closes, after_impact, ft.partial(leads_to, PerMode(outcome)))
        for target, outcome in outcomes.items()
    ]
    ways = (dataclasses.replace(way, _lands=True) for way in (apex, *impacts, *transitions))
    return HybridSystem({"U": flight, "V": flight} | modes, tuple(ways), time_unit)


class Closed(eqx.Module):
    r"""The domain of a mode in contact: what `further` says; and a run begins in it only where

    - the gap and its rate vanish, and the normal force is not negative;
    - in `C` the slip vanishes, and the force is within the friction cone, which has a width;
    - in `S+` and `S-` the slip has that sign, or vanishes where friction cannot hold and the slip that begins has that sign.

    During a run these hold by themselves, up to the solver's error: guards end the mode where a force or the slip falls, and the
    other conditions are constraints of the flow. `side`: the sign of the slip, 0 where it is held.
    """

    body: "_Body"
    side: PerMode
    further: Domain | None

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        return jnp.zeros(0, x.dtype) if self.further is None else jnp.ravel(self.further(t, x, params))

    def refusal(self, t: Time, x: State, params: Params, tolerances: Tolerances) -> RESULTS:
        return choose(self.admits(t, x, params, tolerances), RESULTS.successful, RESULTS.outside_domain)

    def admits(self, t: Time, x: State, params: Params, tolerances: Tolerances) -> Flag:
        contact, side = self.body.contact, number(self.side, x.dtype)
        projected = self.body.projected(t, x, params)
        (near, *_), still = drift_errors(projected, tolerances)
        small, held = force_error(projected), stick(projected)
        closed = (jnp.abs(self.body.gap(t, x, params)) <= near) & (jnp.abs(projected.velocity[0]) <= still[0])
        if not contact.slips:
            return closed & jnp.all(jnp.abs(projected.velocity) <= still) & ~(held[0] < -small)
        slip, rests = projected.velocity[1], jnp.abs(projected.velocity[1]) <= still[1]
        forward, backward = (cone(contact, held, each * jnp.ones_like(side), params) for each in (1, -1))
        holds = rests & ~(forward < -small) & ~(backward < -small)
        # Without friction nothing holds, also where there is no push yet: the cone has no width from which a guard would fall.
        holds &= ~(coefficient(contact, "static", params, held) == 0)
        begins = rests & ~(jnp.where(side > 0, forward, backward) > small)
        slides = (side * slip > still[1]) | begins
        normal = jnp.where(side == 0, held[0], slide(contact, projected, side, params)[0])
        return closed & ~(normal < -small) & jnp.where(side == 0, holds, slides)


def _friction(body: "_Body") -> list[Transition]:
    """The transitions out of `S+`, `S-` and `C` by slip and by loss of contact during slip."""
    transitions = []
    slip, normal_force, cone, pressed = body.slip, body.sliding_normal_force, body.cone, body.pressed
    can_hold, cannot_hold = body.can_hold, body.cannot_hold
    for name, other in (("S+", "S-"), ("S-", "S+")):
        side = _SIDES[name]
        stops = ft.partial(slip, side)
        transitions += [
            Transition(name, "V", ft.partial(normal_force, side), unchanged),
            Transition(name, "C", stops, unchanged, can_hold),
            Transition(name, other, stops, unchanged, cannot_hold),
            Transition("C", name, ft.partial(cone, side), unchanged, pressed),
        ]
    return transitions


class _Body(eqx.Module):
    """Vector fields, guards and resets `(t, x, params)` of a system with one contact. `side`: the sign of the slip, 1 or -1."""

    mechanism: Mechanism
    contact: Contact

    def projected(self, t: Time, x: State, params: Params) -> Projection:
        return project(self.mechanism, (self.contact,), t, x, params)

    # Flight

    def fly(self, t: Time, x: State, params: Params) -> State:
        return project(self.mechanism, (), t, x, params).flow(jnp.zeros(0, x.dtype))

    def gap(self, t: Time, x: State, params: Params) -> Scalar:
        return gap(self.contact, t, halves(x)[0], params)

    def gap_rate(self, t: Time, x: State, params: Params) -> Scalar:
        return gap_rates((self.contact,), t, *halves(x), params)[0]

    # Contact

    def hold(self, t: Time, x: State, params: Params) -> State:
        projected = self.projected(t, x, params)
        return projected.flow(stick(projected))

    def normal_force(self, t: Time, x: State, params: Params) -> Scalar:
        return stick(self.projected(t, x, params))[0]

    def slide(self, side: SlipSide, t: Time, x: State, params: Params) -> State:
        projected = self.projected(t, x, params)
        return projected.flow(slide(self.contact, projected, number(side, x.dtype), params))

    def sliding_normal_force(self, side: SlipSide, t: Time, x: State, params: Params) -> Scalar:
        return slide(self.contact, self.projected(t, x, params), number(side, x.dtype), params)[0]

    def slip(self, side: SlipSide, t: Time, x: State, params: Params) -> Scalar:
        return number(side, x.dtype) * slip(tangents(self.contact)[0], t, *halves(x), params)

    def can_hold(self, t: Time, x: State, params: Params) -> Flag:
        return can_hold(self.contact, self.projected(t, x, params), params)

    def cannot_hold(self, t: Time, x: State, params: Params) -> Flag:
        return ~self.can_hold(t, x, params)

    def cone(self, side: SlipSide, t: Time, x: State, params: Params) -> Scalar:
        return cone(self.contact, stick(self.projected(t, x, params)), number(side, x.dtype), params)

    def pressed(self, t: Time, x: State, params: Params) -> Flag:
        return pressed(self.projected(t, x, params))

    # Impact

    def after_impact(self, t: Time, x: State, params: Params) -> State:
        projected = self.projected(t, x, params)
        impulse, *_ = impact(self.contact, projected, params)
        return nan_unless(jnp.all(jnp.isfinite(impulse)), projected.kick(impulse), code_of_state(impulse))

    def leads_to(self, outcome: SlipSide, t: Time, x: State, params: Params) -> Flag:
        return self.outcome(t, x, params) == number(outcome)

    def outcome(self, t: Time, x: State, params: Params) -> Int[Array, ""]:
        """The mode after an impact, by number: so exactly one of the transitions at a closing gap is armed."""
        before = self.projected(t, x, params)
        impulse, elastic, slipping = impact(self.contact, before, params)
        projected = self.projected(t, before.kick(impulse), params)
        held = jnp.array(_HELD)
        if self.contact.slips:
            # Where the impulse stops the slip but friction cannot hold, the contact begins to slip.
            side = jnp.where(slipping == 0, gives_way(stick(projected)), slipping)
            stays = (slipping == 0) & can_hold(self.contact, projected, params)
            held = jnp.where(stays, _HELD, jnp.where(side > 0, _FORWARD, _BACKWARD))
        return jnp.where(elastic | (projected.drift[0] >= 0), _APART, held)


def _contact_set_system(
    mechanism: Mechanism,
    contacts: Mapping[str, Contact],
    names: Sequence[str],
    domain: Domain | None,
    units: Sequence[str],
    time_unit: str,
) -> HybridSystem:
    """The system of several contacts, see `contact_system`. **Arguments:** `names`: of the coordinates with their rates."""
    _check_contacts(contacts)
    bodies = ContactSet(mechanism, tuple(contacts.values()), domain, read_sequence)
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
    for (name, codes, given), (after, then, _) in zip(sets, [*sets[1:], sets[0]], strict=True):
        found = _guards_between(bodies, codes, then) if given is None else [given]
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
