r"""Hybrid iLQR: optimal control through whatever events come."""

from collections.abc import Mapping

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.integrator import Integrator, IntegratorLike, PlainForward, with_adjoint
from .._flow.simulate import check_simulation
from .._system.system import HybridSystem
from .._system.types import Flag, Params, State
from .._system.where import free_leaves, Where
from .control_problem import ControlProblem, place_costs, StageCost, TerminalCost
from .ilqr_run import run_ilqr
from .ilqr_solution import IlqrSolution


def ilqr(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    mode: str,
    times: Float[Array, " times"],
    where: Where,
    stage_cost: StageCost | Mapping[str, StageCost],
    terminal_cost: TerminalCost | Mapping[str, TerminalCost],
    controls: Float[Array, "steps m"] | None = None,
    max_iterations: int = 100,
    max_events: int = 20,
    tolerance: float | None = None,
    hold: bool | Flag = True,
    integrator: IntegratorLike | None = None,
) -> IlqrSolution:
    r"""Optimal control of a hybrid system by iLQR: the sequence of modes is found with the controls, and is free to change.

    $$\min_u\ \sum_{k=0}^{N-1} \ell(t_k, x_k, u_k) + \varphi(t_N, x_N), \qquad x_{k+1} = F_k(x_k, u_k)$$

    where $F_k$ leads from $t_k$ to $t_{k+1}$ through whatever events come, with the control $u_k$ held. Each iteration

    1. expands the cost to second and $F_k$ to first order about the last trajectory; the derivatives of $F_k$ contain the
       saltation matrices of its events;
    2. goes backward with the recursion of Riccati, to $k_k$ and $K_k$;
    3. simulates $u = \bar u + \alpha k + K\,(x - \bar x)$ through the events that now come, for 8 steps $\alpha$ from 1 to 0.0016
       along each of several directions, as one batch, and takes the trajectory of the lowest cost: so the cost falls in every
       iteration. The directions are those of the model with dampings 0, 1 and 100 of $Q_{uu}$, and with `hold` those below.

    **Extensions.** A solution that is early or late at an event is compared with the arc of the last trajectory in its own mode,
    continued beyond that event by the flow of this mode, with guards ignored, and with the control $\bar u$, the feedforward $k$
    and the gain $K$ of the step with the event held. After a jump it is compared with the arc of its mode that starts nearest in
    time; in a mode that the last trajectory does not visit its controls are $\bar u$, without feedback.

    **Kinks.** An event at a grid time sees the control of one step before it, and of the other step after. The saltation matrix
    contains the vector fields at the event: so where an event passes a grid time, the derivatives of the cost jump, the cost has
    a kink, and a minimum may lie there. At a point of a kink that is no minimum, each of the two smooth pieces has its descent
    direction across the kink, and on the other piece the cost rises: the line search fails, and a local method stalls. Moreover
    a solution that is late for a whole step because its event has just passed a grid time has the control of the step before, by
    the extension, and the cost jumps. With `hold`, which goes beyond the source, further directions are tried: without feedback
    where the solution is early or late, so that the cost is continuous along them; and with events that are near a grid time led
    to it and held there in the model, while the other degrees of freedom minimize: all that are within a tenth or a thousandth of
    a step, all of these but the one with the multiplier that pulls hardest away from its kink, and all led to the next or the
    previous grid time. Where none of these lowers the cost, the trajectory is optimal along its kinks. As there may be a kink at
    each grid time, there may be such a minimum at each; several initial guesses help, and a finer grid lowers the barriers.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`: shape `(n,)`. `mode`: that of `x0`.
    `times`: the grid, increasing, shape `(steps + 1,)`. `where`: selects the $m$ parameters that act, as `lambda p:
    (p.torque, p.push_off)`; vector fields, guards and resets see them. `controls`: the initial guess of their deviations from
    `params`, shape `(steps, m)`; by default zero. It decides which minimum is found. `stage_cost`: $\ell(t, x, u, p)$,
    `terminal_cost`: $\varphi(t, x, p)$, with values of shape `()`, each a function or one for each mode by name; `x` has the
    dimension of its mode, `u` shape `(m,)`, and `p` is `params`. Both twice differentiable; convex costs give better
    directions. `max_iterations`, `max_events` (of one trajectory): static. `tolerance`: of the decrease that the model
    promises, relative to the cost or to what it has fallen by, whichever is larger; by default 1e-9 in float64. `integrator`:
    an `Integrator`, or one for each mode; by default Dopri8 at tolerances of 1e-10.

    **Returns:** `IlqrSolution`, also under `jit` and `vmap`: as for `controls`, several initial guesses are one batch. Its
    `cost` is differentiable in `x0`, `params` and `times`, with the controls held: by the envelope theorem this is the
    derivative of the minimum. `result`: `successful` where the model promises no decrease, or none along a kink; `stalled`
    where it promises one and no step that was tried has it; `optimum_not_found` after `max_iterations`, and at a stationary
    point that is no minimum, such as the top between two wells of a cost that is not convex, where start elsewhere; a code of
    `simulate` if the initial guess fails, and then the numbers are NaN. Trial steps that fail are only refused. `ValueError`
    for arguments of a wrong shape or dtype, or that are not finite.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> solution = hj.control.ilqr(
    ...     ball.system, x0, params, mode="flight", times=jnp.linspace(0.0, 0.6, 7), where=lambda p: p.gravity,
    ...     stage_cost=lambda t, x, u, p: 0.01 * jnp.sum(u**2), terminal_cost=lambda t, x, p: (x[0] - 0.5) ** 2,
    ... )
    >>> print(solution.result, f"{solution.cost:.6f}")
    successful 0.005996

    Source: Kong, Council, Johnson (2021), *iLQR for piecewise-smooth hybrid dynamical systems*, IEEE CDC, 5374-5381; Tassa, Erez,
    Todorov (2012), *Synthesis and stabilization of complex behaviors through online trajectory optimization*, IROS. In Kong,
    Payne, Zhu, Johnson (2024): Sec. II, hybrid iLQR; eq. 33 for the derivatives of $F_k$ and eq. 40 at its events; in Table I
    the co-vector quadratic matrix $P$ of eq. 40 and the loss function of eq. 144.
    """
    double = jnp.asarray(x0).dtype == np.float64
    if integrator is None:
        accuracy = 1e-10 if double else 1e-6
        integrator = Integrator(rtol=accuracy, atol=accuracy, unroll=False)
    times = _check_times(times, jnp.asarray(x0).dtype)
    if not isinstance(max_events, int) or max_events < 0:
        raise ValueError(f"ilqr: max_events={max_events!r} must be an integer of at least 0.")
    _, x0, _, params, integrator = check_simulation(
        system, x0, params, mode, times[0], times[-1], max_events, integrator
    )
    system.refuse_at_once("ilqr")
    free = free_leaves(where, params)
    steps, m = len(times) - 1, len(free)
    controls = jnp.zeros((steps, m), x0.dtype) if controls is None else jnp.asarray(controls, x0.dtype)
    if controls.shape != (steps, m):
        raise ValueError(
            f"ilqr: controls of shape {controls.shape} must have shape {(steps, m)}: one row for each step of the grid, one "
            "column for each parameter that acts."
        )
    if not isinstance(controls, jax.core.Tracer) and not np.all(np.isfinite(controls)):
        k = int(np.argmin(np.all(np.isfinite(controls), axis=1)))
        raise ValueError(f"ilqr: controls[{k}] = {controls[k]} is not finite. Give finite numbers.")
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"ilqr: max_iterations={max_iterations!r} must be an integer of at least 1.")
    tolerance = (1e-9 if double else 1e-4) if tolerance is None else tolerance
    if not 0 < tolerance < 1:
        raise ValueError(f"ilqr: tolerance={tolerance!r} must lie between 0 and 1, for example 1e-9.")
    u = jax.ShapeDtypeStruct((m,), x0.dtype)
    size = max(each.dimension for each in system.modes.values())
    problem = ControlProblem(
        system=system, params=params, x0=jnp.pad(x0, (0, size - x0.size)), initial=mode, times=times,
        stage=place_costs(stage_cost, system, (u, params), x0.dtype, "stage_cost"),
        terminal=place_costs(terminal_cost, system, (params,), x0.dtype, "terminal_cost"),
        integrator=with_adjoint(integrator, PlainForward()), free=free, max_events=max_events,
    )  # fmt: skip
    return run_ilqr(problem, controls, max_iterations, jnp.asarray(tolerance, x0.dtype), jnp.asarray(hold))


def _check_times(times, dtype) -> Float[Array, " times"]:
    times = jnp.asarray(times, dtype)
    if times.ndim != 1 or len(times) < 2:
        raise ValueError(f"ilqr: times of shape {times.shape} must have shape (steps + 1,), with at least one step.")
    if not isinstance(times, jax.core.Tracer) and not (np.all(np.isfinite(times)) and np.all(np.diff(times) > 0)):
        k = int(np.argmin(np.diff(times) > 0)) + 1
        raise ValueError(f"ilqr: the times must be finite and increase; times[{k}] is {times[k]}.")
    return times
