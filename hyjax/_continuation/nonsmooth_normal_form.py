r"""Normal forms where a branch ends at grazing: the return map on both sides of the orbit that touches a guard.

$S_0$ is the return map of the flow that ignores the guard, smooth on both sides, and $H$ the least value of the guard along the
arc. Where $H < 0$ the guard fires, and the state at the extremum is displaced. With $f$ the field, $R$ the reset, $\ddot g$
the second rate of the guard at the extremum $x$,

- of an impact by $w \sqrt{-H}$, $w = \sqrt{2/\ddot g}\,(f(R) - D_xR\,f - D_tR)$: the flow meets the surface earlier than the
  extremum by $\sqrt{-2H/\ddot g}$, jumps, and is led back to the time of the extremum;
- of grazing-sliding by $-w H$, $w = (f_2 - f_1)/L_2$ with the rate $L_2$ at which the field beyond leads back to the surface: the
  flow slides until $f_1$ is tangent.

At a corner $H$ is the guard where the arc begins: for $H < 0$ it has fired at once. If the return map does not jump there, as a
piecewise smooth map does not at its border, it is $S_0(y) - \beta H$ too, with the difference $-\beta h$ of both derivatives.

So with $D = D_yS_0$, the row $h = D_yH$ and $\beta$, the displacement carried to the end of the orbit,

$$S(y) = S_0(y) + \beta\,\rho(H), \qquad \rho = \sqrt{-H} \text{ or } -H \text{ for } H < 0, \quad 0 \text{ for } H \ge 0.$$

A fixed point has $H = e\,\delta + \gamma\,\rho$, with the rate $e$ of $H$ along the branch, the parameter's variation $\delta$
and $\gamma = h(I - D)^{-1}\beta$. At grazing the orbit that impacts has $\sqrt{-H} = -e\,\delta/\gamma$: it exists beyond the
branch for $\gamma > 0$, and for $\gamma < 0$ on its side. With sliding $H = e\,\delta / (1 + \gamma)$.

Source: Nordmark (1991), J. Sound Vib. 145, 279-297; di Bernardo, Budd, Champneys, Kowalczyk (2008), *Piecewise-smooth Dynamical
Systems*, chs. 3, 6-8; Fredriksson, Nordmark (1997), Proc. R. Soc. A 453, 1261-1276, and Chin, Ott, Nusse, Grebogi (1994), Phys.
Rev. E 50, 4427-4444, for what attracts beyond; Feigin (1970), J. Appl. Math. Mech. 34, 822-830, for border collisions.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._flow.flow import run_to_guard
from .._flow.jump import reset
from .._numerics.eager import long_run
from .._numerics.eigenvalues import inside_circle
from .._numerics.linearize import with_columns
from .._orbit.stride import run_stride
from .._results.shown import Shown
from .._results.table import Table, without_rounding
from .._system.filippov import border_of
from .._system.system import HybridSystem
from .._system.where import leaf_names
from .grazing import ENDS, grazing_equation, Touch, vanished
from .unfolding import Unfolding

# A displacement below this, relative to that along the field, is none: the reset and the fields agree to first order.
NONE = 1e-9
# So many returns after an impact decide whether the next come back to the guard.
RETURNS = 60
# A multiplier that is nearer to 1 than this may be 1 but for rounding.
UNDECIDED = 1e-9


class NonsmoothForm(Shown):
    r"""The return map near an orbit at grazing, $S(y) = S_0(y) + \beta\,\rho(H)$; a guard fires where $H < 0$.

    **Attributes:** `kind`: `grazing`, `grazing-sliding` or `corner`. `exponent`: 0.5 for $\rho = \sqrt{-H}$ (impacts), 1 for
    $\rho = -H$ (sliding, or the border of a piecewise smooth map), 1.5 where there is neither and the map has a derivative, as of
    an elastic wall; there $\beta = 0$; and 0 at a corner where it jumps, by $\beta$. `jacobian`:
    $D_yS_0$, of the pre-impact state at the end of the orbit, shape `(n, n)`. `beta`, `slope`: $\beta$ and $D_yH$, shape `(n,)`,
    in the units of the state and of the guard. `rate`: $e$, by which $H$ changes with the parameter along the branch. `gain`:
    $\gamma = D_yH\,(I - D_yS_0)^{-1}\beta$. `multiplier`: of $S_0$, with the largest modulus. `persists`: whether the orbit
    goes on beyond, on the side where the guard fires. `criticality`: that in words, and what attracts there. `value`,
    `parameter`: of the point.

    Where the exponent is 1 `jacobians` are those of both sides, by which Feigin's rules decide: `persists` where both together
    have an even number of real eigenvalues above 1, and an orbit of twice the period, with one stride on either side, where that
    of those below -1 is odd. At a corner the state is that just after the closing jump.

    **Example:**

    >>> fly = hj.Mode(lambda t, x, p: jnp.stack([x[1], 2 + 0 * p, 1 + 0 * p]), coordinates=("height", "rate", "clock"))
    >>> thrown = lambda t, x, p: jnp.stack([p + (x[0] - p) / 2, 0 * p - 2, 0 * p])
    >>> ways = [hj.Transition(mode, "fly", lambda t, x, p: 2 - x[2], thrown) for mode in ("fly", "bounced")]
    >>> bounce = lambda t, x, p: x * jnp.array([1.0, -0.5, 1.0])
    >>> ways += [hj.Transition("fly", "bounced", lambda t, x, p: x[0], bounce)]
    >>> step = hj.ReturnMap(hj.HybridSystem({"fly": fly, "bounced": fly}, ways), sequence=("fly",))
    >>> orbit = hj.periodic_orbit(step, jnp.array([1.5, -2.0, 0.0]), jnp.array(1.5))
    >>> (point,) = hj.continuation(orbit, where=lambda p: p, stop=0.5, throw=False).special_points
    >>> print(f"{point.normal_form.gain:.6f}")
    3.000000
    >>> point.normal_form.criticality.split("; ")[1]
    'beyond, a period-adding cascade with bands of chaos between'

    Source: Nordmark (1991); Chin, Ott, Nusse, Grebogi (1994); Fredriksson, Nordmark (1997); Feigin (1970); di Bernardo, Budd,
    Champneys, Kowalczyk (2008), chs. 3-4.
    """

    kind: str
    exponent: float
    jacobian: np.ndarray
    beta: np.ndarray
    slope: np.ndarray
    rate: float
    gain: float
    persists: bool
    criticality: str
    value: float
    parameter: str

    @property
    def multiplier(self) -> complex:
        """The multiplier of largest modulus on the side that misses the guard."""
        values = np.linalg.eigvals(self.jacobian)
        return complex(values[np.argmax(np.abs(values))])

    @property
    def jacobians(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the side that misses the guard, and of the other; infinite there with impacts."""
        far = np.inf if self.exponent < 1 else self.exponent == 1
        with np.errstate(invalid="ignore"):
            return self.jacobian, self.jacobian - far * np.outer(self.beta, self.slope)

    def _tables(self):
        rows = [(name, f"{getattr(self, name):.10g}") for name in ("exponent", "rate", "gain", "multiplier")]
        return (
            Table(
                f"Normal form of {self.kind} at {self.parameter} = {self.value:.10g}", rows, notes=[self.criticality]
            ),
        )


def nonsmooth_form(kind: str, unfolding: Unfolding, v: Array, touch: Touch) -> NonsmoothForm:
    """The normal form at a special point of a branch whose orbit touches a guard at an extremum. `ValueError` for another end."""
    name = leaf_names(unfolding.params)[unfolding.free[0]]
    way = unfolding.problem.system.way(touch.transition)
    value = float(without_rounding(unfolding.split(v)[1], unfolding.scale)[0])
    if kind == "corner":
        return _of_corner(unfolding, v, touch, name, value)
    if kind not in ENDS:
        raise ValueError(f"normal_form: there is none of a {kind} point, of codimension two and not smooth.")
    if kind not in ("grazing", "grazing-sliding"):
        raise ValueError(
            f"normal_form: there is none of a {kind} point, where the return map is smooth to first order."
        )
    if touch.of_rate:
        raise ValueError(
            "normal_form: by symmetry three crossings of the section are one here: the orbit goes on with another section."
        )
    dimension = lambda mode: unfolding.problem.system.mode(mode).dimension
    if not touch.lowest or dimension(way.source) != dimension(way.target):
        raise ValueError("normal_form: the guard is touched from below, or leads to a mode of another dimension.")
    columns, slope, off, push = map(np.asarray, _columns(unfolding, v, touch, kind == "grazing-sliding"))
    if off > 1e-6:
        raise ValueError(
            "normal_form: the guard that is touched changes the state, or its rate by a jump, even where the flow is tangent to "
            "its surface: the return map jumps."
        )
    n, height = columns.shape[0] - 1, float(touch.size)
    jacobian = columns[:n, :n] + np.eye(n)
    moved = np.linalg.solve(np.eye(n) - jacobian, columns[:n, n:])
    rate = float(columns[n, n] + columns[n, :n] @ moved[:, 0]) * height / float(unfolding.scale[0])
    gain = float(slope @ moved[:, 1]) * height
    beta, slope = columns[:n, -1] * float(unfolding.state_scale), slope * height / float(unfolding.state_scale)
    # A displacement along the flow is none at the end of the orbit.
    moves = push > NONE and np.max(np.abs(columns[:n, -1])) > NONE
    exponent = 1.0 if kind == "grazing-sliding" else 0.5 if moves else 1.5
    persists = exponent == 1.5 or gain > (0 if exponent == 0.5 else -1)
    words = _words(exponent, jacobian, beta, slope, persists, _sides(name, rate, value))
    return NonsmoothForm(kind, exponent, jacobian, beta, slope, rate, gain, persists, words, value, name)


def _of_corner(unfolding: Unfolding, v: Array, touch: Touch, name: str, value: float) -> NonsmoothForm:
    """The normal form at a corner."""
    columns, other, jump = map(np.asarray, _both_sides(unfolding, v, touch))
    n = len(jump)
    jacobian, slope = columns[:n, :n] + np.eye(n), columns[n, :n]
    rate = float(columns[n, n] + slope @ np.linalg.solve(np.eye(n) - jacobian, columns[:n, n]))
    jumps = bool(np.max(np.abs(jump)) > 1e-7 * float(unfolding.state_scale))
    # The derivatives differ by a matrix of rank one.
    beta = jump if jumps else (columns[:n, :n] - other[:, :n]) @ slope / (slope @ slope)
    gain = float(slope @ np.linalg.solve(np.eye(n) - jacobian, beta))
    exponent, persists = (0.0, False) if jumps else (1.0, gain > UNDECIDED - 1)
    words = _words(
        exponent, jacobian, beta, slope, persists, _sides(name, rate, value), "where the guard has fired at once"
    )
    return NonsmoothForm("corner", exponent, jacobian, beta, slope, rate, gain, persists, words, value, name)


@long_run
def _both_sides(unfolding: Unfolding, v: Array, touch: Touch) -> tuple[Array, Array, Array]:
    """Of a corner the Jacobian of the equation of the orbit that ignores the guard, of the state just after the closing jump, and
    of the guard where its arc begins, shape `(n + 1, n + 1)`; that of the orbit at which the guard has fired at once, shape `(n,
    n + 1)`; and by how much its end differs."""
    unfolding = unfolding.rolled()
    problem, system, k = unfolding.problem, unfolding.problem.system, touch.arc
    sequence, way = problem.sequence * problem.strides, system.way(touch.transition)
    missed = [system.way(e) for e in system.route(sequence)]
    back = missed[k].target
    onward = [each for each in map(system.way, system.ways_out(way.target)) if each.target == back]
    if way.target == back:
        fired, onward = sequence, []
    elif len(onward) == 1:
        fired = (*sequence[: k + 1], way.target, *sequence[k + 1 :])
    else:
        raise ValueError(f"normal_form: the mode {way.target!r} after the corner does not lead back to mode {back!r}.")

    def equation(sequence, taken, vanishes):
        names = tuple(f"arc {i}" for i in range(len(sequence)))
        modes = {
            name: dataclasses.replace(system.mode(mode), domain=None)
            for name, mode in zip(names, sequence, strict=True)
        }
        ways = [
            dataclasses.replace(each, source=source, target=target, at_once=False)
            for each, source, target in zip(taken, names, (*names[1:], names[0]), strict=True)
        ]
        arcs = [vanished if i == k and vanishes else run_to_guard for i in range(len(names))]
        by_arcs, integrator = HybridSystem(modes, ways), unfolding.integrator.renamed(names, sequence)

        def residual(u):
            t, x, params = jnp.zeros((), u.dtype), u[:-1], unfolding.params_at(u[-1:])
            impacts = run_stride(by_arcs, t, x, params, names, integrator, arcs).impacts
            begun = (
                (t, x)
                if k == 0
                else (impacts[k - 1].t, reset(taken[k - 1], impacts[k - 1].t, impacts[k - 1].x, params))
            )
            after = reset(taken[-1], impacts[-1].t, impacts[-1].x, params)
            return jnp.append(after - x, way.guard(*begun, params)), None

        return residual

    (y,), values = unfolding.split(v)
    u = jnp.append(problem.closing_jump(y, unfolding.params_at(values)), values)
    here, columns, _ = with_columns(equation(sequence, missed, False), u)
    there, other, _ = with_columns(equation(fired, [*missed[:k], way, *(onward or ()), *missed[k + 1 :]], True), u)
    return columns, other[:-1], (there - here)[:-1]


@long_run
def _columns(unfolding: Unfolding, v: Array, touch: Touch, sliding: bool) -> tuple[Array, Array, Array, Array]:
    """The scaled Jacobian of `grazing_equation` by the unknowns and by the displacement, shape `(n + 1, n + 2)`; the gradient of
    the scaled guard; by how much the reset changes the state at the extremum or its rate; and the size of the displacement; both
    relative."""
    unfolding, system = unfolding.rolled(order=2), unfolding.problem.system
    way = system.way(touch.transition)
    field, beyond = system.mode(way.source).vector_field, system.mode(way.target).vector_field
    if not sliding:
        touch = eqx.tree_at(lambda touch: touch.jump, touch, jnp.array(False))

    def jumped(t, x, params):
        along = jnp.ones_like(t), field(t, x, params)
        image, moved = jax.jvp(lambda t, x: reset(way, t, x, params), (t, x), along)
        return image, beyond(t, image, params), moved, along

    def push(t, x, params):
        if sliding:
            border = border_of(way)
            _, other, _ = border.args  # pyright: ignore[reportOptionalMemberAccess, reportFunctionMemberAccess]
            return (other(t, x, params) - field(t, x, params)) / border(t, x, params)  # pyright: ignore[reportOptionalCall]
        _, after, moved, _ = jumped(t, x, params)
        rate = lambda t, x: jax.jvp(
            lambda t, x: way.guard(t, x, params), (t, x), (jnp.ones_like(t), field(t, x, params))
        )[1]
        _, second = jax.jvp(rate, (t, x), (jnp.ones_like(t), field(t, x, params)))
        return jnp.sqrt(2 / second) * (after - moved)

    equation = lambda u: grazing_equation(unfolding, touch, u[:-1], push, u[-1])
    _, columns, (_, (t, x, *_)) = with_columns(equation, jnp.append(v, 0))
    n, params = columns.shape[0] - 1, unfolding.params_at(unfolding.split(v)[1])
    slope, sizes = columns[n, :n], jnp.zeros(2, v.dtype)
    if touch.arc == len(unfolding.problem.sequence) * unfolding.problem.strides - 1 and not touch.divides:
        # The state of the equation is that at the extremum.
        slope = jax.grad(lambda x: way.guard(t, x, params))(x) * unfolding.state_scale / touch.size
    if not sliding:
        image, after, moved, (_, before) = jumped(t, x, params)
        length = jnp.linalg.norm
        off = jnp.maximum(length(image - x) / unfolding.state_scale, length(after - before) / length(before))
        sizes = jnp.stack([off, length(after - moved) / length(before)])
    return columns, slope, *sizes


def _sides(name: str, rate: float, value: float) -> dict[bool, str]:
    """The parameters on the branch's side of the point, on which the guard is positive, and on the other."""
    return {own: f"{name} {'>' if (rate > 0) == own else '<'} {value:.6g}" for own in (True, False)}


def _doubled(jacobian: np.ndarray, beta: np.ndarray, slope: np.ndarray, sides: dict[bool, str]) -> str:
    r"""The orbit of twice the period with one stride on either side, in words: its first state off the branch is
    $z = -(I - D_2 D)^{-1} \beta\,e\,\delta$ with $D_2 = D - \beta h$, and $H = e\,\delta + h z$ is positive."""
    lap = (jacobian - np.outer(beta, slope)) @ jacobian
    multipliers = np.linalg.eigvals(lap)
    if np.min(np.abs(multipliers - 1)) < UNDECIDED:
        return ""
    own = bool(1 - slope @ np.linalg.solve(np.eye(len(lap)) - lap, beta) > 0)
    return f" for {sides[own]}, {'stable' if inside_circle(multipliers) else 'unstable'}"


def _words(
    exponent: float, jacobian: np.ndarray, beta: np.ndarray, slope: np.ndarray, persists: bool, sides: dict[bool, str],
    which: str = "that slides",
) -> str:  # fmt: skip
    """What happens at the point. `which`: orbit is that at which the guard fires."""
    side = sides[not persists]
    if exponent == 0:
        return f"the return map jumps: the orbit exists for {side}, and none near it beyond"
    if exponent == 1.5:
        return f"the orbit goes on for {side}, since the return map has a derivative"
    spectra = [np.linalg.eigvals(each) for each in (jacobian, jacobian - np.outer(beta, slope))]
    stable = [bool(inside_circle(each)) for each in spectra]
    if exponent == 1.0:
        if np.min(np.abs(spectra[1] - 1)) < UNDECIDED:
            return f"degenerate: an orbit {which} has a multiplier 1, and higher terms of that side decide whether it exists"
        below = sum(int(np.sum((np.abs(each.imag) < 1e-9) & (each.real < -1))) for each in spectra)
        words = f"persistence: {'a stable' if stable[1] else 'an unstable'} orbit {which} for {side}"
        words = words if persists else f"nonsmooth fold: the orbit and one {which} for {side}, neither beyond"
        return (
            f"{words}; also orbits of twice the period{_doubled(jacobian, beta, slope, sides)}" if below % 2 else words
        )
    words = f"persistence: an unstable orbit with impacts for {side}"
    words = (
        words if persists else f"nonsmooth fold: the orbit and an unstable one with impacts for {side}, neither beyond"
    )
    if not stable[0]:
        return words
    # By how much the guard's least value rises in the returns after an impact.
    rises = np.array([slope @ np.linalg.matrix_power(jacobian, k) @ beta for k in range(RETURNS)])
    seen = rises[np.abs(rises) > 1e-9 * np.max(np.abs(rises))]
    if np.any(seen < 0):
        return f"{words}; beyond, no attractor near the orbit"
    # The leading multiplier of those that an impact excites.
    first = seen[-1] / seen[-2] if len(seen) > 1 else 0.0
    kinds = {
        0.25: "a period-adding cascade",
        2 / 3: "a period-adding cascade with bands of chaos between",
        1.0: "chaos",
    }
    return f"{words}; beyond, {next(kind for most, kind in kinds.items() if first <= most)}"
