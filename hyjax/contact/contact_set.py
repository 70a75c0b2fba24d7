r"""Bodies with any number of contacts, each open, stuck or sliding: one mode, in whose state the set of contacts is held."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, Int

from .._numerics.elimination import lemke
from .._numerics.trees import content_of, without_tangents
from .._system.per_mode import number, PerMode
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import Domain, Guard, HybridSystem
from .._system.types import Flag, Params, State, Time
from .contact import coefficients, Contact, tangents
from .laws import drift_errors, force_error, gains_nothing, rises, Tolerances
from .mechanism import diagonal, Mechanism
from .projection import Apart, least_norm, project, Projection, Rows, tied

# The code of a contact, held in the state: the slip of a contact that slides is positive or negative.
OPEN, STUCK, FORWARD, BACKWARD = range(4)
# A contact that slides without friction.
_SMOOTH = 4
Codes = Int[Array, " contacts"]
Contacts = Bool[Array, " contacts"]
Numbers = Float[Array, " contacts"]
# Friction above which a contact never slips, in the problem that decides on the set.
_ROUGH = 1e6
# Up to so many sets of contacts an impact is looked at for a second solution.
_FEW = 64


class ContactSet(eqx.Module):
    r"""Vector field, guards, reset and domain of bodies with contacts, functions of `(t, x, params)`.

    A state is $(q, v, \text{codes})$. A **row** is the gap of a contact, or its slip: first those of all gaps. A **role** is
    what a contact may do when a set is chosen: `OPEN` none, `STUCK` whatever the laws say, `FORWARD` and `BACKWARD` slide that
    way or open.
    """

    mechanism: Mechanism
    contacts: tuple[Contact, ...]
    further: Domain | None
    # Of a system: how a `ReturnMap` reads a sequence of names of sets, see `Domain`; and of the mode of one set its codes.
    read_sequence: Callable[[HybridSystem, Sequence[str]], tuple[HybridSystem, Sequence[str]]] | None = eqx.field(
        static=True, default=None
    )
    only: PerMode | None = None

    @property
    def with_slip(self) -> np.ndarray:
        """The contacts whose slips are rows, each as often as it has slips."""
        return np.array([i for i, each in enumerate(self.contacts) for _ in tangents(each)], int)

    @property
    def faces(self) -> np.ndarray:
        """The contacts that may slide against friction."""
        return np.array([i for i, each in enumerate(self.contacts) if each.slips], int)

    @property
    def slips(self) -> Bool[np.ndarray, " contacts"]:
        return np.isin(np.arange(len(self.contacts)), self.faces)

    @property
    def slip_rows(self) -> np.ndarray:
        """The row of the slip of each of `faces`."""
        return len(self.contacts) + np.searchsorted(self.with_slip, self.faces)

    # Parts of the state

    def codes(self, x: State) -> Codes:
        return jnp.round(stop_gradient(x[x.size - len(self.contacts) :])).astype(int)

    def moving(self, x: State) -> Float[Array, " moving"]:
        """Positions and velocities."""
        return x[: x.size - len(self.contacts)]

    def acting(self, codes: Codes, opens: Contacts | bool = False) -> Bool[Array, " rows"]:
        """The rows that have a force to be found: gaps that are closed, unless they open, and slips of contacts that stick."""
        return jnp.concatenate([(codes > OPEN) & ~jnp.asarray(opens), codes[self.with_slip] == STUCK])

    def room(self, force: Rows, params: Params) -> Float[Array, " slips"]:
        """How far the friction of each contact with a slip is from its bound."""
        static = self.numbers("static", params, force)[self.with_slip]
        return static * force[self.with_slip] - jnp.abs(force[len(self.contacts) :])

    def projected(self, t: Time, x: State, params: Params) -> Projection:
        return project(self.mechanism, self.contacts, t, self.moving(x), params)

    def smooth(self, params: Params, like: Array) -> Contacts:
        """The contacts whose friction is zero. They slide also where they do not slip, and the sign of their slip is none."""
        return jnp.asarray(self.slips) & (self.numbers("static", params, like) == 0)

    def numbers(self, name: str, params: Params, like: Array) -> Numbers:
        """A coefficient of all contacts, 0 where it is not given."""
        return coefficients(self.contacts, name, params, like)

    # Flow and guards

    def flow(self, t: Time, x: State, params: Params) -> Float[Array, " moving"]:
        projected = self.projected(t, x, params)
        return projected.flow(self.hold(projected, self.codes(x), params))

    def hold(self, projected: Projection, codes: Codes, params: Params) -> Rows:
        """The forces of a set of contacts."""
        return self.pushes(projected.compliance, -projected.drift, codes, params)

    def pushes(
        self, compliance: Float[Array, "rows rows"], change: Rows, codes: Codes, params: Params, given: Rows | None = None,
        opens: Contacts | bool = False, friction: str = "kinetic",
    ) -> Rows:  # fmt: skip
        """The forces (or impulses) that give the rows of a set that change of acceleration (or velocity), with friction.
        **Arguments:** `given`: of the normal forces a part that is known. `opens`: contacts with no other. `friction`: the
        coefficient of what slides."""
        acting = self.acting(codes, opens)
        both = acting[:, None] & acting
        given = jnp.zeros_like(change) if given is None else given
        if not self.faces.size:
            change = jnp.where(acting, change - compliance @ given, 0)
            compliance = jnp.where(both, compliance, 0)
            return given + least_norm(compliance, compliance, change, self.may_depend)
        against = self.against(codes, self.numbers(friction, params, change))
        of_normal = compliance @ against
        change = jnp.where(acting, change - of_normal @ given, 0)
        compliance, matrix = (jnp.where(both, each, 0) for each in (compliance, of_normal))
        if self.may_depend:
            static = self.numbers("static", params, change)[self.faces]
            force = self.shared(compliance, matrix, change, static, given[self.faces])
        else:
            force = least_norm(compliance, matrix, change, False)
        # Where a push would close the gap friction has no solution (Painlevé's paradox).
        closes = (codes > STUCK) & ~(diagonal(of_normal)[: len(self.contacts)] > 0)
        return nan_unless(~jnp.any(closes) | (friction == "static"), against @ (given + force))

    def shared(
        self, compliance, matrix: Float[Array, "rows rows"], change: Rows, static: Float[Array, " faces"],
        given: Float[Array, " faces"],
    ) -> Rows:  # fmt: skip
        """`least_norm`, then with friction of rows that depend on each other shared in proportion to the bounds mu f_n, which all
        reach together. Two trips of a loop, which is compiled once."""

        def weighted(shares, _):
            both = shares[:, None] * shares
            force = shares * least_norm(compliance * both, matrix * both, change * shares, True)
            bound = static * (given + force[self.faces])
            least = float(jnp.finfo(change.dtype).eps) ** 0.5 * jnp.max(jnp.abs(bound), initial=0)
            bounds = jnp.where(least > 0, jnp.maximum(bound, least), 1) ** 0.5
            return jnp.ones_like(change).at[self.slip_rows].set(bounds), force

        return jax.lax.scan(weighted, jnp.ones_like(change), None, length=2)[1][1]

    @property
    def may_depend(self) -> bool:
        """Whether rows may depend on each other."""
        return len(self.contacts) > 1

    def against(self, codes: Codes, kinetic: Numbers) -> Float[Array, "rows rows"]:
        """All forces by those of the rows that act: of a contact that slides friction is a multiple of the normal force."""
        side = jnp.where(codes == FORWARD, -1, jnp.where(codes == BACKWARD, 1, 0)) * kinetic
        every = np.eye(len(self.contacts) + len(self.with_slip), dtype=kinetic.dtype)
        return jnp.asarray(every) + (every[:, self.slip_rows] * side[self.faces]) @ every[self.faces]

    @eqx.filter_jit
    def distances(self, t: Time, x: State, params: Params) -> Float[Array, " guards"]:
        """The guards: of each contact the gap, or the normal force where the gap is closed; of each that may slide, the distances
        from the faces of the friction cone where a slip begins, first all positive slips, or where it slides its slip; 1 where a
        guard is of no concern."""
        codes, projected = self.codes(x), self.projected(t, x, params)
        force = self.hold(projected, codes, params)
        code, normal, tangential = codes[self.faces], force[self.faces], force[self.slip_rows]
        room = self.numbers("static", params, force)[self.faces] * normal
        slip = projected.velocity[self.slip_rows]
        sliding = jnp.select([code == FORWARD, code == BACKWARD], [slip, -slip], jnp.ones_like(slip))
        sliding = jnp.where(self.smooth(params, force)[self.faces], 1, sliding)
        ahead = jnp.where(code == STUCK, room + tangential, sliding)
        back = jnp.where(code == STUCK, room - tangential, 1)
        count = len(self.contacts)
        return jnp.concatenate([jnp.where(codes > OPEN, force[:count], projected.gaps), ahead, back])

    @eqx.filter_jit
    def may_change(self, t: Time, x: State, params: Params) -> Bool[Array, " guards"]:
        """A cone has no faces where the normal force vanishes. And of gaps that close together because the bodies are rigid, or
        slips that end together, the first one counts as the event."""
        codes, projected, count = self.codes(x), self.projected(t, x, params), len(self.contacts)
        force = self.hold(projected, codes, params)
        pressed = force[:count] > force_error(projected, slice(count))
        face = (codes != STUCK) | pressed
        first, stops = jnp.ones(count, bool), jnp.ones(len(self.faces), bool)
        if self.may_depend:
            due, with_another = self.due(x, params, projected, force), self.tied(projected, codes)
            earlier = np.tri(len(due), k=-1, dtype=bool).T
            leads = ~jnp.any(earlier & due[:, None] & due & with_another, axis=0)
            first, stops = leads[:count], leads[self.slip_rows]
        return jnp.concatenate([first, face[self.faces] & stops, face[self.faces] & stops])

    def due(self, x: State, params: Params, projected: Projection, force: Rows) -> Bool[Array, " rows"]:
        """The rows that are about to have an event: gaps of open contacts, and slips of those that slide, that are zero up to the
        errors of a flow, and the slips of contacts that stick and are at a face of their cones."""
        codes, count = self.codes(x), len(self.contacts)
        near, still = drift_errors(projected, (0.0, 0.0))
        gaps = (codes == OPEN) & (jnp.abs(projected.gaps) <= near[:count])
        slides = (codes > STUCK) & ~self.smooth(params, force)
        slips = slides[self.with_slip] & (jnp.abs(projected.velocity[count:]) <= still[count:])
        bound = self.numbers("static", params, force)[self.with_slip] * force[self.with_slip]
        near = bound - jnp.abs(force[count:]) <= float(np.finfo(force.dtype).eps) ** 0.5 * jnp.abs(bound)
        return jnp.concatenate([gaps, slips | (near & (codes == STUCK)[self.with_slip] & self.slips[self.with_slip])])

    def tied(self, projected: Projection, codes: Codes) -> Bool[Array, "rows rows"]:
        """Whether a row, the second, moves only with the first where closed gaps, and the slips of rough contacts, rest."""
        rough = (codes == STUCK)[self.with_slip] & ~self.slips[self.with_slip]
        return tied(projected.compliance, jnp.concatenate([codes > OPEN, rough]))

    # Events

    def change(self, t: Time, x: State, params: Params, i: Int[Array, ""]) -> State:
        """`change_together` of guard `i` alone."""
        return self.change_together(t, x, params, jnp.arange(len(self.contacts) + 2 * len(self.faces)) == i)

    def change_together(self, t: Time, x: State, params: Params, fallen: Bool[Array, " guards"]) -> State:
        r"""The state after the events of the guards that have `fallen`: an impact where gaps closed; then the set of contacts by
        the laws. Several events are one: their order does not enter. `unexpected_transition` for another set than `only`.

        An impact: impulses $p_n \ge 0$ with $\dot g_n^+ + e\,\dot g_n^- \ge 0$ at the contacts that strike, $\dot g_n^+ \ge 0$
        at those that are closed, and friction. Then the contacts at rest hold, slide or open as their accelerations say.
        """
        codes, count = self.codes(x), len(self.contacts)
        of_contacts = lambda flags: jnp.zeros(count, bool).at[self.faces].set(flags)
        ends, (ahead, back) = fallen[:count], map(of_contacts, jnp.split(fallen[count:], 2))
        gives, about = ahead | back, ends | ahead | back
        strikes, opens = ends & (codes == OPEN), ends & (codes > OPEN)
        # At the face of a cone the slip begins; where a slip vanishes the laws decide.
        begins = jnp.where(codes == STUCK, jnp.where(back, BACKWARD, FORWARD), STUCK)
        roles = jnp.select([opens, gives, strikes], [OPEN, begins, STUCK], codes)
        projected = self.projected(t, x, params)
        near, still = drift_errors(projected, (0.0, 0.0))
        # An open contact that touches, without a force, may strike or hold.
        touches = (jnp.abs(projected.gaps) <= near[:count]) & (jnp.abs(projected.velocity[:count]) <= still[:count])
        roles = jnp.where((codes == OPEN) & ~about & touches, STUCK, roles)
        if self.may_depend:
            # What moves only with the rows of the events has its event too; of friction each against its own.
            rows = (
                jnp.concatenate([ends, jnp.zeros(len(self.with_slip), bool)]).at[self.slip_rows].set(gives[self.faces])
            )
            force = self.hold(projected, codes, params)
            tied = jnp.any(rows[:, None] & self.tied(projected, codes), axis=0)
            others = self.due(x, params, projected, force) & tied
            closing = others[:count] & ~about
            stops = jnp.zeros(count, bool).at[self.with_slip].set(others[count:]) & ~about
            strikes |= closing & jnp.any(strikes)
            own = jnp.full(count, STUCK).at[self.with_slip].set(jnp.where(force[count:] < 0, FORWARD, BACKWARD))
            slips = stops & (codes == STUCK) & jnp.any(gives & (codes == STUCK))
            roles = jnp.where(slips, own, jnp.where(closing | (stops & (roles > STUCK)), STUCK, roles))
            # A gap between two bodies that fall alike is closed by the force at another one, and one that is held by its own.
            released = -diagonal(projected.compliance)[:count] * force[:count]
            held = (projected.drift + projected.compliance @ force)[:count]
            drift = projected.drift.at[:count].min(jnp.where(codes > OPEN, released, held))
            pulled = dataclasses.replace(projected, drift=jnp.where(jnp.isnan(drift), projected.drift, drift))
        else:
            pulled = projected

        struck = jnp.any(strikes)
        roles_of_impact = jnp.where(struck & (roles > OPEN), STUCK, OPEN)
        impulse, codes, bounces, why = self.impact(pulled, roles_of_impact, strikes, params)
        after = projected.kick(jnp.where(struck, impulse, 0))
        least_rate = float(np.finfo(x.dtype).eps) ** 0.75 * jnp.max(jnp.abs(projected.velocity))
        z = jnp.concatenate([after, x[x.size - count :]])
        projected = self.projected(t, z, params)
        # A contact without an impulse whose gap stays closed, as one of several of a rigid body, may hold.
        slip, rests = projected.velocity[self.slip_rows], jnp.abs(projected.velocity[:count]) <= least_rate
        way = jnp.where(jnp.abs(slip) > still[self.slip_rows], jnp.where(slip > 0, FORWARD, BACKWARD), STUCK)
        rests &= (roles > OPEN) & (codes == OPEN) & (jnp.abs(projected.gaps) <= near[:count])
        codes = jnp.where(rests, jnp.full(count, STUCK).at[self.faces].set(way), codes)
        resting = jnp.where(struck & ((codes == OPEN) | bounces), OPEN, jnp.where(struck, codes, roles))
        chosen, _, holds, _ = self.choose(projected.compliance, projected.drift, resting, params)
        force = self.hold(projected, chosen, params)
        least = float(np.finfo(x.dtype).eps) ** 0.5 * jnp.max(jnp.abs(force), initial=0)
        holds &= jnp.all((chosen == OPEN) | (force[:count] >= -least))
        # Without a force, up to rounding, a contact is open: a guard that begins at zero would not fall.
        chosen = jnp.where(force[:count] <= 0, OPEN, chosen)
        bounded = (chosen[self.with_slip] == STUCK) & self.slips[self.with_slip]
        holds &= jnp.all(~bounded | (self.room(force, params) > 0))
        why = choose(struck & (why != RESULTS.successful), why, choose(holds, RESULTS.successful, RESULTS.nonfinite))
        if self.only is not None:
            other = jnp.any(chosen != number(self.only)) & jnp.all(jnp.isfinite(after))
            why = choose(other & (why == RESULTS.successful), RESULTS.unexpected_transition, why)
        half, good = after.size // 2, why == RESULTS.successful
        return jnp.concatenate([after[:half], nan_unless(good, after[half:], why), chosen.astype(x.dtype)])

    def keeps_zeros(self, guard: Guard) -> Callable[[State, State, Int[Array, ""]], Flag] | None:
        """Whether the event of guard `i`, from a state to another, leaves that guard at zero: a gap that stays open, a slip that
        is reversed, and all guards where no contact changes. `None` for another `guard` than `distances`."""
        # Under `jit` the arrays of two copies are not the same.
        functions = lambda guard: content_of(eqx.filter(guard, eqx.is_array, inverse=True))
        if functions(guard) != functions(dataclasses.replace(self, only=None).distances):
            return None

        def kept(x: State, after: State, i: Int[Array, ""]) -> Flag:
            before, now = self.codes(x), self.codes(after)
            contact = jnp.asarray(np.concatenate([np.arange(len(before)), self.faces, self.faces]))[i]
            opens = (before[contact] == OPEN) & (now[contact] == OPEN)
            reversed_ = (i >= len(before)) & (before[contact] > STUCK) & (now[contact] > STUCK)
            return opens | reversed_ | jnp.all(before == now)

        return kept

    def impact(
        self, projected: Projection, roles: Codes, strikes: Contacts, params: Params
    ) -> tuple[Rows, Codes, Contacts, RESULTS]:
        """The impulses of an impact; what each contact that has one does, `OPEN` for the others; which open again; and the code:
        `nonfinite` where the laws have no solution."""
        rows, count, velocity = slice(len(self.contacts)), len(self.contacts), projected.velocity
        number = lambda name: self.numbers(name, params, velocity)
        closing, settle, poisson = -velocity[rows], number("settle"), np.array([each.poisson for each in self.contacts])
        rebound = jnp.where(strikes, number("restitution"), 0)
        bounces = (rebound > 0) & (closing > settle) & rises(projected, rebound * closing, rows)
        # Of gaps that close together all bounce, or none.
        bounces = jnp.where(jnp.any(bounces), (rebound > 0) & (closing > 0), bounces)
        # A coefficient out of its range is NaN, and remains so.
        rebound = jnp.where(bounces | jnp.isnan(rebound), rebound, 0)
        tangential = jnp.where(bounces, number("tangential"), 0)[self.with_slip]
        gained = jnp.concatenate([jnp.where(poisson, 0, rebound), tangential]) * velocity
        # By Poisson's law an impact bounces at contacts that only touch, too.
        returned = jnp.where(poisson, number("restitution"), 0)
        strikes_back = strikes & (closing > settle) & rises(projected, jnp.max(returned) * closing, rows)
        returned = jnp.where(jnp.any(strikes_back) | jnp.isnan(returned), returned, 0)
        largest = jnp.max(jnp.abs(velocity), initial=0)
        tolerance = float(np.sqrt(np.finfo(velocity.dtype).eps))
        still = jnp.abs(velocity[rows]) <= 8 * tolerance * largest

        def phase(impulse, last):
            """Compression; by Poisson's law restitution follows, the `last`, whose normal impulses are at least `given`."""
            given = jnp.concatenate(
                [returned * jnp.maximum(impulse[rows], 0), np.zeros(len(self.with_slip), impulse.dtype)]
            )
            motion = velocity + gained + projected.compliance @ impulse
            codes, opens, fits, rates = self.choose(projected.compliance, motion, roles, params, given)
            fits = jnp.stack([fits, self.is_only(projected.compliance, motion, roles, params, given)])
            rates = rates - gained
            # A contact that would open more slowly than rounding stays closed. This ends the infinitely many impacts of rocking.
            slow = ~opens & (rates[rows] <= settle) | ~rises(projected, rates[rows], rows)
            slips = jnp.zeros(count, velocity.dtype).at[self.with_slip].set(rates[count:])
            way = jnp.where(slips > 0, FORWARD, BACKWARD)
            smooth = self.smooth(params, slips)
            added = jnp.where(self.slips & ((jnp.abs(slips) > 8 * tolerance * largest) | smooth), way, STUCK)
            # What is compressed does not settle yet: it may be pulled, and would be closed when the impulses grow.
            settled = last & ((roles > OPEN) & (codes == OPEN) & slow & (strikes | still) | (opens & slow))
            codes, opens = jnp.where(settled, added, codes), opens & ~settled
            # What would open is pulled. It has no friction, which would do work in the direction of the slip.
            opening = rates[rows] > 8 * tolerance * jnp.max(jnp.where(roles > OPEN, jnp.abs(closing), 0))
            acting = jnp.where(settled & opening & (codes > STUCK), _SMOOTH, codes)
            pushes = self.pushes(projected.compliance, -motion, acting, params, given, opens)
            return impulse + pushes, (impulse + pushes, codes, opens, settled, fits)

        begun = jnp.zeros_like(velocity)
        if np.any(poisson):
            idle = jnp.all(returned <= 0)
            _, phases = jax.lax.scan(phase, begun, jnp.stack([idle, ~idle]))
            # Without a bounce the second phase is idle.
            impulse, codes, opens, settled, fits = (jnp.where(~idle, *each[::-1]) for each in phases)
            fits &= phases[-1][0]
        else:
            _, (impulse, codes, opens, settled, fits) = phase(begun, True)
        fits, unique = fits
        after = velocity + projected.compliance @ impulse
        # What settles may be pulled; impulses of others that hold it leave their cones, by as much work.
        size, small = diagonal(projected.compliance), tolerance * jnp.max(jnp.abs(impulse), initial=0)
        work = size[rows] @ jnp.where(settled, jnp.minimum(impulse[rows], 0), 0) ** 2
        within = lambda room, size: size * jnp.minimum(room + small, 0) ** 2 <= 4 * work
        # A gap that strikes and still closes has no solution, however slowly it does.
        least = jnp.maximum(jnp.where(strikes, closing / 2, jnp.inf), float(tolerance**1.8) * largest)
        apart = (roles == OPEN) | (after[rows] >= -jnp.minimum(tolerance * largest, least))
        met = ~self.acting(codes, opens) | (jnp.abs(after + gained) <= 16 * tolerance * largest)
        # The friction of both phases is within the cone of the whole impulse.
        inside = within(self.room(impulse, params), size[count:]) | (settled | ~self.slips)[self.with_slip]
        fits &= jnp.all((settled | within(impulse[rows], size[rows])) & apart) & jnp.all(met) & jnp.all(inside)
        result = choose(gains_nothing(projected, impulse), RESULTS.successful, RESULTS.gains_energy)
        result = choose(unique, choose(fits, result, RESULTS.nonfinite), RESULTS.not_unique)
        return impulse, codes, (bounces & ~poisson) | opens, result

    def is_only(
        self, compliance: Float[Array, "rows rows"], motion: Rows, roles: Codes, params: Params, given: Rows
    ) -> Flag:
        """Whether no two sets of contacts satisfy the laws with different velocities. All sets are tried where there are few;
        without friction there is one solution."""
        count, of = len(self.contacts), self.with_slip
        # Codes; one that is less by 4 for a contact that opens in spite of a force.
        opening = lambda contact: range(STUCK - 4, 0) if contact.poisson else ()
        ways = [
            (*range(4), *opening(each)) if each.slips else (OPEN, STUCK, *opening(each)[:1]) for each in self.contacts
        ]
        if not self.may_depend or not of.size or math.prod(map(len, ways)) > _FEW:
            return jnp.array(True)
        compliance, motion, given, params = without_tangents((compliance, motion, given, params))
        eps = float(jnp.finfo(motion.dtype).eps)
        still = eps**0.6 * jnp.max(jnp.abs(motion))

        def tried(codes):
            opens, codes = codes < 0, codes % 4
            force = self.pushes(compliance, -motion, codes, params, given, opens, "static")
            after, small = motion + compliance @ force, eps**0.6 * jnp.max(jnp.abs(force))
            normal, rate, slip, code = force[:count], after[:count], after[count:], codes[of]
            presses = (normal >= given[:count] - small) & (jnp.abs(rate) <= still)
            fits = jnp.where((codes > OPEN) & ~opens, presses, (rate >= -still) | (roles == OPEN))
            fits &= jnp.where(given[:count] > 0, codes > OPEN, ~opens) & ((codes == OPEN) | (roles > OPEN))
            sticks = (jnp.abs(slip) <= still) & ((self.room(force, params) >= -small) | ~self.slips[of])
            sides = jnp.where(code == FORWARD, slip, -slip) >= -still
            return after, jnp.all(fits) & jnp.all(jnp.select([code == OPEN, code == STUCK], [True, sticks], sides))

        after, fits = jax.vmap(tried)(jnp.asarray(list(itertools.product(*ways))))
        among = lambda bound: jnp.where(fits[:, None], after, bound)
        spread = jnp.max(among(-jnp.inf), axis=0) - jnp.min(among(jnp.inf), axis=0)
        return ~jnp.any(spread > eps**0.25 * jnp.max(jnp.abs(motion)))

    # The choice of a set

    def choose(
        self, compliance: Float[Array, "rows rows"], motion: Rows, roles: Codes, params: Params, given: Rows | None = None,
    ) -> tuple[Codes, Contacts, Flag, Rows]:  # fmt: skip
        r"""The set of contacts by the laws, for the acceleration (or velocity) `motion` of the rows without forces.

        Of a contact that may stick, with $f_t = \beta_+ - \beta_-$ and a bound $\lambda$ of the slip's acceleration $a_t$,

        $$0 \le f_n \perp a_n \ge 0, \quad 0 \le \beta_\pm \perp \lambda \pm a_t \ge 0, \quad
          0 \le \lambda \perp \mu f_n - \beta_+ - \beta_- \ge 0$$

        Static friction decides what sticks; what slides is then held by kinetic friction, and the others are asked again.

        In the restitution of Poisson's law a part of $f_n$ is `given`, and $0 \le f_n - \hat f_n \perp a_n \ge 0$.

        **Returns:** the codes; the contacts that open in spite of a force; whether there is a solution; and the motion of the
        rows with forces, up to the square root of rounding.

        Source: Stewart, Trinkle (1996), *An implicit time-stepping scheme for rigid body dynamics with inelastic collisions and
        Coulomb friction*, Int. J. Numer. Methods Eng. 39.
        """
        count, of = len(self.contacts), self.with_slip
        compliance, motion, given, params = without_tangents((compliance, motion, given, params))
        static, kinetic = (jnp.minimum(self.numbers(name, params, motion), _ROUGH) for name in ("static", "kinetic"))

        def ask(now):
            roles, *_, asked = now
            codes, opens, solved, after = self.solution(compliance, motion, roles, static, kinetic, given)
            fixed = jnp.where((roles == STUCK) & (codes > STUCK), codes, roles)
            return fixed, codes, opens, solved, after, jnp.any(fixed != roles), asked + 1

        start = roles, roles, roles < OPEN, jnp.array(False), motion, jnp.array(True), jnp.array(0)
        # In a loop also the first time, so that it is compiled once.
        going = lambda now: now[5] & (now[6] <= len(self.contacts))
        _, codes, opens, solved, after, *_ = jax.lax.while_loop(going, ask, start) if self.faces.size else ask(start)
        # A rough contact that would have to slide has no solution.
        rough = np.isin(np.arange(len(self.contacts)), self.with_slip) & ~self.slips
        solved &= ~jnp.any(rough & (codes > STUCK))
        # Nor has one that slid in the other direction before the friction of others was known.
        ahead = jnp.where(codes[of] == FORWARD, after[count:], -after[count:])
        small = 16 * float(jnp.finfo(motion.dtype).eps) ** 0.5 * jnp.max(jnp.abs(motion), initial=0)
        turned = (roles[of] == STUCK) & (codes[of] > STUCK) & ~self.smooth(params, motion)[of] & (ahead < -small)
        solved &= ~jnp.any(turned)
        return jnp.where((codes == STUCK) & self.smooth(params, motion), FORWARD, codes), opens, solved, after

    def solution(self, compliance, motion: Rows, roles: Codes, static: Numbers, kinetic: Numbers, given: Rows | None):
        """The set of contacts, with the directions of those that slide, by one complementarity problem."""
        count, slips, with_slip = len(self.contacts), len(self.with_slip), self.with_slip
        rough = ~self.slips[with_slip]
        friction = jnp.where(rough, _ROUGH, static[with_slip])
        taking, tests = roles > OPEN, (roles == STUCK)[with_slip]
        acting = jnp.concatenate([taking, tests])
        size = diagonal(compliance)
        scale = jnp.where(size > 0, size, 1) ** -0.5
        scaled = scale[:, None] * compliance * scale
        against = self.against(jnp.where(roles > STUCK, roles, OPEN), kinetic)
        given = jnp.zeros_like(motion) if given is None else given
        drive = (motion + compliance @ (against @ given)) * scale
        largest = jnp.max(jnp.where(acting, jnp.abs(drive), 0), initial=0)
        largest = jnp.where(largest > 0, largest, 1)
        drive = drive / largest
        of_normal = friction * scale[with_slip] / scale[count:]
        against = against * scale / scale[:, None]

        # Unknowns: the normal forces, friction in both directions, the bounds of the slips.
        normal, slip = np.eye(count, dtype=motion.dtype), np.eye(slips, dtype=motion.dtype)
        apart = np.zeros((count, slips), motion.dtype)
        to_forces = jnp.concatenate([against[:, :count], against[:, count:], -against[:, count:]], axis=1)
        rows = np.block([[normal, apart], [apart.T, slip], [apart.T, -slip]])
        # Of forces that depend on each other those of least norm are found, in the units of `least_norm`.
        least = jnp.min(jnp.where(taking & (size[:count] > 0), size[:count], jnp.inf), initial=jnp.inf)
        alike = jnp.clip(least * scale[:count] ** 2, 0.01, 1)
        small = jnp.concatenate([alike, np.ones(2 * slips, alike.dtype)]) * float(jnp.finfo(motion.dtype).eps) ** 0.5
        matrix = rows @ scaled @ to_forces + jnp.diag(small)
        bound = np.concatenate([apart, slip, slip])
        cone = jnp.concatenate([(of_normal * normal[:, with_slip]).T, -slip, -slip], axis=1) / (1 + of_normal)[:, None]
        matrix = jnp.block([[matrix, bound], [cone, jnp.zeros((slips, slips), motion.dtype)]])
        offset = jnp.concatenate([rows @ drive, of_normal * (given / scale)[with_slip] / largest / (1 + of_normal)])
        asked = jnp.concatenate([taking, tests, tests, tests])
        matrix = jnp.where(asked[:, None] & asked, matrix, 0) + jnp.diag(jnp.where(asked, 0, 1).astype(motion.dtype))
        forces, basic, solved = lemke(matrix, jnp.where(asked, offset, 1))

        closed = basic[:count] & taking
        moves = drive + scaled @ (to_forces @ forces[: count + 2 * slips])
        eps = float(jnp.finfo(motion.dtype).eps)
        # What the small addition to the matrix moves.
        slack = 8 * eps**0.5 * (1 + jnp.abs(to_forces @ forces[: count + 2 * slips]))
        slides = basic[count + 2 * slips :] & tests
        if self.may_depend:
            # At the face of a cone, without slip: one of several contacts of a rigid body, of which the others hold.
            slides &= jnp.abs(moves[count:]) > slack[count:]
        way = jnp.where(moves[count:] > 0, FORWARD, BACKWARD)
        opens = ~closed & taking & (given[:count] > 0)
        codes = jnp.where(closed | opens, roles, OPEN)
        codes = codes.at[with_slip].max(jnp.where((closed | opens)[with_slip] & slides, way, OPEN))
        # Forces that grow without bound move what they should hold.
        sound = jnp.all(~self.acting(codes, opens) | (jnp.abs(moves) <= jnp.minimum(slack, eps**0.25)))
        return codes, opens, solved & sound, moves / scale * largest

    # The domain

    def label(self, names: Sequence[str], x: State | np.ndarray) -> str:
        """The name of the set of contacts, see `set_name`."""
        held = ["closed" if each.slip is None else "stick" for each in self.contacts]
        codes = np.asarray(x)[-len(names) :].round()
        words = [
            dict(enumerate(("open", sticks, "slip+", "slip-"))).get(code, "?")
            for sticks, code in zip(held, codes, strict=True)
        ]
        return "+".join(f"{name}:{word}" for name, word in zip(names, words, strict=True))

    @property
    def guarded(self) -> int:
        return len(self.contacts)

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        """No gap that is open is negative, unless it opens: it may have drifted below zero. And what `further` says."""
        return Apart(self.mechanism, self.contacts, self.further, self.codes(x) > OPEN)(t, self.moving(x), params)

    def refusal(self, t: Time, x: State, params: Params, tolerances: Tolerances) -> RESULTS:
        """A run begins only where gaps and rates of the contacts that are closed vanish, with the slips of those that stick;
        where no force is negative or outside its cone; where no gap that is at rest would close; and in the mode of its set."""
        codes, projected, count = self.codes(x), self.projected(t, x, params), len(self.contacts)
        near, still = drift_errors(projected, tolerances)
        closed, small = codes > OPEN, force_error(projected, slice(count))
        force = self.hold(projected, codes, params)
        touches = jnp.abs(projected.gaps) <= near[:count]
        rests = touches & (jnp.abs(projected.velocity[:count]) <= still[:count])
        falls = (projected.drift + projected.compliance @ force)[:count]
        least = float(jnp.finfo(x.dtype).eps) ** 0.5 * jnp.max(jnp.abs(projected.drift), initial=0)
        good = jnp.where(closed, rests & ~(force[:count] < -small), ~(rests & (falls < -least)))
        smooth = self.smooth(params, force)
        good &= ~((codes > STUCK) & ~self.slips) & (codes >= OPEN) & (codes <= BACKWARD) & ~((codes == STUCK) & smooth)
        slip, at_rest = projected.velocity[count:], jnp.abs(projected.velocity[count:]) <= still[count:]
        code, of = codes[self.with_slip], self.with_slip
        sticks = at_rest & (~self.slips[of] | ~(self.room(force, params) < -small[of]))
        side = jnp.where(code == FORWARD, 1, -1)
        moves = (side * slip > still[count:]) | at_rest | smooth[of]
        fine = jnp.select([code == OPEN, code == STUCK], [True, sticks], moves)
        own = True if self.only is None else jnp.all(codes == number(self.only))
        return choose(jnp.all(good) & jnp.all(fine) & own, RESULTS.successful, RESULTS.outside_domain)

    def placed(self, t: Time, x: State, params: Params) -> State:
        """The state with the set of contacts that holds at its positions and velocities, after an impact where one is due; NaN
        where a gap is negative, or none holds."""
        moving = self.moving(x)
        codes, beyond, strikes, fits = self.begun(t, moving, params)
        found = jnp.concatenate([moving, codes.astype(x.dtype)])
        fallen = jnp.concatenate([strikes, np.zeros(2 * len(self.faces), bool)])
        after = dataclasses.replace(self, only=None).change_together(t, found, params, fallen)
        found = jnp.where(jnp.any(strikes), after, found)
        return nan_unless((fits | jnp.any(strikes)) & ~jnp.any(beyond), found)

    def begun(self, t: Time, x: State, params: Params) -> tuple[Codes, Contacts, Contacts, Flag]:
        """The codes of the contacts at positions and velocities `x`; which gaps are negative, which close at once; and whether
        the laws have a solution."""
        projected, count = project(self.mechanism, self.contacts, t, x, params), len(self.contacts)
        rounding = 64 * float(jnp.finfo(x.dtype).eps)
        near, still = drift_errors(projected, (rounding, rounding))
        gaps, rates = projected.gaps, projected.velocity[:count]
        touches = jnp.abs(gaps) <= near[:count]
        roles = jnp.where(touches & (jnp.abs(rates) <= still[:count]), STUCK, OPEN)
        slip = projected.velocity[self.slip_rows]
        slides, way = jnp.abs(slip) > still[self.slip_rows], jnp.where(slip > 0, FORWARD, BACKWARD)
        own = roles[self.faces]
        roles = roles.at[self.faces].set(jnp.where((own > OPEN) & slides, way, own))
        codes, _, fits, _ = self.choose(projected.compliance, projected.drift, roles, params)
        fits &= jnp.all((codes[self.with_slip] != STUCK) | (jnp.abs(projected.velocity) <= still)[count:])
        # A slip that is not affine is NaN, and a contact with it no contact that is open.
        fits &= jnp.all(jnp.isfinite(projected.velocity))
        return codes, (gaps < -near[:count]) & (rates <= still[:count]), touches & (rates < -still[:count]), fits
