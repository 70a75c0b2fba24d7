"""Which solver for a hopper that is stiff in stance and not in flight: alone, by phase, in a batch, and for a gradient?

The monopod hopper of Dallas, Machairas, Papadopoulos (2017), from t = 0 to 50. Errors are relative to the largest number,
against Dopri8 and Rodas5P at 1e-12; seconds are medians of interleaved rounds. For each candidate the cheapest run is shown that
is as accurate as Dopri8 at 1e-6, of the tolerances 1e-4 to 1e-10.

    python benchmarks/solvers.py [--quick]

A run on one of two cores, beside another program on the other, is kept in `outputs/solvers.json`.
"""

import argparse
import functools as ft

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax.models import monopod_hopper as hopper, thrusting_hopper
from hyjax.study.recommend import final_state

jax.config.update("jax_enable_x64", True)

parser = argparse.ArgumentParser()
parser.add_argument("--quick", action="store_true", help="fewer sets, rounds and lanes, no gradient")
quick = parser.parse_args().quick
rounds, lanes, end = (3, 100, 50.0) if quick else (7, 1000, 50.0)

S = hj.solvers
plain = ft.partial(hj.Integrator, variations=False)
explicit = {"Bosh3": dfx.Bosh3(), "Tsit5": dfx.Tsit5(), "Dopri8": dfx.Dopri8(), "AdamsPECE": S.AdamsPECE()}
implicit = {
    "Rosenbrock23": S.Rosenbrock23(),
    "Rodas5P": S.Rodas5P(),
    "Radau5": S.Radau5(),
    "NDF": S.NDF(),
    "TRBDF2": S.TRBDF2(),
}
candidates = {name: plain(solver) for name, solver in (explicit | implicit).items()}
tolerances = (1e-4, 1e-6, 1e-8, 1e-10)


def flight_and_stance(solver):
    """Tsit5 in flight, another solver in stance."""
    return {"flight": plain(dfx.Tsit5()), "stance": plain(solver), "released": plain(dfx.Tsit5())}


by_phase = {f"Tsit5 / {name}": flight_and_stance(implicit[name]) for name in ("Rodas5P", "Radau5", "NDF")}
# One mode: the force is zero above the ground.
stance = hj.HybridSystem({"stance": hj.Mode(hopper.stand, hopper.coordinates)}, ())


def table(title, quantity, methods, compile_once=True, finest=tolerances, allowed=None):
    """For each method the cheapest run that is as accurate as Dopri8 at 1e-6, or as `allowed`."""
    study = hj.study.quantity_study(
        quantity, solvers=methods, tolerances=finest, compile_once=compile_once, rounds=rounds, progress=False
    )  # fmt: skip
    first = study.sel(solver="Dopri8", rtol=1e-6)
    allowed = float(first.error) if allowed is None else allowed
    base = float(first.seconds)
    print(f"\n{title}: error at most {allowed:.1e}; references disagree by {float(study.reference_error):.0e}")
    print(f"{'':<18}{'rtol':>8}{'error':>10}{'ms':>10}{'Dopri8 1e-6 takes':>20}")
    rows = []
    for name in study.solver.values:
        runs = study.sel(solver=name)
        good = runs.error.values <= allowed * (1 + 1e-12)
        if not np.any(good):
            rows.append((np.inf, f"{name:<18}{'not that accurate':>28}"))
            continue
        k = int(np.nanargmin(np.where(good, runs.seconds.values, np.inf)))
        one = runs.isel(rtol=k)
        seconds = float(one.seconds)
        rows.append(
            (
                seconds,
                f"{name:<18}{float(one.rtol):>8.0e}{float(one.error):>10.1e}{1e3 * seconds:>10.2f}{base / seconds:>16.2f} x",
            )
        )
    print("\n".join(line for _, line in sorted(rows)))
    # A process may map so many parts of compiled programs into memory and no more (vm.max_map_count): the next table has its own.
    jax.clear_caches()


def states_of(system, starts, durations, params, mode):
    """The final states after given durations, one run after the other."""

    final = final_state(system, mode, params, 200)
    return lambda integrator: jax.lax.map(lambda each: final(integrator, each[0], 0.0, each[1]), (starts, durations))


def stances(number):
    """Start states and durations of the stances of a parameter set, in order; the last one ends at rest."""
    params = hopper.table_2(number)
    mode, x0 = hopper.start(params)
    accurate = hj.Integrator(rtol=1e-12, atol=1e-12, variations=False, max_steps=100_000)
    found = hj.simulate(hopper.system, x0, params, mode=mode, t1=end, max_jumps=400, integrator=accurate, throw=False)
    number_of = list(hopper.system.modes).index("stance")
    there = np.asarray(found.modes) == number_of
    return params, found.x_starts[there], (found.end_times - found.start_times)[there]


for number in (11,) if quick else (11, 12):
    params, starts, spans = stances(number)
    depth = float(-hopper.equilibrium(params)[0])
    print(f"\nSet {number}: stiffness ratio {hopper.stiffness_ratio(params):.0f}, as printed in the source", end=" ")
    print(
        f"{hopper.stiffness_ratio(params, True):.0f}; damping at rest {float(params.damping) * depth**1.5:.0f} per unit of time;",
        end=" ",
    )
    print(f"{len(spans)} stances, {float(jnp.sum(spans)):.1f} of {end} units of time")
    name = f"all stances of set {number}"
    table(name, states_of(stance, starts, spans, params, "stance"), candidates)
    if number == 11:
        table(
            "the last stance of set 11, to rest",
            states_of(stance, starts[-1:], spans[-1:], params, "stance"),
            candidates,
        )

for number in (11,) if quick else (11, 5):
    params = hopper.table_2(number)
    mode, x0 = hopper.start(params)
    whole = states_of(hopper.system, x0[None], jnp.array([end]), params, mode)
    table(f"whole run of set {number}", whole, candidates | by_phase)

# Where do implicit methods pay? The damping of set 11, times 1 to 1000.
stiff = {name: candidates[name] for name in ("Tsit5", "Dopri8", "Rodas5P", "Radau5", "NDF")}
for factor in (100,) if quick else (10, 100, 1000):
    params = hopper.Params(38000.0 * factor, 1.88, 22.8, 0.051)
    mode, x0 = hopper.start(params)
    whole = states_of(hopper.system, x0[None], jnp.array([20.0]), params, mode)
    name = f"set 11 with {factor} times its damping, to t = 20"
    table(name, whole, stiff | {"Tsit5 / Rodas5P": by_phase["Tsit5 / Rodas5P"]}, allowed=1e-5)

params = hopper.table_2(11)
mode, x0 = hopper.start(params)
heights = jnp.linspace(0.4, 0.6, lanes)
drops = jnp.stack([heights, 0 * heights, 1 + heights, 0 * heights], axis=1)


falling = final_state(hopper.system, mode, params, 40)


def batch(integrator):
    return jax.vmap(lambda x: falling(integrator, x, 0.0, 10.0))(drops)


few = {name: candidates[name] for name in ("Bosh3", "Tsit5", "Dopri8", "Rosenbrock23", "Rodas5P", "NDF")}
table(
    f"{lanes} lanes of set 11 to t = 10 under vmap",
    batch,
    few | {"Tsit5 / Rodas5P": by_phase["Tsit5 / Rodas5P"]},
    finest=(1e-4, 1e-6, 1e-8),
)

if not quick:
    # Several hops coexist: all candidates start from the same accurate one, that of the default integrator.
    nominal = thrusting_hopper.Params()
    guess = thrusting_hopper.guess(nominal)
    guess = hj.periodic_orbit(thrusting_hopper.step, guess, nominal).x

    def sensitivity(integrator):
        """The derivative of the hop's period by the ground's stiffness."""

        def period(stiffness):
            orbit = hj.periodic_orbit(
                hj.ReturnMap(thrusting_hopper.system, sequence=thrusting_hopper.sequence, integrator=integrator),
                guess,
                thrusting_hopper.Params(stiffness=stiffness),
                near=0.01,
                throw=False,
            )
            return jnp.where(orbit.result == hj.RESULTS.successful, orbit.period, jnp.nan)

        return jax.grad(period)(nominal.stiffness)

    some = {name: hj.Integrator((explicit | implicit)[name]) for name in ("Tsit5", "Dopri8", "Rodas5P")}
    name = "d(period)/d(stiffness) of the thrusting hopper"
    table(name, sensitivity, some, compile_once=False, finest=(1e-6, 1e-9), allowed=1e-3)
