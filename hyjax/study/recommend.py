r"""A recommendation of an integrator for a system, from measurements on the system itself."""

from collections.abc import Callable, Mapping, Sequence

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._flow.integrator import for_modes, Integrator, IntegratorLike, Limits
from .._flow.simulate import check_simulation
from .._system.system import HybridSystem
from .._system.types import Params, State, Time
from ..solvers.ndf import NDF
from ..solvers.rodas5p import Rodas5P
from ..solvers.rosenbrock23 import Rosenbrock23
from .final_state import final_state
from .quantity_study import limited, quantity_study
from .recommendation import Recommendation
from .study_checks import Method

CANDIDATES: dict[str, Method] = {
    "Bosh3": dfx.Bosh3(), "Tsit5": dfx.Tsit5(), "Dopri8": dfx.Dopri8(), "Rosenbrock23": Rosenbrock23(), "Rodas5P": Rodas5P(),
    "NDF": NDF(),
}  # fmt: skip


def recommend_integrator(
    system: HybridSystem,
    x0: State | Float[Array, "lanes n"],
    params: Params,
    *,
    mode: str,
    t1: float | Time,
    t0: float | Time = 0.0,
    accuracy: float = 1e-6,
    candidates: Mapping[str, Method] | None = None,
    tolerances: Sequence[float | tuple[float, float]] = (1e-4, 1e-6, 1e-8, 1e-10),
    quantity: Callable[[IntegratorLike], PyTree] | None = None,
    reference: Mapping[str, Method] | None = None,
    max_jumps: int = 100,
    max_steps: int = 100_000,
    rounds: int = 7,
    progress: bool | None = None,
) -> Recommendation:
    r"""Recommend an integrator for a system: the fastest of some candidates that reaches an accuracy, measured on the system.

    Every candidate simulates the system from `t0` to `t1` at every tolerance. The error is the largest of the final state,
    relative to its largest coordinate, against a reference run at 1e-12; the cost is the median duration of `rounds` runs, which
    are interleaved, after compilation. Nothing is chosen silently: the result has all that was measured, prints it, and names the
    candidates whose durations cannot be told apart. It holds for this system, these parameters, this machine and this batch.

    **Arguments:**

    - `system`, `params`, `mode`, `t0`, `t1`, `max_jumps`: as in `simulate`. `t1` decides what is measured: let it be the time of
      the intended runs, and include all modes. `x0`: shape `(n,)`, or a batch, shape `(lanes, n)`, which runs under `vmap`: steps
      with linear solves cost relatively less or more in a batch than alone.
    - `accuracy`: the relative error that the result must not exceed.
    - `candidates`: `{name: solver}`, each a diffrax solver, one of `hj.solvers`, an `Integrator`, or integrators by mode such as
      `{"stance": Integrator(hj.solvers.Rodas5P()), "flight": Integrator(diffrax.Tsit5())}`. By default Bosh3, Tsit5, Dopri8,
      Rosenbrock23, Rodas5P and NDF. `tolerances`: each `rtol = atol`, or a pair `(rtol, atol)`.
    - `quantity`: another quantity than the final state, such as a gradient: see `quantity_study`. Then `x0` and `t1` are
      only checked.
    - `reference`: two methods or more, by default Dopri8 and Rodas5P, whose disagreement tells how accurate the reference is.
    - `max_steps`: the most steps in an arc. `progress`: show a bar on stderr; by default on a terminal.

    **Returns:** `Recommendation`. Its `integrator` is `None` where no candidate reaches the accuracy, or where the references
    disagree too much to tell. One compilation for each candidate, some seconds each; with `quantity`, one for each tolerance too.
    `ValueError` for arguments that cannot be used, and where the reference run fails.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> methods = {"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()}
    >>> found = hj.study.recommend_integrator(
    ...     ball.system, x0, params, mode="flight", t1=1.0, accuracy=1e-3, candidates=methods, reference=methods,
    ...     tolerances=(1e-4,), rounds=2, progress=False,
    ... )
    >>> found.integrator is not None, found.best.error < 1e-3
    (True, True)
    """
    if not 0 < accuracy < 1:
        raise ValueError(f"recommend_integrator: accuracy={accuracy!r} must lie between 0 and 1, such as 1e-6.")
    x0 = jnp.asarray(x0)
    if x0.ndim not in (1, 2) or not len(x0):
        raise ValueError(
            f"recommend_integrator: x0 has the shape {x0.shape}; it must be (n,), or (lanes, n) for a batch."
        )
    if x0.dtype == jnp.float32:
        raise ValueError(
            "recommend_integrator: x0 has the dtype float32, in which there is no reference run at 1e-12 to measure errors with. "
            "Give x0 in float64, after jax.config.update('jax_enable_x64', True), as jnp.asarray(x0, float)."
        )
    lanes = len(x0) if x0.ndim == 2 else None
    start, _, end, *_ = check_simulation(
        system, x0 if lanes is None else x0[0], params, mode, t0, t1, max_jumps, Integrator()
    )
    if not end > start:
        raise ValueError(f"recommend_integrator: t1={t1!r} must lie after t0={t0!r}.")
    given = CANDIDATES if candidates is None else candidates
    for each in given.values():
        if isinstance(each, Mapping):
            for_modes(system, each)

    final = final_state(system, mode, params, max_jumps)

    def states(integrator: IntegratorLike):
        return jax.vmap(lambda x: final(integrator, x, start, end))(x0) if lanes else final(integrator, x0, start, end)

    measured = quantity_study(
        states if quantity is None else quantity, solvers=given, tolerances=tolerances, reference=reference, max_steps=max_steps,
        compile_once=quantity is None, rounds=rounds, progress=progress,
    )  # fmt: skip
    pairs = list(zip(measured["rtol"].values.tolist(), measured["atol"].values.tolist(), strict=True))
    integrators = {
        name: [limited(each, Limits(rtol, atol, max_steps, jnp.inf)) for rtol, atol in pairs]
        for name, each in given.items()
    }
    what = "the final state" if quantity is None else "the given quantity"
    about = f"{what}, t = {float(start):g} to {float(end):g}" + ("" if lanes is None else f", {lanes} lanes under vmap")
    return Recommendation(measured, float(accuracy), about, integrators)
