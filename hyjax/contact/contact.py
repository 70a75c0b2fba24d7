"""A contact: a gap that cannot be negative, with restitution and friction where the gap is closed."""

import functools as ft
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.programs import evaluate_alike
from .._system.types import as_array, Params, require_function, Scalar, Time
from .mechanism import Positions, Velocities

# A tangential velocity, or two of a contact in space that never slips.
Slip = Callable[[Time, Positions, Velocities, Params], Scalar]
# A number, or a function that returns a leaf of the parameters.
Coefficient = float | np.number | Array | Callable[[Params], Scalar]
RANGES = {
    "restitution": (0.0, 1.0), "static": (0.0, math.inf), "kinetic": (0.0, math.inf), "settle": (0.0, math.inf),
    "tangential": (0.0, 1.0),
}  # fmt: skip


def _number(value: Any) -> Any:
    """A number of NumPy as one of Python; all else as it is."""
    return value.item() if isinstance(value, np.number | np.ndarray) and value.shape == () else value


class Contact(eqx.Module):
    r"""A unilateral constraint $g(t, q) \ge 0$ with restitution and dry friction.

    Where the gap is closed a normal force acts, $f_n \ge 0$, and friction: $|f_t| \le \mu_s f_n$ where the slip $s$ vanishes,
    $f_t = -\mu_k f_n\,\mathrm{sign}(s)$ where it does not.

    **Arguments:**

    - `gap`: `g(t, q, params)`, shape `()`, in units of length (or angle): positive where the bodies are apart. The gap may
      depend on time, as for a paddle or a shaken table.
    - `slip`: `s(t, q, v, params)`, shape `()`: the tangential velocity of the contact point relative to the surface,
      affine in `v`. Without `slip` the contact is frictionless. In space a contact that never slips has two, `(forward,
      sideways)`, along independent tangents; one that may slip moves in a plane.
    - `restitution`: $e$: the gap's rate after an impact is $-e$ times the rate before it (Newton's law). `poisson`: of contacts
      by name, the normal impulse of restitution is at least $e$ times that of compression instead (more where that holds a gap
      closed), at all contacts that are closed, so that an impact passes through bodies that touch. `tangential`: $e_t$: where
      friction allows it, the slip after an impact that bounces is $-e_t$ times the slip before it.
    - `static`, `kinetic`: the coefficients of friction $\mu_s \ge \mu_k \ge 0$; both are required where `slip` is given.
      `static=math.inf` makes the contact rough: it never slips, and needs no `kinetic`.
    - `settle`: the closing rate, in units of `gap` per time, below which an impact is plastic. It ends the infinitely
      many bounces of a ball that comes to rest (Zeno). With the default 0 the bounces end only when they are lower than the
      rounding of the gap.

    A coefficient is a number, or a function `params -> ()` that returns a leaf of the parameters, such as
    `lambda p: p.friction`; only such a leaf can be swept or differentiated. Where it makes `static` less than `kinetic`, or
    friction negative, a slip is `nonfinite`; so is an impact where $e$ or $e_t$ is not between 0 and 1.

    **Example:**

    >>> import math
    >>> rough = hj.contact.Contact(
    ...     gap=lambda t, q, p: q[1], slip=lambda t, q, v, p: v[0], restitution=0.5, static=math.inf
    ... )
    >>> rough.rough, rough.slips
    (True, False)

    Source: Kong, Payne, Zhu, Johnson (2024), Sec. V-A, eqs. 59-67; Pfeiffer, Glocker (1996), *Multibody Dynamics with Unilateral
    Contacts*, ch. 8, for Poisson's law.
    """

    gap: Callable[[Time, Positions, Params], Scalar]
    slip: Slip | tuple[Slip, Slip] | None = None
    restitution: Coefficient = eqx.field(default=0.0, converter=_number)
    static: Coefficient | None = eqx.field(default=None, converter=_number)
    kinetic: Coefficient | None = eqx.field(default=None, converter=_number)
    settle: Coefficient = eqx.field(default=0.0, converter=_number)
    tangential: Coefficient = eqx.field(default=0.0, converter=_number)
    poisson: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        require_function(self.gap, "t, q, params", "Contact: gap")
        if not all(map(callable, tangents(self))) or (
            isinstance(self.slip, tuple) and not (self.rough and len(self.slip) == 2)
        ):
            raise ValueError(
                f"Contact: slip must be a function s(t, q, v, params), not {self.slip!r}. Two are for a contact that never "
                "slips, static=math.inf; otherwise restrict the motion to a plane, or leave slip out for a frictionless contact."
            )
        for each in tangents(self):
            require_function(each, "t, q, v, params", "Contact: slip")
        if not isinstance(self.poisson, bool):
            raise ValueError(
                f"Contact: poisson={self.poisson!r} must be True, for Poisson's law, or False, for Newton's."
            )
        self._check_friction()
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) or (isinstance(value, Array) and value.shape == ())
            if not (number or callable(value) or value is None):
                raise ValueError(
                    f"Contact: {name} must be a number or a function of params, such as lambda p: p.{name}; got {value!r}."
                )
            if callable(value):
                require_function(value, "params", f"Contact: {name}")
            if number and not isinstance(value, jax.core.Tracer) and not low <= np.asarray(value) <= high:
                raise ValueError(f"Contact: {name}={value!r} must lie between {low} and {high}.")

    def _check_friction(self):
        if self.slip is None and not (isinstance(self.tangential, int | float) and self.tangential == 0):
            raise ValueError(f"Contact: tangential={self.tangential!r} needs a slip to be reversed: give slip.")
        given = {name: getattr(self, name) for name in ("static", "kinetic") if getattr(self, name) is not None}
        if self.slip is None and given:
            raise ValueError(
                f"Contact: friction {given!r} needs a direction: give slip, the tangential velocity s(t, q, v, params) of "
                "the contact point relative to the surface."
            )
        if self.slip is not None and not self.rough and len(given) < 2:
            raise ValueError(
                f"Contact: slip is given, and of the coefficients only {given!r}. Give both, static and kinetic (they may "
                "be equal); or static=math.inf for a contact that never slips; or leave slip out for a frictionless one."
            )
        is_known = lambda value: eqx.is_array_like(value) and not isinstance(value, jax.core.Tracer)
        static, kinetic = self.static, self.kinetic
        if is_known(static) and is_known(kinetic) and np.any(np.asarray(static) < np.asarray(kinetic)):
            raise ValueError(
                f"Contact: static={static!r} is less than kinetic={kinetic!r}: a body that begins to slip would be "
                "stopped at once. Give static >= kinetic."
            )

    @property
    def rough(self) -> bool:
        """Whether the contact never slips."""
        return isinstance(self.static, int | float) and math.isinf(self.static)

    @property
    def slips(self) -> bool:
        """Whether the contact may slip, against friction."""
        return self.slip is not None and not self.rough


def coefficient(contact: Contact, name: str, params: Params, like: Float[Array, "..."]) -> Scalar:
    """A coefficient of a contact, see `coefficients`."""
    return coefficients((contact,), name, params, like)[0]


def coefficients(
    contacts: tuple[Contact, ...], name: str, params: Params, like: Float[Array, "..."]
) -> Float[Array, " contacts"]:
    """A coefficient of contacts, with the dtype of `like`: 0 where it is not given; NaN where a function, or an array, is outside
    its range, and where kinetic friction is above static friction, so that it would reverse a slip."""
    values = [getattr(contact, name) for contact in contacts]
    varies = lambda value: callable(value) or isinstance(value, Array)
    given = [value(params) if callable(value) else 0.0 if value is None else value for value in values]
    if not any(map(varies, values)):
        numbers = jnp.asarray(np.array(given, float), like.dtype)
    else:
        numbers = jnp.stack([as_array(each, (), like.dtype, f"Contact: {name}") for each in given])
    # Numbers are checked when a contact is made; a negative `settle` is as zero.
    rubs = name == "kinetic" and any(varies(contact.static) for contact in contacts)
    if name == "settle" or not (rubs or any(map(varies, values))):
        return numbers
    low, high = RANGES[name]
    most = coefficients(contacts, "static", params, like) if name == "kinetic" else high
    # Of two formulas for one number one may be larger by rounding.
    rounding = 8 * float(jnp.finfo(like.dtype).eps)
    right = (numbers >= low - rounding) & (numbers <= most * (1 + rounding))
    # A factor, so that derivatives are NaN, too.
    return jnp.where(numbers < low, low, numbers) * jnp.where(right, 1, jnp.nan)


def gap(contact: Contact, t: Time, q: Positions, params: Params) -> Scalar:
    """The gap; `ValueError` unless it is a scalar."""
    return as_array(contact.gap(t, q, params), (), q.dtype, "Contact: gap", " Write a Contact for each gap.")


def tangents(contact: Contact) -> tuple[Slip, ...]:
    """The slips of a contact, in the order of their rows."""
    return contact.slip if isinstance(contact.slip, tuple) else () if contact.slip is None else (contact.slip,)


def slip(function: Slip, t: Time, q: Positions, v: Velocities, params: Params) -> Scalar:
    """A tangential velocity; `ValueError` unless it is a scalar."""
    remedy = " For two tangents of a contact that never slips give two functions, slip=(forward, sideways)."
    return as_array(function(t, q, v, params), (), q.dtype, "Contact: slip", remedy)


def velocity_rows(
    contacts: tuple[Contact, ...], t: Time, q: Positions, v: Velocities, params: Params
) -> Float[Array, " rows"]:
    """The velocities of the contact points: the rates of all gaps, then the slips of the contacts with a slip."""
    slips = [ft.partial(slip, each) for contact in contacts for each in tangents(contact)]
    rates = gap_rates(contacts, t, q, v, params)
    return jnp.concatenate([rates, evaluate_alike(slips, t, q, v, params)]) if slips else rates


def gaps(contacts: tuple[Contact, ...], t: Time, q: Positions, params: Params) -> Float[Array, " contacts"]:
    """The gaps of several contacts."""
    if not contacts:
        return jnp.zeros(0, q.dtype)
    return evaluate_alike([ft.partial(gap, contact) for contact in contacts], t, q, params)


def gap_rates(
    contacts: tuple[Contact, ...], t: Time, q: Positions, v: Velocities, params: Params
) -> Float[Array, " contacts"]:
    r"""$\dot g = D_tg + D_qg\,v$ of several contacts."""
    return jax.jvp(lambda t, q: gaps(contacts, t, q, params), (t, q), (jnp.ones_like(t), v))[1]
