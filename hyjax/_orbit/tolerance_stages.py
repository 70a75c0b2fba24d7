r"""Newton's method by stages: with coarse tolerances of the integrator while the residual is large, then with its own.

Far from the root a residual needs no more digits than the next Newton step removes: a stride with tolerance $\tau$ serves until
the residual is about $\sqrt\tau$, from where one step leads to about $\tau$. Each stage is a search of its own, so that all
lanes of a batch have the same tolerance at the same time: a lane that has settled waits for the others, and its result does not
depend on them.

Source: Deuflhard (2004), *Newton Methods for Nonlinear Problems*, Sec. 2.1, inexact Newton methods.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._flow.mode_integrators import coarsened, Integrators
from .._numerics.newton import DampedNewton, Evaluation, find_root, Root, RootFinder

# The default of `coarse`.
COARSE = (1e-6, 1e-9)
# The residual, relative to the state, at which a stage with the tolerance tau ends is this power of tau.
SETTLE = 0.5
# Below this residual a stage also ends when the residual stops falling: its strides are not accurate enough for more digits.
NEARBY = 1e-2


def find_root_by_stages(
    equation: Callable[[Integrators], Callable[[Array, Bool[Array, ""]], Evaluation]],
    y0: Float[Array, " n"],
    integrator: Integrators,
    coarse: tuple[float, ...],
    *,
    max_iterations: int | Array,
    accept: float | Array,
    root_finder: RootFinder,
    size: Float[Array, ""],
    settle: bool,
) -> Root:
    """`find_root` for an equation of strides, with `DampedNewton` by stages.

    Where the coarse stages do not lead to a root, the search is repeated from the start with the integrator's own tolerances.
    **Arguments:** `equation`: `integrator -> evaluate` (see `find_root`). `coarse`: decreasing relative tolerances; those that
    the integrator's own exceeds are omitted. `settle`: whether the last stage ends at a residual of half the tolerance, which is
    the integrator's error: a further step would change, but not reduce it. Else it ends where the residual stops falling.
    """
    own, smallest = integrator.tolerances(y0.dtype)
    last = (own + smallest) / 2 if settle else 0.0
    # A traced tolerance may have any value: stages are for known tolerances only.
    coarse = tuple(each for each in coarse if isinstance(own, float) and each > own)
    options = {"size": size, "max_iterations": max_iterations}
    if not (isinstance(root_finder, DampedNewton) and coarse):
        return find_root(equation(integrator), y0, accept=accept, root_finder=root_finder, **options)

    finder, no = root_finder, jnp.array(False)

    # Under `jit` the search is traced once, for its shapes and for the scan.
    @jax.jit
    def search(y, tolerance, enough, first, most) -> Root:
        return find_root(
            equation(coarsened(integrator, tolerance, y0.dtype)), y, accept=jnp.where(tolerance > 0, NEARBY, accept),
            root_finder=dataclasses.replace(finder, settle=jnp.maximum(enough, finder.settle)), first=first,
            size=size, max_iterations=most,
        )  # fmt: skip

    def stage(carry, each):
        y, best, iterations, lost = carry
        tolerance, enough, first, again = each
        # The last row repeats the search from the start, for lanes in which the stages led to no root.
        idle = jnp.where(again, best.converged & ~lost, lost)
        found = search(
            jnp.where(again, y0, y), tolerance, enough, first, jnp.where(idle, 0, jnp.asarray(max_iterations))
        )
        kept = jax.tree.map(lambda old, new: jnp.where(idle, old, new), best, found)
        ahead = jnp.where(idle, y, found.ahead)
        return (ahead, kept, iterations + found.iterations, ~again & (lost | ~found.converged & (tolerance > 0))), None

    count = len(coarse)
    rows = (
        np.array([*coarse, 0, 0], y0.dtype),
        np.array([*(each**SETTLE for each in coarse), last, last], y0.dtype),
        np.array([True, *[False] * count, True]),
        np.array([*[False] * (count + 1), True]),
    )
    zero = jnp.zeros((), y0.dtype)
    shapes = jax.eval_shape(search, y0, zero, zero, no, jnp.asarray(max_iterations))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    (_, root, iterations, _), _ = jax.lax.scan(stage, (y0, nothing, jnp.array(0), no), jax.tree.map(jnp.asarray, rows))
    return dataclasses.replace(root, iterations=iterations)
