"""How long does an optimum take by hyjax's gradients, and by a method of SciPy without derivatives on the same orbits?

Run `python benchmarks/derivative_free.py`, with names of cases for some of them. Both minimize the same function of the same
orbits, under the same constraints and bounds, from the same start. The method without derivatives is COBYQA, in scaled unknowns;
its orbits, without derivatives, start from the last one found. It meets equations to 1e-4 only, so at each of its points
`scipy.optimize.root` solves them for as many unknowns, the first ones. "with compilation": of all that the method compiles.

The powered compass gait has two optima with the same stiffness, hip mass and centre of mass, at their bounds: of the stable
gait that is its own time reversal, as the first one is, and of an unstable gait close to it, which costs 0.4 % less. From one
start hyjax ends at the former, COBYQA from the same start at the latter. Of 16 starts of hyjax two lead to the latter too.

A run on a quiet machine is kept in `outputs/derivative_free.json`.
"""

import argparse
import time
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import hyjax as hj
from hyjax._optimize.optimized_orbit import OptimizedOrbit
from hyjax.models import bhounsule_walker, powered_compass_gait, powered_walker

jax.config.update("jax_enable_x64", True)


class Case(NamedTuple):
    """An optimization. **Attributes:** `start`: parameters. `names`: those that vary, with `bounds`. `limits`: pairs of a
    function and the value that it must have. `starts`: of hyjax."""

    model: ModuleType
    start: eqx.Module
    objective: Callable
    names: tuple[str, ...]
    bounds: list[tuple[float, float]]
    limits: list[tuple[Callable, float]]
    starts: int = 1


def compass_cost(orbit, params):
    return params.push_off**2 / hj.objectives.step_length(powered_compass_gait.travel)(orbit, params)


def step(orbit, params):
    """The length of a step of Bhounsule's walker, whose legs are 1 long."""
    return 2 * jnp.sin(orbit.x[0])


def bhounsule(speed: float) -> Case:
    # From a constant torque and another push-off than the optimum's.
    start = bhounsule_walker.Params(0.3, 1.0, 1.0, 1.0, 1.0, 1.0, step_time=0.5 / speed)
    names = "push_off", *(f"torque_{k}" for k in range(5))
    limits = [(step, 0.5), (hj.objectives.period, 0.5 / speed)]
    return Case(bhounsule_walker, start, bhounsule_walker.effort, names, [(0.0, 1.0), *[(-1.0, 3.0)] * 5], limits)


CASES = {
    "powered_walker, speed 0.4": Case(
        powered_walker, powered_walker.Params(), powered_walker.cost_of_transport, ("push_off", "stiffness"),
        [(0.01, 0.5), (0.0, 6.0)], [(hj.objectives.speed(powered_walker.travel), 0.4)],
    ),
    "powered_compass_gait, speed 0.25": Case(
        powered_compass_gait, powered_compass_gait.Params(), compass_cost, ("push_off", "stiffness", "hip_mass", "com"),
        [(0.02, 0.4), (0.0, 1.0), (0.5, 4.0), (0.3, 0.7)], [(hj.objectives.speed(powered_compass_gait.travel), 0.25)], 16,
    ),
    "bhounsule_walker, speed 1": bhounsule(1.0),
    "bhounsule_walker, speed 0.8": bhounsule(0.8),
}  # fmt: skip


def with_derivatives(case: Case, gait: hj.PeriodicOrbit) -> OptimizedOrbit:
    return hj.optimize(
        gait,
        case.objective,
        where=lambda p: tuple(getattr(p, name) for name in case.names),
        constraints=[hj.Constraint(function, equals=value) for function, value in case.limits],
        bounds=case.bounds,
        starts=case.starts,
        throw=False,
    )


class Evaluated:
    """The objective without derivatives, of the scaled unknowns that the constraints leave; infinite where none is found."""

    def __init__(self, case: Case, gait: hj.PeriodicOrbit):
        low, high = np.transpose(case.bounds)
        self.low, self.width, self.orbits = low, high - low, 0
        lens = lambda p: tuple(getattr(p, name) for name in case.names)
        self.first = len(case.limits)
        start = (np.array([float(each) for each in lens(gait.params)]) - low) / self.width
        self.solved, self.start, self.x = start[: self.first], start[self.first :], gait.x

        @jax.jit
        def of(values, x):
            params = eqx.tree_at(lens, gait.params, tuple(values))
            orbit = hj.periodic_orbit(case.model.step, x, params, near=0.3, throw=False)
            rows = [
                case.objective(orbit, params),
                *(function(orbit, params) - value for function, value in case.limits),
            ]
            return jnp.stack(rows), orbit.x, orbit.result == hj.RESULTS.successful

        self.of = of

    def at(self, u: np.ndarray) -> np.ndarray:
        """The objective and the constraints at all unknowns."""
        values, x, found = self.of(jnp.asarray(self.low + self.width * u), self.x)
        self.orbits += 1
        self.x = x if found else self.x
        return np.asarray(values) if found else np.full(len(values), 1e3)

    def __call__(self, free: np.ndarray) -> float:
        rest = lambda solved: self.at(np.concatenate([solved, free]))[1:]
        root = scipy.optimize.root(rest, self.solved, options={"xtol": 1e-12, "eps": 1e-7})
        value = self.at(np.concatenate([root.x, free]))
        if not np.max(np.abs(value[1:])) < 1e-8 or np.any(root.x < 0) or np.any(root.x > 1):
            return np.inf
        self.solved = root.x
        return float(value[0])


def without_derivatives(case: Case, evaluated: Evaluated) -> scipy.optimize.OptimizeResult:
    count = len(evaluated.start)
    return scipy.optimize.minimize(
        evaluated, evaluated.start, method="COBYQA", bounds=scipy.optimize.Bounds(np.zeros(count), np.ones(count)),
        options={"initial_tr_radius": 0.05, "final_tr_radius": 1e-6, "maxfev": 1000},
    )  # fmt: skip


def timed(fn):
    begin = time.perf_counter()
    result = fn()
    return result, time.perf_counter() - begin


def compare(name: str, case: Case) -> None:
    gait = hj.periodic_orbit(case.model.step, case.model.guess(case.start), case.start)
    ours, first = timed(lambda: with_derivatives(case, gait))
    ours, again = timed(lambda: with_derivatives(case, gait))
    evaluated = Evaluated(case, gait)
    _, compiling = timed(lambda: evaluated(evaluated.start))
    evaluated.orbits = 0
    theirs, took = timed(lambda: without_derivatives(case, evaluated))
    count = int(np.sum(ours.starts.iterations))
    print(name)
    print(f"  hyjax   {float(ours.value):.13f}: {count} evaluations, {again:.3f} s, with compilation {first:.1f} s")
    for number in range(1, int(np.max(ours.starts.optimum)) + 1):
        mine = ours.starts.optimum == number
        print(f"          {float(ours.starts.values[mine][0]):.13f}: {int(np.sum(mine))} of {case.starts} starts")
    whole = took + compiling
    print(f"  COBYQA  {theirs.fun:.13f}: {evaluated.orbits} evaluations, {took:.3f} s, with compilation {whole:.1f} s")
    print(f"  values differ by {theirs.fun - float(ours.value):.1e}")
    print(f"  ratio of times {took / again:.1f}, with compilation {whole / first:.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="beginnings of the names of cases")
    names = parser.parse_args().names
    for name, case in CASES.items():
        if not names or any(name.startswith(each) for each in names):
            compare(name, case)
