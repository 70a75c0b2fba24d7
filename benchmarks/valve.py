"""How long does one return of the pressure relief valve take, in a scan over the flow of its pump?

The benchmark of Hegedűs and coworkers for ensembles with impacts (Nagy, Plavecz, Hegedűs, Commun. Nonlinear Sci. Numer. Simul.
112 (2022) 106521): from (0.2, 0, 0) follow 1024 + 32 returns to the top of the lift, y2 = 0 falling, with the impacts between
them, at a tolerance of 1e-10, for q = linspace(0.2, 10, N). In their formulation the valve only bounces; with `--picture` the
model closes after chattering. Above q = 8.491 the equilibrium is stable: there a lane stops when a return has shrunk to
rounding. Below q = 0.278 the first bounces accumulate: in their formulation a lane stops there.

    python benchmarks/valve.py [--lanes 30720] [--float32] [--quick] [--picture docs/relief_valve.png]

The time of a return depends on q, so the peers take their returns at 16 flows, the middles of 16 equal parts of [0.2, 8.4], and
hyjax is compared in its lanes below 8.4. All costs are those of a core: the CPU's time, of all threads together. The error is
that of the tops 8 to 12, where the valve is not chaotic (above q = 1.5), against heyoka at 1e-16. heyoka starts at t = 0.05,
since the root of the pressure has no Taylor series at zero.

A run with 30 720 flows, on one of two cores, is kept in `outputs/valve.json`.

SciPy's error of 0.02 is a shallow impact that it misses, at q = 6.09. The lanes of a block wait for each other at every event;
neighbouring flows differ little, so on a CPU blocks of 128 neighbours serve well (`--width`), and N should be large: with
3 072 flows a return takes 18 us. Tsit5 (`--solvers`) takes longer than Dopri8.
"""

import argparse
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser()
parser.add_argument("--lanes", type=int, default=3072, help="the number N of flows; 30720 in the source")
parser.add_argument("--width", type=int, help="lanes in a block; by default 128 on a CPU, else all")
parser.add_argument("--transients", type=int, default=1024)
parser.add_argument("--solvers", default="Dopri8", help="of diffrax, such as Dopri8,Tsit5; the first is compared")
parser.add_argument("--float32", action="store_true", help="at a tolerance of 1e-5, hyjax only")
parser.add_argument("--quick", action="store_true", help="512 lanes of 64 + 32 returns")
parser.add_argument("--picture", help="write the bifurcation diagram of the model there, and compare nothing")
options = parser.parse_args()

import jax  # noqa: E402

jax.config.update("jax_enable_x64", not options.float32)

import diffrax as dfx  # noqa: E402
import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy.integrate import solve_ivp  # noqa: E402

import hyjax as hj  # noqa: E402
from hyjax._flow.section_map import SectionMap  # noqa: E402
from hyjax._sweep.attractor import map_of  # noqa: E402
from hyjax._sweep.batches import BatchMap  # noqa: E402
from hyjax._system.results import choose  # noqa: E402
from hyjax.models import relief_valve as valve  # noqa: E402

KEEP = 32
LOW, HIGH, OSCILLATES = 0.2, 10.0, 8.4
# A lift below which a top is one of bounces that accumulate.
ACCUMULATED = 1e-20
GRAZES, HOPF = 7.5572, 8.4911
tolerance = 1e-5 if options.float32 else 1e-10
# In the source's formulation: no third mode, no domain.
bouncing = hj.HybridSystem(
    modes={"open": hj.Mode(valve.open_valve, valve.coordinates)},
    transitions=(hj.Transition("open", "open", guard=valve.lift, reset=valve.impact),),
)


class Returns(eqx.Module):
    """The last `KEEP` returns to the top, their number, and the code of the return that failed, for one flow."""

    map: SectionMap

    def __call__(self, returns, q):
        params = valve.Params(flow=q)
        _, x0 = valve.start(params)

        def one(i, carry):
            x, result, count, kept = carry
            going = result == hj.RESULTS.successful
            # A lane that has stopped takes no step: it is at the section already.
            passed = self.map(jnp.zeros_like(q), x, jnp.where(going, 0, self.map.ordinary), params)
            # Bounces accumulate; the third mode, the closed valve, is missing here.
            low = (passed.result == hj.RESULTS.successful) & (passed.x[0] < ACCUMULATED)
            code = choose(low, hj.RESULTS.zeno, passed.result)
            good = going & (code == hj.RESULTS.successful)
            kept = jnp.where(good, jax.lax.dynamic_update_index_in_dim(kept, passed.x, count % KEEP, 0), kept)
            result = choose(going, code, result)
            return jnp.where(good, passed.x, x), result, count + good, kept

        start = x0, hj.RESULTS.successful, jnp.array(0), jnp.full((KEEP, x0.size), jnp.nan, x0.dtype)
        _, result, count, kept = jax.lax.fori_loop(0, returns, one, start)
        return result._value, count, kept


def scan(system, solver, flows, returns, width):
    """`(result, count, kept)` of every flow, with the seconds of compilation, of the run, and of the CPU in it."""
    integrator = hj.Integrator(solver, rtol=tolerance, atol=tolerance, variations=False)
    params = valve.Params()
    top = hj.ReturnMap(system, section=valve.top, integrator=integrator, max_jumps=100)
    chosen = map_of("valve", top, valve.start(params)[1], params, integrator)
    flows = flows.astype(np.asarray(params.flow).dtype)
    run = BatchMap(Returns(chosen.map), np.asarray(returns), width, width, sample=flows[:1])
    start = time.perf_counter()
    run.compile()
    compiling = time.perf_counter() - start
    blocks = [flows[k : k + run.capacity] for k in range(0, len(flows), run.capacity)]
    cpu, start = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(run.threads) as pool:
        found = list(pool.map(run, blocks))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return *(np.concatenate(each) for each in zip(*found, strict=True)), compiling, seconds, cpu


def scipy_tops(q, count):
    """The first tops by `solve_ivp` with DOP853, and the CPU's seconds."""

    def flow(t, y):
        y1, y2, y3 = y.tolist()
        return y2, -1.25 * y2 - (y1 + 10) + y3, 20 * (q - y1 * math.sqrt(max(y3, 0.0)))

    top, seat = (lambda t, y: y[1]), (lambda t, y: y[0])
    for event in (top, seat):
        event.terminal, event.direction = True, -1
    # Its events fire at a start on their surface.
    x, tops, cpu = [0.2, -1e-300, 0.0], [], time.process_time()
    while len(tops) < count:
        run = solve_ivp(flow, (0, 100), x, "DOP853", events=(top, seat), rtol=tolerance, atol=tolerance)
        x = run.y[:, -1]
        if run.t_events[1].size:
            x = [0.0, -0.8 * x[1], x[2]]
        else:
            tops.append(x.copy())
            x[1] = -1e-300
    return np.array(tops), time.process_time() - cpu


def after_start(q):
    """The state at the time 0.05, to rounding: before it no event."""
    flow = lambda t, y: (y[1], -1.25 * y[1] - (y[0] + 10) + y[2], 20 * (q - y[0] * np.sqrt(y[2])))
    return solve_ivp(flow, (0, 0.05), [0.2, 0.0, 0.0], "DOP853", rtol=2.3e-14, atol=1e-18).y[:, -1]


class Heyoka:
    """heyoka's Taylor integrator: impacts are terminal events, tops are not."""

    def __init__(self, tolerance):
        import heyoka as hy

        y1, y2, y3 = hy.make_vars("y1", "y2", "y3")
        rates = y2, -1.25 * y2 - (y1 + 10) + y3, 20 * (hy.par[0] - y1 * hy.sqrt(y3))
        falls = hy.event_direction.negative

        def impact(integrator, sign):
            state = integrator.state
            state[0], state[1] = 0.0, -0.8 * state[1]
            return True

        def top(integrator, t, sign):
            integrator.update_d_output(t)
            self.tops.append(integrator.d_output.copy())

        self.flow = hy.taylor_adaptive(
            list(zip((y1, y2, y3), rates, strict=True)), [0.2, 0.0, 1.0], pars=[1.0], tol=tolerance,
            t_events=[hy.t_event(y1, direction=falls, callback=impact)],
            nt_events=[hy.nt_event(y2, top, direction=falls)],
        )  # fmt: skip

    def __call__(self, q, count):
        """The first tops, and the CPU's seconds."""
        flow, self.tops = self.flow, []
        flow.pars[0], flow.time, flow.state[:] = q, 0.05, after_start(q)
        flow.reset_cooldowns()
        cpu = time.process_time()
        while len(self.tops) < count:
            flow.propagate_for(20.0)
        cpu = time.process_time() - cpu
        return np.array(self.tops[:count]), cpu * count / len(self.tops)


def compare(name, cost):
    """Returns of the peers at 16 flows, beside those of hyjax, whose `cost` is in seconds of a core for one return."""
    parts = np.linspace(LOW, OSCILLATES, 17)
    flows = (parts[1:] + parts[:-1]) / 2
    exact = {q: Heyoka(1e-16)(q, 12)[0] for q in flows}

    def report(tool, seconds, tops):
        errors = [np.abs(x[7:12] - exact[q][7:12]).max() for q, x in zip(flows, tops, strict=True) if q > 1.5]
        print(
            f"{tool:<28}{seconds * 1e6:>10.2f} us of a core a return; error {np.median(errors):.1e}, at most "
            f"{max(errors):.1e}; hyjax is {seconds / cost:.2f} times as fast",
            flush=True,
        )

    for tool, tops, count in (("SciPy DOP853", scipy_tops, 24), ("heyoka, scalar", Heyoka(tolerance), 400)):
        found, seconds = zip(*(tops(q, count) for q in flows), strict=True)
        report(tool, sum(seconds) / count / len(flows), found)
    solver = getattr(dfx, name.removeprefix("hyjax "))()
    _, _, kept, *_ = scan(bouncing, solver, flows, 12, 16)
    report(name, cost, kept)


def draw(path, flows, kept):
    """Tops of the lift over the flow of the pump; on the right where the orbit leaves the seat."""
    from hyjax.plot.figure import BLUE, GREY, INK, pyplot

    figure, axes = pyplot().subplots(1, 2, figsize=(10, 4.4), width_ratios=(1.6, 1), layout="constrained")
    for ax, (low, high) in zip(axes, ((LOW, HIGH), (5.4, 8.6)), strict=True):
        inside = (flows >= low) & (flows <= high)
        size = 0.4 if low == LOW else 0.8
        ax.plot(flows[inside], kept[inside, :, 0], ",", color=BLUE, markersize=size, rasterized=True)
        ax.set(xlabel="flow of the pump, $q$", xlim=(low, high))
        rest = np.linspace(low, high, 200)
        lift = jax.vmap(lambda q: valve.equilibrium(valve.Params(flow=q))[0])(jnp.asarray(rest))
        stable = rest > HOPF
        ax.plot(rest[~stable], lift[~stable], "--", color=GREY, lw=0.8, label="equilibrium, unstable")
        ax.plot(rest[stable], lift[stable], "-", color=INK, lw=1, label="equilibrium, stable")
        for q, what in ((GRAZES, "grazing"), (HOPF, "Hopf")):
            ax.axvline(q, color=GREY, lw=0.6, ls=":")
            ax.annotate(what, (q, 0.2), rotation=90, ha="right", va="bottom", fontsize=7, color=GREY)
    axes[0].set(ylabel="tops of the lift, $y_1$")
    axes[0].legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=150)


def main():
    lanes, transients = (512, 64) if options.quick else (options.lanes, options.transients)
    device = jax.local_devices()[0]
    cores = len(os.sched_getaffinity(0))
    width = options.width or (128 if device.platform == "cpu" else lanes)
    flows, returns = np.linspace(LOW, HIGH, lanes), transients + KEEP
    print(f"{cores} cores, {device.device_kind}; {lanes} flows, {returns} returns, blocks of {width}")
    if options.picture:
        _, _, kept, *_ = scan(valve.system, dfx.Dopri8(), flows, returns, width)
        draw(options.picture, flows, kept)
        return
    costs = {}
    for solver in options.solvers.split(","):
        name = f"hyjax {solver}"
        # Above the Hopf bifurcation lanes stop early.
        parts = flows[flows <= OSCILLATES], flows[flows > OSCILLATES]
        total, taken = np.zeros(2), 0
        for where, some in zip((f"q <= {OSCILLATES}", f"q > {OSCILLATES}"), parts, strict=True):
            result, count, _, compiling, seconds, cpu = scan(bouncing, getattr(dfx, solver)(), some, returns, width)
            total, taken = total + (seconds, cpu), taken + count.sum()
            costs.setdefault(name, cpu / count.sum())
            stopped = int(np.sum(result != int(hj.RESULTS.successful._value)))
            print(
                f"{name + ', ' + where:<28}{seconds:>8.1f} s, CPU {cpu:.1f} s, {cpu / count.sum() * 1e6:.2f} us of a core a "
                f"return; {stopped} of {len(some)} lanes stopped; compiling {compiling:.1f} s",
                flush=True,
            )
        wall, cpu = total
        print(
            f"{name + ', all':<28}{wall:>8.1f} s, CPU {cpu:.1f} s: {wall / taken * 1e6:.2f} us a return, "
            f"{cpu / taken * 1e6:.2f} us of a core; {wall / lanes / returns * 1e6:.2f} us for each of N x {returns}",
            flush=True,
        )
    if not options.float32:
        compare(*next(iter(costs.items())))


if __name__ == "__main__":
    main()
