"""Result codes: those of diffrax, and those of hybrid systems and periodic orbits.

They print as their names and compare with strings; an item of `equinox.Enumeration` does neither.
"""

import difflib
from typing import Any, TypeVar

import diffrax as dfx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .types import Flag

# Equinox does not export the class of its items.
_Item: Any = type(dfx.RESULTS.successful)
Enumeration = TypeVar("Enumeration")


class Code(_Item):
    """A result code, or a batch of them: a PyTree of one array of integers.

    `code == RESULTS.zeno` and `code == "zeno"` are arrays of booleans, one for each lane, also under `jit`; `ValueError` for a
    string that is no code. A code prints as its name, a batch as the number of lanes with each code, such as `62 successful, 2
    zeno`. `RESULTS[code]` is the message.
    """

    # Not a scalar in a batch.
    _value: Any

    def __init__(self, value: Any, enumeration: Any):
        self._value = value
        self._enumeration = enumeration

    def _code(self, other: Any) -> Any:
        if not isinstance(other, str):
            return other
        codes = self._enumeration._name_to_item
        if other not in codes:
            near = difflib.get_close_matches(other, codes, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" The codes are: {', '.join(codes)}."
            raise ValueError(f"No result code has the name {other!r}.{hint}")
        return codes[other]

    def __eq__(self, other: Any) -> Bool[Array, "..."]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__eq__(self._code(other))

    def __ne__(self, other: Any) -> Bool[Array, "..."]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().__ne__(self._code(other))

    def __repr__(self) -> str:
        if isinstance(self._value, jax.core.Tracer) or not isinstance(self._value, (jax.Array, np.ndarray, np.generic)):
            # Traced, or a PyTree of the same structure with other leaves.
            return f"{self._enumeration.__name__}<{self._value}>"
        names = {int(item._value): name for name, item in self._enumeration._name_to_item.items()}
        if np.ndim(self._value) == 0:
            return names[int(self._value)]
        numbers, counts = np.unique(np.asarray(self._value), return_counts=True)
        return ", ".join(f"{n} {names[int(number)]}" for number, n in zip(numbers, counts, strict=True)) or "no codes"


def named(enumeration: Enumeration) -> Enumeration:
    """The enumeration with items that are `Code`s. All must be: a PyTree's structure contains the class of its parts."""
    cls: Any = enumeration
    codes, above = cls._name_to_item, super(cls, cls)
    codes.update({name: Code(item._value, cls) for name, item in codes.items()})
    cls.where = lambda pred, a, b: Code(above.where(pred, a, b)._value, cls)
    cls.promote = lambda item: Code(above.promote(item)._value, cls)
    return enumeration


@named
class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Result code of a computation, one per batch lane: `successful`, or the reason for the failure.

    A lane that fails is filled with NaN and carries its code; the other lanes are unchanged. The codes of diffrax and optimistix
    keep their meaning; the codes below are added. `RESULTS[code]` is the message of a code. A code compares with another code or
    with a name, `orbit.result == "zeno"`, and prints as its name; a batch of codes prints how many lanes have each.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=5.0, max_jumps=300, throw=False)
    >>> print(run.result)
    zeno
    >>> bool(run.result == "zeno")
    True
    """

    no_crossing = (
        "No guard fell through zero within `max_time`. The guess may lie outside the gait's neighbourhood, or the "
        "sign of a guard may be wrong: a guard fires when it falls from positive to zero. Otherwise raise "
        "`Integrator(max_time=...)`."
    )
    grazing = (
        "The flow meets the guard's surface with a rate of zero: it touches the surface, or crosses it as a cubic crosses at its "
        "triple root. The transversality condition `D_t g + D_x g f < 0` fails, and neither event time nor saltation matrix is "
        "differentiable there."
    )
    unexpected_transition = (
        "Another guard of the mode fired before the transition that `sequence` names. Use `simulate` to discover the "
        "sequence, or correct `sequence`."
    )
    simultaneous_guards = (
        "Two guards fell together, so the order of their transitions is not determined, and the state after both or its "
        "derivative depends on it."
    )
    max_jumps_reached = (
        "The largest number of jumps was reached before the end time: the orbit is Zeno, or `max_jumps` is too small."
    )
    zeno = (
        "Events accumulate: the guard would rise by no more than rounding before it falls again, so the next event "
        "cannot be distinguished from the last; or transitions that act at once follow each other in a circle. After the "
        "accumulation point the system is in another mode, such as rest."
    )
    sliding = (
        "The flows on both sides of a surface lead back to it: a transition and the one that undoes it would follow each other "
        "without end. The motion along the surface (Filippov's sliding, sticking friction) needs a mode of its own: "
        "`hj.filippov` makes it."
    )
    not_unique = (
        "What follows has more than one solution: the flows of both sides lead away from a surface (Filippov), so that the state "
        "may leave it to either side, at any time; or the laws of contact allow different velocities after an impact. Start on "
        "the side that is meant, off the surface; or give less friction."
    )
    time_reversed = "The end time lies before the start time: time runs forward."
    orbit_not_converged = (
        "Newton's method found no periodic orbit from this guess. Try another guess, `MultipleShooting`, or "
        "`find_orbits`."
    )
    max_points_reached = (
        "The branch has `max_points` points and did not reach the end of its interval. Raise `max_points` of the method, such as "
        "`PseudoArclength(max_points=1000)`, or its `max_step`."
    )
    out_of_phase = (
        "The state returns, but not the forcing: the system depends on time, and a period later it is not the same. Close "
        "the orbit by a guard that falls once in a period of the forcing, or after more strides."
    )
    not_isolated = (
        "The orbit is one of a continuous family: the return map has the multiplier 1 on the section, so Newton's "
        "equation is singular. Fix the conserved quantity, follow the family, or move the parameter off the fold."
    )
    far_from_guess = (
        "Newton's method led to a periodic orbit that is further from the guess than `near` allows. Give a nearer guess, for "
        "example an orbit at a neighbouring parameter, or raise `near`."
    )
    outside_domain = (
        "The state is outside the domain of its mode, where the mode's equations do not hold: it started there, or the flow "
        "left the domain without a transition. Correct the initial state, or give the system a transition that fires there."
    )
    not_stabilized = (
        "No feedback by these parameters puts all multipliers inside the unit circle: the parameters do not act on an unstable "
        "direction. Choose other parameters, or more of them; around an orbit whose phase they do not reach, transverse=True "
        "leaves the phase free."
    )
    infeasible = (
        "The minimization ended where the constraints are violated and no small change of the unknowns lessens the violation. "
        "The constraints may contradict each other. Start elsewhere, or relax a constraint."
    )
    optimum_not_found = (
        "The optimality conditions do not hold where the minimization ended, or its start was better. Start elsewhere, or raise "
        "`max_iterations`; the `history` of an optimization tells of a gait that is lost on the way."
    )
    undetermined = (
        "The data do not determine all parameters: a combination of them changes no residual, see `loose`. Fit fewer parameters, "
        "give a prior, or measure something else."
    )
    unmatched_events = (
        "The events of the model do not follow those of the data: in the best fit a recorded event is off by more than a quarter "
        "of the interval beside it. Start nearer, look for false rows, fit other parameters, or give `noise`, if it is so large."
    )
    stalled = (
        "The minimization ended where its model promises a lower cost and no step of the line search has one. The cost may have "
        "a kink there, such as where an event meets a time at which the controls change. Start elsewhere, take other times, or "
        "raise the accuracy of the integrator."
    )
    no_simple_multiplier = (
        "The monodromy matrix has no simple multiplier of this kind: 1 along the flow for a phase response, one other than zero "
        "for an isostable response. Neighbouring orbits may be periodic too, two multipliers may be equal, or the accuracy may "
        "not suffice: lower the integrator's tolerance, choose another multiplier, or another parameter."
    )
    stop_not_reached = (
        "The branch does not lead to `stop`: it left the interval on the other side of its start, perhaps after a fold, or it is "
        "closed and returned to its start. For all of it, give bounds `stop=(low, high)`."
    )
    gains_energy = (
        "The laws of contact would add kinetic energy at this impact, as Newton's law of restitution may where friction is "
        "coupled to the gap (Kane, 1984). Give less restitution, a plastic impact, or in place of Newton's law Poisson's, "
        "`Contact(poisson=True)`."
    )
    no_gait = (
        "The zero dynamics have no gait: on the surface of the virtual constraints the phase would stop on its way from impact "
        "to impact, or the impact reverses it. Choose other constraints, or parameters at which the bodies walk."
    )
    no_equilibrium = (
        "Newton's method found no zero of the mode's vector field from this guess. Give a guess nearer to an equilibrium, "
        "such as the end of a long run."
    )


class SolveError(RuntimeError):
    """A computation that failed: the message has the code of each lane, what was reached, and the remedy.

    Raised by every function with an argument `throw`, also under `vmap` alone; with `throw=False` the same call returns, with the
    code in `result`. Under `jit`, and under `grad` of it, it is equinox's runtime error with the message of the code.

    Raised also, whatever `throw`, where the store or the executor of a sweep fails; the message names the path or the chunk, and
    the remedy. The path exists without `resume`, a file cannot be written or is damaged, another process computes the store, or
    an existing store has another provenance, such as other parameters, grid, start or integrator; a worker fails, is lost for
    good, or computes on another kind of device than the others. Finished chunks that are in a store are kept.

    **Attributes:** `codes`: the names of the codes of `RESULTS`, of all lanes that failed, each once; none for a store or an
    executor. `result`: what the call returns with `throw=False`, such as the part of a branch that was found; `None` under
    `vmap`, and for a store or an executor.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> try:
    ...     hj.periodic_orbit(wheel.step, jnp.array([-0.5, 0.1]), params)
    ... except hj.SolveError as error:
    ...     print(*error.codes, int(error.result.iterations))
    ...
    no_crossing 2
    """

    def __init__(self, message: str, codes: Any = (), result: Any = None):
        super().__init__(message)
        numbers = np.unique(np.asarray(codes))
        self.codes = tuple(str(code_of(int(number))) for number in numbers if number != RESULTS.successful._value)
        self.result = result


# Integers of the size of a number whose NaN has room for a code. Of others, as of float16, a failure is `nonfinite`.
_WORDS = {4: jnp.uint32, 8: jnp.uint64}


def nan_unless(good: Bool[Array, "*axes"], value: Array, why: RESULTS | None = None) -> Array:
    """`value` where `good`, NaN elsewhere. **Arguments:** `why`: the code that `code_of_state` finds in this NaN.

    The derivative of this NaN is zero. So a sum over a batch in which failed lanes are masked has the gradient of the other
    lanes; a NaN derivative would reach the parameters that all lanes share.
    """
    if why is None or value.dtype.itemsize not in _WORDS:
        return jnp.where(good, value, jnp.nan)
    # A NaN has room for a number, as that of R for a missing value: the low bits of a quiet one, which moving it does not change.
    bits, _ = _bits(jnp.full((), jnp.nan, value.dtype))
    return jnp.where(good, value, jax.lax.bitcast_convert_type(bits | why._value.astype(bits.dtype), value.dtype))


def code_of_state(x: Array) -> RESULTS:
    """The code of a state that a reset returned: `successful` where it is finite, the code in its NaN, or else `nonfinite`."""
    if x.dtype.itemsize not in _WORDS:
        return choose(jnp.all(jnp.isfinite(x)), RESULTS.successful, RESULTS.nonfinite)
    bits, is_nan = _bits(x)
    number = jnp.max(jnp.where(is_nan, bits & 0xFFFF, 0), initial=0).astype(jnp.int32)
    known = (number > 0) & (number < len(RESULTS._name_to_item))
    code = jnp.where(known, number, RESULTS.nonfinite._value)
    return choose(jnp.all(jnp.isfinite(x)), RESULTS.successful, numbered_code(code))


def _bits(x: Array) -> tuple[Array, Array]:
    x = jax.lax.stop_gradient(x)
    return jax.lax.bitcast_convert_type(x, _WORDS[x.dtype.itemsize]), jnp.isnan(x)


def choose(pred: Flag, code: Any, otherwise: Any) -> RESULTS:
    """`code` where `pred`, `otherwise` elsewhere; typed as `RESULTS`, because type checkers give each code its own type."""
    return RESULTS.where(pred, code, otherwise)


def numbered_code(value: Array) -> RESULTS:
    """The codes with these numbers, which may be traced."""
    return Code(value, RESULTS)  # pyright: ignore[reportReturnType]


def code_of(value: int) -> Any:
    """The code with the number `value`."""
    return next(item for item in RESULTS._name_to_item.values() if int(item._value) == value)


def described_code(result: RESULTS) -> str:
    """The name of a code, and its message; one value, not traced."""
    name, message = str(result), RESULTS[result]
    return f"{name}: {message}" if message else name


def code_names(result: RESULTS) -> list[str]:
    """The names of the codes of a batch, in one list."""
    return [str(code_of(int(number))) for number in np.ravel(np.asarray(result._value))]


def code_flags(**others: int) -> dict[str, Any]:
    """Attributes of a variable of result codes, after the climate and forecast (CF) metadata conventions.

    **Arguments:** `others`: further numbers, by name.
    """
    flags = others | {name: int(item._value) for name, item in RESULTS._name_to_item.items()}
    return {"long_name": "result code", "flag_values": [*flags.values()], "flag_meanings": " ".join(flags)}


def counted_codes(result: RESULTS) -> list[tuple[str, int]]:
    """Each code of a batch, described, and how many lanes have it."""
    numbers, counts = np.unique(np.asarray(result._value), return_counts=True)
    return [(described_code(code_of(int(number))), int(count)) for number, count in zip(numbers, counts, strict=True)]
