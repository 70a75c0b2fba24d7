r"""Orbits on a level of a conserved quantity: the jump that closes an orbit leads back to the level.

A system that conserves $E(t, x, p)$ has a family of orbits for the same parameters: of the Jacobian $D$ of its return map $P$,
$\nabla E\,D = \nabla E$, so that 1 is a multiplier, and Newton's equation is singular. Here the map is followed by a step along
the gradient to the level $c$:

$$P_c(x) = P(x) + b\,\big(c - E(P(x))\big), \qquad b = \nabla E / |\nabla E|^2, \qquad D_c = (I - b\,\nabla E)\,D$$

The fixed points are those of $P$ with $E = c$, because a step of any length would change $E$. The multipliers are those of $P$,
but that the family's own 1 is 0 (Wielandt's deflation). And $c$ is a parameter as others are: of branches, sweeps, gradients.

Where $E$ is not known, an orbit of the family with its Jacobian gives directions: see `Family`.

Source: Muñoz-Almaraz, Freire, Galán, Doedel, Vanderbauwhede (2003), *Continuation of periodic orbits in conservative and
Hamiltonian systems*, Physica D 181, 1-38, for families, with one more unknown in place of the step; Saad (2011), *Numerical
Methods for Large Eigenvalue Problems*, Sec. 4.2, for the deflation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._flow.joint import own_params
from .._system.every import Clock
from .._system.section import Section, SectionLike
from .._system.system import HybridSystem, Reset, reset_of_member
from .._system.types import Params, Scalar, State, Time

# A conserved quantity, `(t, x, params) -> number`.
Quantity = Callable[[Time, State, Params], Scalar]


class Level(eqx.Module):
    """Parameters of orbits on a level of a conserved quantity, $(p, c)$.

    **Attributes:** `params`: $p$, those of the system, whose attributes and items are the level's too. `conserved`: $c$, the
    quantity's value, in its own unit; a number as other parameters are.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> energy = lambda t, x, p: p.gravity * x[0] + x[1] ** 2 / 2
    >>> lossless = ball.Params(restitution=1.0)
    >>> orbit = hj.periodic_orbit(ball.step, jnp.array([0.0, 2.0]), lossless, conserved=energy)
    >>> print(orbit.params.conserved, orbit.params.gravity, f"{orbit.period * orbit.params.gravity:.10f}")
    2.0 9.81 4.0000000000

    Source: Muñoz-Almaraz, Freire, Galán, Doedel, Vanderbauwhede (2003), Physica D 181, 1-38.
    """

    params: Params
    conserved: Scalar

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__dataclass_fields__:
            raise AttributeError(name)
        return getattr(self.params, name)

    def __getitem__(self, key: Any) -> Any:
        return self.params[key]


class Family(eqx.Module):
    r"""Parameters of the orbits of a family whose conserved quantity is not known. Of the pre-impact state $y$ before a lap $S$,

    $$S(y) + b\,\big(c - l\,(y - y_0)\big) = y.$$

    At an orbit of the family, with $D t = t$ and $w D = w$, a solution near it has $c = l\,(y - y_0)$ if $w b \ne 0$, because the
    lap conserves a quantity with the gradient $w$; and the equation is regular if $l t \ne 0$ too. So $c$ is a coordinate of the
    family.

    **Attributes:** `params`: those of the system, whose attributes and items are the family's too. `distance`: $c$. `start`:
    $y_0$. `along`: $l = t_R R'$, of the unit tangent $t_R$ of the states just after the jump $R$ that closes the orbit. `push`:
    $b$.

    Source: Muñoz-Almaraz, Freire, Galán, Doedel, Vanderbauwhede (2003), Physica D 181, 1-38.
    """

    params: Params
    distance: Scalar
    start: State
    along: State
    push: State

    __getattr__, __getitem__ = Level.__getattr__, Level.__getitem__

    def forced(self, y: State) -> State:
        """What the equation adds to the end of a lap from `y`; zero at its solutions."""
        return self.push * (self.distance - self.along @ (y - self.start))


def of_others(params: Params) -> str:
    """What a report says beside `stable` of an orbit of a family: which multipliers it is about."""
    return ", by the multipliers beside the family's own" if isinstance(params, Level | Family) else ""


def of_own_params(system: HybridSystem) -> HybridSystem:
    """The system whose parameters are a `Level` or a `Family`, of which its functions take their own."""
    modes = {name: _with_own(mode, "vector_field", "domain") for name, mode in system.modes.items()}
    ways = tuple(_with_own(way, "guard", "reset", "armed") for way in system.transitions)
    return HybridSystem(modes, ways, system.time_unit)


def on_level(
    system: HybridSystem, sequence: tuple[str, ...] | None, section: SectionLike | None, quantity: Quantity
) -> tuple[HybridSystem, SectionLike | None]:
    """The system and the section of a map whose last jump, or crossing of the section, leads back to the level; their parameters
    are a `Level`."""
    flows = lambda name: system.mode(name).dimension - len(system.mode(name).held)
    system = of_own_params(system)
    ways = [*system.transitions]
    if sequence is not None:
        closing, _ = system.passes(sequence)[-1]
        reset = eqx.Partial(_back_to, ways[closing].reset, quantity, None, flows(ways[closing].target))
        ways[closing] = dataclasses.replace(ways[closing], reset=reset)
    elif isinstance(section, Section):
        surface = eqx.Partial(_of_own, section.surface)
        reset = eqx.Partial(_back_to, eqx.Partial(_of_own, section.reset), quantity, surface, flows(section.mode))
        section = dataclasses.replace(section, surface=surface, reset=reset)
    return HybridSystem(system.modes, tuple(ways), system.time_unit), section


def _with_own(part: Any, *names: str) -> Any:
    """A part of a system whose functions take a `Level` or a `Family` in place of the parameters."""

    def of(fn):
        return fn.of(own_params) if isinstance(fn, Clock) else fn and eqx.Partial(_of_own, fn)

    return dataclasses.replace(part, **{name: of(getattr(part, name)) for name in names})


def _of_own(fn: Callable, t: Time, x: State, level: Level | Family, *member):
    return fn(t, x, level.params, *member)


def _back_to(reset: Reset, quantity: Quantity, surface, flows: int, t: Time, x: State, level: Level, *member) -> State:
    """The state after a jump, moved to the level: along the gradient, within the surface and without the held coordinates."""
    after = reset(t, x, level, *member)
    flowing = lambda vector: jnp.where(jnp.arange(after.size) < flows, vector, 0)
    value, up = jax.value_and_grad(lambda x: quantity(t, x, level.params))(after)
    up = flowing(up)
    if surface is not None:
        normal = flowing(jax.grad(lambda x: surface(t, x, level))(after))
        square = normal @ normal
        up = up - normal * (normal @ up) / jnp.where(square > 0, square, 1)
    square = up @ up
    return after + up * (level.conserved - value) / jnp.where(square > 0, square, 1)


def quantity_of(reset: Reset) -> tuple[Quantity, Quantity] | None:
    """Of a jump that leads back to a level: the conserved quantity of a state, and that of the state after the jump before it is
    moved to the level, functions of time, state and `Level`. `None` for another jump."""
    reset, member = reset_of_member(reset)
    if not (isinstance(reset, eqx.Partial) and reset.func is _back_to):
        return None
    plain, quantity, *_ = reset.args
    here = lambda t, x, level: quantity(t, x, level.params)
    return here, lambda t, x, level: here(t, plain(t, x, level, *member), level)
