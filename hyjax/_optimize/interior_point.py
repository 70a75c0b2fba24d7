r"""An interior-point method for few unknowns and expensive functions: one evaluation, with all derivatives, per iteration.

An iteration evaluates a trial point and either accepts it, and takes the next Newton direction, or shortens the step. All
lanes of a batch run the same steps, so no search along a line waits for that of another lane. The phases of a lane are: the
approach from the point where its functions are known to its start; the barrier problems; the finish by Newton's method on the
optimality conditions. A trial that cannot be evaluated (the gait is lost) is a step that is too long.

Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 19; Wächter, Biegler (2006), Math. Program. 106, 25-57.
"""

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._system.results import code_of, RESULTS
from .active_set import ActiveSet
from .barrier import Point
from .direction import Direction
from .filter import empty_filter, Filter
from .program import Program, Sample

# The size to which functions are scaled.
SIZE = 32.0
# The phases of a lane.
APPROACH, BARRIER, FINISH, DONE = range(4)


class InteriorPoint(eqx.Module):
    """The primal-dual interior-point method, finished by Newton's method on the active constraints.

    **Arguments:** `second_order`: use the exact Hessian of the Lagrangian, which takes about twice as long to compile; else BFGS
    updates with Powell's damping. `max_iterations`: evaluations of objective and constraints, static. `accept`: the largest
    residual of the optimality conditions at which a result is `successful`, of functions scaled by powers of two to gradients and
    curvatures of the order of 1 at the start, in unknowns scaled by their bounds. `barrier`: the first barrier parameter.

    **Example:**

    >>> hj.InteriorPoint(second_order=True, max_iterations=50).accept
    1e-07
    """

    second_order: bool = eqx.field(static=True, default=False)
    max_iterations: int = eqx.field(static=True, default=200)
    accept: float = 1e-7
    barrier: float = 0.1

    def __check_init__(self):
        if self.max_iterations < 1:
            raise ValueError(f"InteriorPoint: max_iterations={self.max_iterations} must be at least 1.")
        if not self.accept > 0 or not self.barrier > 0:
            raise ValueError(f"InteriorPoint: accept={self.accept} and barrier={self.barrier} must be positive.")


class History(eqx.Module):
    """Every evaluation of a minimization, in order; beyond `iterations` zeros.

    **Attributes:** `objective`: of the trial, shape `(iterations,)`. `violation`: its largest violation of a constraint. `step`:
    the largest component of the step to it. `accepted`: whether it was accepted. `phase`: 0 approach to the start, 1 barrier, 2
    finish. `codes`: numbers of the result codes: why a trial failed; `names` are their names.
    """

    objective: Float[Array, "*iterations"]
    violation: Float[Array, "*iterations"]
    step: Float[Array, "*iterations"]
    accepted: Bool[Array, "*iterations"]
    phase: Int[Array, "*iterations"]
    codes: Int[Array, "*iterations"]

    @property
    def names(self) -> list[str]:
        """The names of the codes, such as `no_crossing`."""
        return [str(code_of(int(number))) for number in np.ravel(np.asarray(self.codes))]


class Search(eqx.Module):
    """The state of a minimization between two evaluations.

    **Attributes:** `probing`: whether the next trial is beside the start. `sample`: at `point`, scaled by `scale`. `first`: the
    scaled objective at the start; infinite where that violates a constraint. `mu`: of the barrier. `points`: the filter.
    `most`: the largest violation allowed. `secant`: the approximation of the Hessian, where no exact one is used. `direction`,
    `fraction`: of the next trial. `reach`: the longest step to try, after one that could not be evaluated. `slope`: of the
    barrier function along the direction. `restoring`: whether steps only lower the violation. `gap`: the violations that the
    direction removes. `corrected`: whether these include those of the last trial, a second-order correction. `rejected`,
    `changes`: trials since
    the last accepted one, and directions. `active`, `finish`: the active set and the next trial of the finish. `error`: the
    residual of the optimality conditions. `iterations`: evaluations so far. `result`: the code of the last.
    """

    phase: Int[Array, ""]
    probing: Bool[Array, ""]
    point: Point
    sample: Sample
    scale: Float[Array, " functions"]
    first: Float[Array, ""]
    mu: Float[Array, ""]
    points: Filter
    most: Float[Array, ""]
    secant: Float[Array, "n n"]
    direction: Direction
    fraction: Float[Array, ""]
    reach: Float[Array, ""]
    slope: Float[Array, ""]
    restoring: Bool[Array, ""]
    gap: Float[Array, " m"]
    corrected: Bool[Array, ""]
    rejected: Int[Array, ""]
    changes: Int[Array, ""]
    active: ActiveSet
    finish: Point
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    result: RESULTS
    history: History


def changed(state: Search, **fields) -> Search:
    """The state with other fields."""
    names = tuple(fields)
    values = tuple(
        value if isinstance(value, eqx.Module) else jnp.asarray(value, getattr(state, name).dtype)
        for name, value in fields.items()
    )
    return eqx.tree_at(lambda state: tuple(getattr(state, name) for name in names), state, values)


def start_search(program: Program, method: InteriorPoint, origin: Array, carry: PyTree) -> Search:
    """The state before the first iteration, which evaluates `origin`."""
    n, e, i, dtype = origin.size, program.equalities, program.inequalities, origin.dtype
    zeros, count = lambda *shape: jnp.zeros(shape, dtype), jnp.zeros((), jnp.int32)
    successful = cast(RESULTS, RESULTS.successful)
    hessians = zeros(1 + e + i, n, n) if method.second_order else None
    sample = Sample(zeros(1 + e + i), zeros(1 + e + i, n), hessians, carry, successful)
    point = Point(origin, jnp.ones(i, dtype), zeros(e + i), jnp.ones(i, dtype), zeros(n), zeros(n))
    direction = Direction(jax.tree.map(jnp.zeros_like, point), *(zeros() for _ in range(4)))
    k = method.max_iterations
    history = History(zeros(k), zeros(k), zeros(k), jnp.zeros(k, bool), *(jnp.zeros(k, jnp.int32) for _ in range(2)))
    return Search(
        phase=count + APPROACH, probing=jnp.array(False), point=point, sample=sample, scale=jnp.ones(1 + e + i, dtype),
        first=jnp.full((), jnp.inf, dtype),
        mu=jnp.asarray(method.barrier, dtype), points=empty_filter(dtype), most=zeros(), secant=SIZE * jnp.eye(n, dtype=dtype),
        direction=direction, fraction=zeros(), reach=jnp.full((), jnp.inf, dtype), slope=zeros(), restoring=jnp.array(False),
        gap=zeros(e + i), corrected=jnp.array(False), rejected=count, changes=count, active=ActiveSet(jnp.zeros(i, bool),
        jnp.zeros(n, bool), jnp.zeros(n, bool)), finish=point, error=jnp.full((), jnp.inf, dtype), iterations=count,
        result=successful, history=history,
    )  # fmt: skip
