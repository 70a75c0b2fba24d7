r"""The return map of an orbit over sets: what `krawczyk`, `attracting` and the tubes are built on."""

import functools as ft
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._numerics.eager import long_run
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import uses_time
from .._orbit.stride import run_stride
from .._system.results import RESULTS
from .._system.types import require_kind
from .disturbance import Disturbance, NONE
from .enclosed_step import Frame, frame_of, identity_frame, widened
from .event import product
from .exact_numbers import arb, exact_function
from .flow_pipe import run_arc, sentences, start_set, Tube
from .interpret import cases_decided, evaluate, JUMPS, KINKS
from .mode_field import forcing_period, ModeField
from .section_plane import at_the_time, MOMENT, section_of_reset, SectionChart, zero_after
from .symbolic import Graph
from .taylor_model import add, ball, TaylorModel

# What the enclosure of a return map takes from the orbit as numbers, on which no proof depends: values, flows, a basis.

# Steps of Runge and Kutta's method within one step of the enclosure.
SUBSTEPS = 4


def numbers_of(graph: Graph, leaves: Sequence[Any]) -> Callable:
    """The function of a graph in floats, of a flat state, evaluated without compilation."""
    exact = exact_function(graph, leaves)

    def value(x):
        found = exact([arb(each) for each in np.ravel(x).tolist()])
        return np.array([float(each.mid()) for each in found]).reshape(graph.shape)

    return value


def eigenbasis(matrix: np.ndarray) -> np.ndarray:
    """A real basis in which a matrix is nearly block-diagonal: eigenvectors, real and imaginary part of complex ones; where these
    are nearly dependent, the identity."""
    values, vectors = np.linalg.eig(matrix)
    columns = []
    for value, vector in zip(values, vectors.T, strict=True):
        if value.imag == 0:
            columns.append(vector.real / np.linalg.norm(vector.real))
        elif value.imag > 0:
            pair = np.stack([vector.real, vector.imag], axis=1)
            columns += list((pair / np.linalg.norm(pair, 2)).T)
    basis = np.stack(columns, axis=1)
    return basis if np.linalg.cond(basis) < 1e6 else np.eye(len(matrix))


def reference_flow(field: ModeField, x, h: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of the flow over each step from `x`, shape `(steps, n, n)`, and the state at the end, by Runge and Kutta's
    method of order 4."""
    rate, n, part = numbers_of(field.variational, field.leaves), field.dimension, h / SUBSTEPS
    x, flows = np.asarray(x), []
    for _ in range(steps):
        columns = np.concatenate([x[:, None], np.eye(n)], axis=1)
        for _ in range(SUBSTEPS):
            columns = _stepped(rate, columns, part)
        x = columns[:, 0]
        flows.append(columns[:, 1:])
    return np.stack(flows), x


def _stepped(rate: Callable, x: np.ndarray, h: float) -> np.ndarray:
    """One step of Runge and Kutta's method of order 4."""
    a = rate(x)
    b = rate(x + 0.5 * h * a)
    c = rate(x + 0.5 * h * b)
    return x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))


def event_near(field: ModeField, which: int, x: np.ndarray) -> tuple[float, np.ndarray]:
    """The time from a state to the surface of a guard that is near, and the state there, by Newton's method."""
    height, rate = numbers_of(field.guards[which], field.leaves), numbers_of(field.field, field.leaves)
    time = 0.0
    for _ in range(4):
        value, speed = height(x)
        time, x = time - value / speed, _stepped(rate, x, -value / speed)
    return time, x


def moving_frames(flows: Float[np.ndarray, "steps n n"]) -> Frame:
    """The factors Q of the flow's derivatives, columns by size, stacked: one more than steps."""
    frame = np.eye(flows.shape[1])
    chain = [identity_frame(len(frame))]
    for flow in flows:
        pushed = flow @ frame
        order = np.argsort(-np.linalg.norm(pushed, axis=0), kind="stable")
        frame, _ = np.linalg.qr(pushed[:, order])
        chain.append(frame_of(frame))
    return jax.tree.map(lambda *each: jnp.stack(each), *chain)


# Differences of the times of events that the method of Runge and Kutta does not measure.
MEASURED = 5e-8


class Image(eqx.Module):
    r"""The image of a set under the return map: $z'(s) = q(s) + \sum_g G_g u_g \pm r$.

    **Attributes:** `model`: $q$, shape `(m,)`. `generators`: shape `(groups, m, columns)`. `radius`: $r$, shape `(m,)`.
    `jacobian`: the ball that holds the derivative of the return map without disturbance, at every point of the set, shape `(m,
    m)`. `tubes`: one for each arc. `conditions`: what must be true, and whether it is proved. `smooth`: whether the map is smooth
    in the set; otherwise the derivative is the generalized Jacobian, which holds that of each side of a kink (`derivative`).
    """

    model: TaylorModel
    generators: Float[Array, "groups m columns"]
    radius: Float[Array, " m"]
    jacobian: TaylorModel
    tubes: tuple[Tube, ...]
    conditions: dict[str, Bool[Array, ""]]
    smooth: Bool[Array, ""]

    @property
    def proved(self) -> Bool[Array, ""]:
        """Whether the image is one: every condition is proved."""
        return jnp.all(jnp.stack(list(self.conditions.values())))


class EnclosedMap:
    """The enclosure of the return map of an orbit, compiled for sets of one form.

    **Arguments:** `orbit`: a single `PeriodicOrbit`. `disturbance`: of the vector fields. `section`: the coordinates; `None`:
    what the closing reset reads. `steps`: of each arc. `orders`: of the series in time. `reduced`: whether the
    derived section has no more coordinates than it needs. `coordinates`: the center and the rows $A$ of normalised coordinates
    $y = A(z - z_0)$, exactly; `None`: of the orbit, and of eigenvectors in floats, which depend on `steps`. `ValueError` for an
    orbit that failed or a batch.
    """

    def __init__(
        self,
        orbit: PeriodicOrbit,
        disturbance: Disturbance = NONE,
        section: SectionChart | None = None,
        steps: int = 64,
        orders: int = 12,
        reduced: bool = False,
        coordinates: tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]] | None = None,
    ):
        require_kind(
            orbit, PeriodicOrbit, "certify", "the first argument", "a hj.PeriodicOrbit, as hj.periodic_orbit returns it"
        )
        if orbit.period.ndim:
            raise ValueError("certify: this is a batch of orbits; give one of them, orbit[i].")
        if not bool(orbit.result == RESULTS.successful):
            raise ValueError(f"certify: the orbit failed ({orbit.result}); correct the guess first.")
        if orbit.period.dtype != jnp.float64:
            raise ValueError(
                "certify: enclosures need float64: jax.config.update('jax_enable_x64', True) at the start."
            )
        self.orbit, self.params, self.disturbance = orbit, orbit.params, disturbance
        system = self.system = orbit.system
        self.timed = uses_time(system, system.names, range(len(system.ways)), orbit.params, orbit.period.dtype)
        self.sequence = orbit.sequence * orbit.strides
        self.route = tuple(system.route(orbit.sequence)) * orbit.strides
        self.steps, self.orders = steps, orders
        # The period that the closing jump takes off the time, and what is proved of it.
        self.period, self.repeats = forcing_period(orbit) if self.timed else (arb(0), "")
        fields = {name: ModeField(system, name, orbit.params, self.timed, self.period) for name in set(self.sequence)}
        self.fields = tuple(fields[name] for name in self.sequence)
        # The number of the guard that ends each arc, among those of its mode.
        self.endings = tuple(field.transitions.index(i) for field, i in zip(self.fields, self.route, strict=True))
        resets = self._resets()
        self.starts, self.ends, self.durations = self._reference(resets)
        guard = self.fields[-1].of_state(system.way(self.route[-1]).guard) if reduced else None
        closing = lambda y, params: resets[-1](y, params, orbit.period)
        derived, before = section_of_reset(self.fields[-1], closing, guard, self.ends[-1], self._names())
        section = None if section is None or section.derived else section
        self.section = section or derived
        given = lambda z, p, _: self.section.lift(z, p)
        lift = given if section else lambda z, p, period: resets[-1](before(z, p), p, period)
        center, rows = coordinates or (self.section.chart(self.ends[-1], self.params), None)
        self.z = np.asarray(center)
        self.disturbances = tuple(disturbance.of_mode(field.mode.coordinates, field.dimension) for field in self.fields)
        self.lift, self._lift_slope = self.fields[0].map(lift, jnp.asarray(self.z))
        self.chart = self.fields[-1].map(lambda y, p, _: self.section.chart(y, p))
        self.jumps = tuple(field.map(after) for field, after in zip(self.fields, resets, strict=True))
        # The guards that are zero at the start of each arc, by the jump before it.
        guards = [field.of_state(system.way(i).guard) for field, i in zip(self.fields, self.route, strict=True)]
        self.leaving = tuple(
            zero_after(self.fields[j - 1], guards[j - 1], resets[j - 1], self.fields[j]) for j in range(len(guards))
        )
        self.frames, self.flows, self.later = self._along()
        self.jacobian, self.late, self.slopes = self._linearize()
        self.axes = frame_of(np.linalg.inv(eigenbasis(self.jacobian)) if rows is None else rows)
        self._ending = self.fields[-1].map(
            lambda y, p, _: self.axes.matrix @ (self.section.chart(y, p) - jnp.asarray(self.z))
        )

    def _reference(self, resets):
        """States at the starts and ends of the arcs, with the time, and durations, from the orbit."""
        orbit, starts, ends, durations = self.orbit, [], [], []
        for stride in range(orbit.strides):
            begun, passed = float(orbit.start_times[stride]), 0.0
            x = orbit.nodes[stride]
            for j in range(len(orbit.sequence)):
                elapsed = float(orbit.jump_times[stride, j])
                starts.append(jnp.append(x, begun + passed) if self.timed else x)
                y = orbit.arc_ends[j][stride]
                ends.append(jnp.append(y, begun + elapsed) if self.timed else y)
                durations.append(elapsed - passed)
                x = resets[j](ends[-1], self.params, orbit.period)
                x = x[:-1] if self.timed else x
                passed = elapsed
        return starts, ends, np.array(durations)

    def _resets(self):
        """The jumps of the arcs as functions of `(y, params, period)`; the last one takes the period off the time."""
        jumps = []
        for j, i in enumerate(self.route):
            transition = self.system.way(i)

            def after(y, params, period, transition=transition, last=j == len(self.route) - 1):
                if not self.timed:
                    return transition.reset(jnp.zeros(()), y, params)
                time = y[-1:] - period if last else y[-1:]
                return jnp.concatenate([transition.reset(y[-1], y[:-1], params), time])

            jumps.append(after)
        return jumps

    def _along(self):
        """Along the lap from the section's point, for each arc: frames, the derivatives of the steps, and by how much the event
        is later than the orbit's, where this is not by rounding."""
        frames, flows, later, leaves = [], [], [], self.fields[0].leaves
        x = numbers_of(self.lift, leaves)(self.z)
        for field, ending, (jump, _), duration in zip(
            self.fields, self.endings, self.jumps, self.durations, strict=True
        ):
            steps, x = reference_flow(field, x, duration / self.steps, self.steps)
            late, x = event_near(field, ending, x)
            frames.append(moving_frames(steps))
            flows.append(steps)
            later.append(late if abs(late) > MEASURED else 0.0)
            x = numbers_of(jump, leaves)(x)
        return tuple(frames), flows, np.array(later)

    @ft.cached_property
    def _crossing_times(self):
        """Compiled: the durations of the arcs of one stride from coordinates of the section, by the orbit's integrator."""

        def times(z):
            x = self.section.lift(z, self.params)
            t, x = (x[-1], x[:-1]) if self.timed else (jnp.zeros(()), x)
            stride = run_stride(self.system, t, x, self.params, self.sequence, self.orbit.integrator)
            ends = jnp.stack([impact.t for impact in stride.impacts]) - t
            ends = jnp.where(stride.result == RESULTS.successful, ends, jnp.nan)
            return jnp.diff(ends, prepend=0.0)

        return long_run(jax.vmap(times))

    def timing(
        self, pieces: TaylorModel, strength: float = 1.0, margin: float = 1.2
    ) -> tuple[Float[Array, "pieces arcs N"], Float[Array, "pieces arcs"]]:
        """The lengths $h(s)$ of the steps, and the windows, for a batch of pieces, so that every state reaches the events within
        the windows.

        From the durations of the arcs at the pieces' centers, faces and corners: numbers without a proof, on which no
        enclosure depends; those of the orbit where a stride fails or takes another time by far.
        """
        basis, turn = pieces.basis, np.asarray(self.axes.inverse).T
        sides = np.eye(basis.variables)
        corners = np.array(list(itertools.product((1.0, -1.0), repeat=min(basis.variables, 4))))
        corners = np.pad(corners, ((0, 0), (0, basis.variables - corners.shape[1])))
        at = np.concatenate([np.zeros((1, basis.variables)), sides, -sides, corners])
        monomials = np.prod(at[:, None, :] ** basis.exponents, axis=2)
        points = self.z + np.einsum("pn,bni->pbi", monomials, np.asarray(pieces.coefficients)) @ turn
        times = np.asarray(self._crossing_times(jnp.asarray(points.reshape(-1, points.shape[-1]))))
        times = times.reshape(*points.shape[:2], -1)
        # A start on the wrong side of a surface may cross it at once, or a period later.
        times = np.where(np.abs(times - self.durations) < 0.3 * self.durations, times, self.durations)
        m = basis.variables
        slopes = 0.5 * (times[1 : m + 1] - times[m + 1 : 2 * m + 1])
        middle = times[0]
        apart = np.max(np.abs(times - middle - np.einsum("pj,jba->pba", at, slopes)), axis=0)
        half = margin * (1.5 * apart + 1.5 * strength * self.late) + 1e-7
        h = np.zeros((*middle.shape, basis.size))
        h[..., 0] = (middle - half) / self.steps
        for j in range(m):
            h[..., basis.linear(j)] = slopes[j] / self.steps
        return jnp.asarray(h), jnp.asarray(2 * half)

    def timing_near(
        self, piece: TaylorModel, window: float | None = None
    ) -> tuple[Float[Array, "arcs N"], Float[Array, " arcs"]]:
        """As `timing` for one piece that is small and near the orbit, by the gradients of the arcs' durations.

        **Arguments:** `window`: of each arc; `None`: one that should hold what is of second order.
        """
        at = self.slopes @ np.asarray(self.axes.inverse) @ np.asarray(piece.coefficients).T
        spread = np.sum(np.abs(at[:, 1:]), axis=1)
        width = 2e-7 + 0.2 * spread + 3 * self.late if window is None else np.full(len(at), window)
        at[:, 0] += self.durations + self.later - 0.5 * width
        return jnp.asarray(at / self.steps), jnp.asarray(width)

    def image(
        self,
        piece: TaylorModel,
        h: Float[Array, "arcs N"],
        window: Float[Array, " arcs"],
        strength: float | Float[Array, ""] = 1.0,
    ) -> Image:
        """The image of the set $z(s)$, in the coordinates `axes` about `z`; pure, for `jit` and `vmap`.

        **Arguments:** `h`, `window`: of each arc, as `timing` proposes them. `strength`: a factor of the disturbance; products
        with another than 1 are rounded, and prove nothing.
        """
        basis = piece.basis
        leaves = self.fields[0].leaves
        turn = ball(self.axes.inverse, self.axes.inverse_radius)
        piece = add(product(turn, piece[:, None])[:, 0], ball(jnp.asarray(self.z)))
        groups = [
            disturbance.shape[0] * self.steps if self.disturbance.bound else 0 for disturbance in self.disturbances
        ]
        columns = max(2 * disturbance.shape[2] for disturbance in self.disturbances)
        lifted = evaluate(self.lift, piece, leaves)
        if self.section.strobe:
            lifted = widened(lifted, jnp.zeros(lifted.shape).at[-1].set(MOMENT))
        tangents = product(evaluate(self._lift_slope, piece.ball(), leaves), turn)
        states = start_set(lifted, tangents, sum(groups), columns)
        tubes, conditions = [], sentences(cases_decided(self.lift, JUMPS, piece, leaves))
        smooth = [cases_decided(self.lift, KINKS, piece, leaves)]
        for j, field in enumerate(self.fields):
            pushes = strength * self.disturbances[j] if groups[j] else jnp.zeros((0, field.dimension, 1))
            pushes = jnp.pad(pushes, ((0, 0), (0, 0), (0, columns // 2 - pushes.shape[2]))) if groups[j] else pushes
            time, last = TaylorModel(h[j], jnp.zeros(()), basis), j == len(self.fields) - 1
            states, around, tube, proved, known = run_arc(
                field, self.endings[j], self.orders, self.frames[j], states, time, window[j], pushes, sum(groups[:j]),
                jnp.asarray(self.leaving[j]), self._ending if last else self.jumps[j],
            )  # fmt: skip
            tubes.append(tube)
            after = (self.chart if last else self.jumps[j])[0]
            smooth += [known, cases_decided(after, KINKS, around, leaves)]
            proved |= sentences(cases_decided(after, JUMPS, around, leaves))
            for name, holds in proved.items():
                conditions[name] = conditions.get(name, True) & holds
        if self.section.strobe:
            conditions["the orbit returns at the time of the section"] = at_the_time(
                self.fields[-1], self.endings[-1], around, jnp.asarray(self.ends[-1])
            )
        kinks = jax.tree.leaves(smooth)
        every = jnp.all(jnp.stack(kinks)) if kinks else jnp.asarray(True)
        return Image(states.model, states.generators, states.error, states.tangents, tuple(tubes), conditions, every)

    def _names(self):
        return self.system.mode(self.sequence[-1]).coordinates + (("time",) if self.timed else ())

    def _linearize(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The Jacobian of the return map on the orbit; for each arc how late a disturbance can make its event; and the gradients
        of the arcs' durations: to first order, numbers without a proof, on which no enclosure depends."""
        tangents = numbers_of(self._lift_slope, self.fields[0].leaves)(self.z)
        late, blown, slopes = [], np.zeros((self.fields[0].dimension, 0)), []
        for j, (field, flows, disturbance, y) in enumerate(
            zip(self.fields, self.flows, self.disturbances, self.ends, strict=True)
        ):
            h, leaves = self.durations[j] / self.steps, field.leaves
            for flow in flows:
                blown = np.concatenate([flow @ blown, *(h * np.asarray(group) for group in disturbance)], axis=1)
                tangents = flow @ tangents
            gradient = numbers_of(field.gradients[self.endings[j]], leaves)(y)
            slopes.append(-gradient[:-1] @ tangents / gradient[-1])
            width = max(disturbance.shape[2], 1)
            sizes = np.add.reduceat((gradient[:-1] @ blown) ** 2, np.arange(0, blown.shape[1], width))
            # Displacements are spread out along the axes of the frame before the event.
            axes = np.asarray(self.frames[j].matrix[-1])
            along = np.add.reduceat((axes.T @ blown) ** 2, np.arange(0, blown.shape[1], width), axis=1)
            spread = np.abs(gradient[:-1] @ axes) @ np.sqrt(along).sum(axis=1)
            late.append(max(np.sqrt(sizes).sum(), 0.7 * spread) / abs(gradient[-1]))
            project = (
                np.eye(field.dimension) - np.outer(numbers_of(field.field, leaves)(y), gradient[:-1]) / gradient[-1]
            )
            after = self.chart if j == len(self.flows) - 1 else self.jumps[j]
            slope = numbers_of(after[1], leaves)(y) @ project
            tangents, blown = slope @ tangents, slope @ blown
        return tangents, np.array(late), np.array(slopes)
