r"""What becomes of a grid of starts."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._flow.check import check
from .._flow.dataset import load_xarray
from .._flow.integrator import Integrator, PlainForward, with_adjoint
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.results import choose, RESULTS
from .._system.system import Guard, HybridSystem, Mode, Transition
from .._system.types import Params, State
from .batches import Lanes
from .grid import named_leaves
from .progress import progress_bar
from .store import code_attributes

if TYPE_CHECKING:
    import xarray


class Fate(eqx.Module):
    """Some strides of one lane, until it comes near an orbit or meets a fate."""

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    ordinary: int = eqx.field(static=True)  # how many transitions are none of a fate
    fates: int = eqx.field(static=True)
    integrator: Integrator

    def __call__(self, common, lane):
        params, nodes, owner, closeness, most = common
        t0, x0 = lane

        def near(x):
            """The orbit that the state is near to, or -1."""
            if not nodes.shape[0]:
                return jnp.array(-1)
            apart = jnp.max(jnp.abs(x - nodes), axis=1)
            nearest = jnp.argmin(apart)
            return jnp.where(apart[nearest] <= closeness, owner[nearest], -1)

        def one(carry):
            i, t, x, _, fate, _ = carry
            stride = run_stride(self.system, t, x, params, self.sequence, self.integrator)
            for impact in stride.impacts[::-1]:
                of_fate = impact.transition >= self.ordinary
                fate = jnp.where(of_fate, (impact.transition - self.ordinary) % max(self.fates, 1), fate)
            good = stride.result == RESULTS.successful
            orbit = jnp.where(good, near(stride.x), -1)
            return i + 1, t + stride.time, stride.x, orbit, fate, choose(fate >= 0, RESULTS.successful, stride.result)

        def going(carry):
            i, _, _, orbit, fate, result = carry
            return (i < most) & (orbit < 0) & (fate < 0) & (result == RESULTS.successful)

        none = jnp.array(-1)
        start = (jnp.array(0), t0, x0, near(x0), none, RESULTS.successful)
        i, t, x, orbit, fate, result = jax.lax.while_loop(going, one, start)
        return {"strides": i, "t": t, "x": x, "orbit": orbit, "fate": fate, "result": jnp.asarray(result._value)}


def with_fates(system: HybridSystem, sequence: tuple[str, ...], fates: Mapping[str, Guard]) -> HybridSystem:
    """The system with a mode for each fate, which is entered for good when its guard falls."""
    modes, transitions = dict(system.modes), list(system.transitions)
    for source in dict.fromkeys(sequence):
        for name, guard in fates.items():
            target = f"{name} from {source}"
            modes[target] = Mode(_still, system.mode(source).coordinates)
            transitions.append(Transition(source, target, guard, _same))
    return HybridSystem(modes, tuple(transitions))


def _still(t, x, params):
    return jnp.zeros_like(x)


def _itself(params, *coordinates):
    return jnp.stack(coordinates)


def _same(t, x, params):
    return x


def basin(
    system: HybridSystem,
    params: Params,
    *,
    sequence: tuple[str, ...],
    axes: Mapping[str, Any],
    start: Callable[..., State] | None = None,
    orbits: PeriodicOrbit | None = None,
    fates: Mapping[str, Guard] | None = None,
    strides: int = 100,
    closeness: float = 1e-2,
    integrator: Integrator | None = None,
    progress: bool | None = None,
) -> "xarray.Dataset":
    r"""A grid of starts, each classified by what becomes of it.

    **Arguments:** `axes`: from name to values, for each dimension of the grid. `start`: `(params, *values) -> x`, shape `(n,)`,
    the state just after a jump at a point of the grid; by default the axes are the coordinates themselves, all of them. `orbits`:
    one or a batch; a start belongs to one when a state after a stride is within `closeness`, relative to the orbit's size, of a
    point of it. `fates`: from name to guard, `g(t, x, params)`: the motion ends when it falls through zero, such as
    `{"fell forward": lambda t, x, p: x[0] + jnp.pi / 2}`. `strides`: the most. `integrator`: by default Dopri8 at 1e-8.

    **Returns:** an `xarray.Dataset` over the axes: `fate`, a number whose meaning stands in `flag_meanings` (the orbits in their
    order, then the fates, `no step` where a stride fails for another reason, and `undecided` after the most strides);
    `strides`, how many were taken; `last`, the last state (NaN where it fell); `result`, the code of a stride that failed.

    Source: Schwab and Wisse (2001), *Basin of attraction of the simplest walking model*, Proc. DETC, VIB-21363.
    """
    xarray = load_xarray()
    if strides < 1 or not closeness > 0:
        raise ValueError(f"basin: strides={strides} must be at least 1 and closeness={closeness} positive.")
    fates = {} if fates is None else fates
    values = {name: np.asarray(axis, float) for name, axis in axes.items()}
    for name, axis in values.items():
        if axis.ndim != 1 or not axis.size or not np.all(np.isfinite(axis)):
            raise ValueError(f"basin: the values of the axis {name} must be finite numbers in one dimension.")
    if clash := sorted(set(values) & {"fate", "strides", "result", "last", "coordinate"}):
        raise ValueError(f"basin: the axes {clash} bear names of the results. Name them otherwise.")
    coordinates = system.mode(sequence[0]).coordinates
    if start is None and tuple(values) != coordinates:
        raise ValueError(
            f"basin: the axes {tuple(values)} are not the coordinates {coordinates}: give start=, a function "
            "(params, *values) -> x."
        )
    points = np.stack(np.meshgrid(*values.values(), indexing="ij"), axis=-1).reshape(-1, len(values))
    make: Callable[..., State] = start or _itself
    x = np.array(jax.vmap(lambda each: jnp.asarray(make(params, *each)))(jnp.asarray(points)))
    if integrator is None:
        tolerance = 1e-8 if x.dtype == np.float64 else 1e-5
        integrator = Integrator(rtol=tolerance, atol=tolerance)
    check(system, 0.0, jnp.asarray(x[0]), params, sequence, integrator)
    names, nodes, owner = _nodes(orbits, len(coordinates), x.dtype)
    size = np.max(np.abs(nodes), initial=0)

    plain = with_adjoint(integrator, PlainForward())
    ending = with_fates(system, tuple(sequence), fates)
    lane = Fate(ending, tuple(sequence), len(system.transitions), len(fates), plain)
    count = len(x)
    found = {
        "orbit": np.full(count, -1),
        "fate": np.full(count, -1),
        "strides": np.zeros(count, np.int32),
        "result": np.zeros(count, np.int8),
        "x": x,
        "t": np.zeros(count, x.dtype),
    }
    alive, most = np.arange(count), 1
    with progress_bar("starts", count, 0, progress) as advance:
        # In rounds, each twice as long: those who have met their fate make room for the others.
        while alive.size and (left := strides - int(found["strides"][alive[0]])) > 0:
            common = (params, nodes, owner, np.asarray(closeness * size, x.dtype), np.asarray(min(most, left)))
            run = Lanes(lane, common)
            pieces = np.array_split(alive, -(-len(alive) // run.capacity))
            with ThreadPoolExecutor(run.threads) as pool:
                parts = list(pool.map(lambda piece: run((found["t"][piece], found["x"][piece])), pieces))  # noqa: B023
            for piece, part in zip(pieces, parts, strict=True):
                found["strides"][piece] += part["strides"].astype(np.int32)
                for name in ("orbit", "fate", "x", "t"):
                    found[name][piece] = part[name]
                found["result"][piece] = part["result"]
            before = len(alive)
            ended = (found["orbit"] >= 0) | (found["fate"] >= 0) | (found["result"] != 0)
            alive = alive[~ended[alive]]
            advance(before - len(alive))
            most *= 2
    return _labelled(xarray, found, values, names, tuple(fates), coordinates, params, sequence)


def _nodes(orbits: PeriodicOrbit | None, n: int, dtype) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the orbits, their points, and whose point each is."""
    if orbits is None:
        return [], np.zeros((0, n), dtype), np.zeros(0, int)
    nodes = np.asarray(orbits.nodes)
    nodes = nodes.reshape(-1, *nodes.shape[-2:])
    if not np.all(np.isfinite(nodes)):
        raise ValueError("basin: one of the orbits was not found. Leave it out.")
    each = nodes.shape[1]
    return [f"orbit {k}" for k in range(len(nodes))], nodes.reshape(-1, n), np.repeat(np.arange(len(nodes)), each)


def _labelled(xarray, found, values, orbits, fates, coordinates, params, sequence) -> "xarray.Dataset":
    meanings = [*orbits, *fates, "no step", "undecided"]
    fate = np.full(len(found["fate"]), len(meanings) - 1, np.int8)
    fate[found["result"] != 0] = len(meanings) - 2
    fate = np.where(found["fate"] >= 0, len(orbits) + found["fate"], fate)
    fate = np.where(found["orbit"] >= 0, found["orbit"], fate).astype(np.int8)
    dims, shape = tuple(values), tuple(len(axis) for axis in values.values())
    flags = {
        "flag_values": list(range(len(meanings))),
        "flag_meanings": " ".join(meaning.replace(" ", "_") for meaning in meanings),
    }
    data = {
        "fate": (dims, fate.reshape(shape), flags),
        "strides": (dims, found["strides"].reshape(shape)),
        "result": (dims, found["result"].reshape(shape), code_attributes()),
        "last": ((*dims, "coordinate"), found["x"].reshape(*shape, -1)),
    }
    coords = {**{name: ((name,), axis) for name, axis in values.items()}, "coordinate": list(coordinates)}
    return xarray.Dataset(data, coords, {"parameters": str(named_leaves(params)), "sequence": " -> ".join(sequence)})
