"""The pictures and digits of the gallery: each model of `hyjax.models` once, to `docs/gallery/`.

    python tools/gallery.py                      models that have no picture or no digits yet
    python tools/gallery.py slip kneed_walker    these models again

For a model with isolated periodic orbits the gaits of `hyjax gait MODEL`, for others the end of `hyjax simulate MODEL --t1 T`.
Of a model in `FAMILIES` also the parts of the page of its gait map.
The site shows what is committed, and computes no gait. A model takes from seconds to minutes, most of them compilation.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "gallery"
DIGITS = FOLDER / "digits.json"
# The duration of a simulation, in the model's unit of time.
ENDS = {
    "bouncing_ball": 3.0,
    "ball_on_slope": 2.0,
    "monopod_hopper": 8.0,
    "rocking_block": 4.0,
    "pulse_coupled_neurons": 9.0,
    "hard_disks": 1.2,
    "newtons_cradle": 1.6,
    "biped_slip": 3.2,
    "quadruped_slip": 2.6,
}
# Of a gait map: for each family a state on it, by default the model's guess, the number of passes of the map, and the bounds of
# what is conserved. And the number of gaits that move, each some 15 kB.
Start = list[float] | None
RUN = [3.60468264544, 0.87685476543, 0, -0.69896392889, 0.69896392889, -0.1761087948, -0.1761087948, 0, 0]
# At its highest point in flight; all legs turn at one rate.
AHEAD, RATE = 0.6144442309, 4.39812614275
BOUND = [5.72818422858, 0.90040401333, 0, 0, -0.02751395363, *2 * [-AHEAD, AHEAD], *4 * [RATE], *4 * [0.0]]
FAMILIES: dict[str, list[tuple[Start, int, tuple[float, float]]]] = {
    "biped_slip": [(None, 2, (1.0, 1.7)), (RUN, 2, (1.6, 20.0))],
    "geyer_walker": [(None, 2, (1.03, 1.08))],
    "jerboa": [(None, 1, (2.0, 12.0))],
    "quadruped_slip": [(None, 1, (10.0, 25.0)), (BOUND, 2, (10.0, 25.0))],
}
# Of the branches that leave the first family where legs leave step: the bounds of what is conserved, and the most gaits of each.
LEAVING = {"quadruped_slip": ((9.9, 14.0), 30)}
MOVING = 8
# Of an animation: frames, dots per inch of its 6.4 inches, and bytes.
FRAMES, DPI, LARGEST = 44, 66, 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="by default those that have no picture or no digits yet")
    given = parser.parse_args().models
    os.environ["MPLBACKEND"] = "agg"
    from hyjax import models
    from hyjax.cli.process import start_jax

    cache = start_jax()
    for name in given or [name for name in models.names if name not in known() or not pictures_of(name)]:
        print(f"{name} ...", flush=True)
        model = models.load(name)
        about = motion(name, model) if name in ENDS else gaits(name, model, cache)
        if name in FAMILIES:
            gait_map(name, model, FOLDER / f"{name}_gaits.json")
        found = known() | {name: about}
        DIGITS.write_text(json.dumps({each: found[each] for each in sorted(found)}, indent=1) + "\n", encoding="utf-8")


def known() -> dict[str, Any]:
    """The digits that are stored, by model."""
    return json.loads(DIGITS.read_text(encoding="utf-8")) if DIGITS.exists() else {}


def pictures_of(name: str) -> list[Path]:
    """The picture of a model, if there is one."""
    return [path for path in (FOLDER / f"{name}.gif", FOLDER / f"{name}.png") if path.exists()]


def gaits(name: str, model: ModuleType, cache: str) -> dict[str, Any]:
    """The digits of a model's gaits; its picture is the first stable one, or the first."""
    import jax

    from hyjax.cli.arguments import parse_parameters
    from hyjax.cli.orbits import require_orbits
    from hyjax.cli.output import orbits_record
    from hyjax.plot import animate_orbit, orbit_figure

    params, values = parse_parameters(model, [], levels=True)
    orbits, _ = jax.device_get(require_orbits(model, params, values, model.sequence, 1, cache))
    record = orbits_record(name, model, values, orbits)
    kept = ("x0", "period", "multipliers", "stable")
    rows = [{key: orbit[key] for key in kept} for orbit in record["orbits"]]
    shown = next((k for k, row in enumerate(rows) if row["stable"]), 0)
    if hasattr(model, "outline"):
        label = f"gait {shown + 1} of {len(rows)}" if len(rows) > 1 else ""
        # An even number of a biped's steps repeats without a jump.
        steps = 2 if hasattr(model, "travel") or len(model.sequence) == 1 else 1
        seconds = min(max(steps * rows[shown]["period"] * time_scale(model, params), 2.0), 12.0)
        animation = animate_orbit(orbits[shown], model, strides=steps, fps=fps_for(seconds), label=label)
        save(animation, FOLDER / f"{name}.gif", fps_for(seconds))
    else:
        orbit_figure(orbits[shown], model).savefig(FOLDER / f"{name}.png", dpi=70)
    if hasattr(model, "constraints"):
        forces(model, params, FOLDER / f"{name}_forces.png")
    option = f" --orbit {shown + 1}" if shown else ""
    written = f"--animate {name}.gif" if hasattr(model, "outline") else f"--plot {name}.png"
    return {"command": f"hyjax gait {name}{option} {written}", "shown": shown, "gaits": rows}


def forces(model: ModuleType, params: Any, path: Path) -> None:
    """The picture of the torques, of the ground's force and of the friction that a walker with a control law needs."""
    import jax
    import jax.numpy as jnp
    import matplotlib.pyplot as plt

    gait = model.constraints.hybrid_zero_dynamics(model.strike, params.phase_stop, params)

    @jax.jit
    @jax.vmap
    def needed(theta, rate):
        x = jnp.concatenate(model.constraints.on_surface(theta, rate, params))
        return model.torques(0.0, x, params), model.ground_force(0.0, x, params)

    torques, force = needed(gait.phases, gait.rates)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    left.plot(gait.times, torques, label=["stance hip", "stance knee", "swing hip", "swing knee"])
    left.set(ylabel="torque (N m)")
    middle.plot(gait.times, force, label=["along the ground", "upward"])
    middle.set(ylabel="ground force (N)")
    right.plot(gait.times, abs(force[:, 0]) / force[:, 1])
    right.set(ylabel="friction ratio")
    for axes in (left, middle):
        axes.legend(fontsize="small")
    for axes in (left, middle, right):
        axes.set(xlabel="time (s)")
    figure.savefig(path, dpi=80)


def motion(name: str, model: ModuleType) -> dict[str, Any]:
    """The digits of a simulation from the model's start: where it ends."""
    import hyjax as hj
    from hyjax.plot import animate_trajectory

    params, end = model.Params(), ENDS[name]
    mode, x = model.start(params)
    run = hj.simulate(model.system, x, params, mode=mode, t1=end, max_jumps=100)
    if str(run.result) != "successful":
        sys.exit(f"{name}: the simulation ended with {run.result}.")
    fps = fps_for(min(max(end * time_scale(model, params), 2.0), 12.0))
    save(animate_trajectory(run, model, fps=fps), FOLDER / f"{name}.gif", fps)
    modes = model.system.modes[run.mode_names[-1]].coordinates
    return {
        "command": f"hyjax simulate {name} --t1 {end:g} --animate {name}.gif",
        "end": {"t": float(run.t), "mode": run.mode_names[-1], "coordinates": list(modes), "x": run.final.tolist()},
        "jumps": int(run.jumps),
    }


def gait_map(name: str, model: ModuleType, path: Path) -> None:
    """The parts of the page of the families of a model that conserves energy."""
    import dataclasses

    import jax.numpy as jnp

    import hyjax as hj

    params, branches = model.Params(), []
    for x, strides, bounds in FAMILIES[name]:
        step = dataclasses.replace(model.step, strides=strides)
        guess = model.guess(params) if x is None else jnp.array(x)
        orbit = hj.periodic_orbit(step, guess, params, conserved=model.conserved)
        branches.append(hj.continuation(orbit, stop=bounds, throw=False))
    if name in LEAVING:
        bounds, most = LEAVING[name]
        point = next(each for each in branches[0].special_points if each.kind == "branch-point")
        method = hj.PseudoArclength(step=0.05, max_step=0.4, max_points=most)
        # Those that keep three exchanges of legs are the bounds.
        ways = [k for k, kept in point.isotropies().items() if len(kept) < 3]
        branches += [hj.switch_branch(point, stop=bounds, daughter=k, method=method, throw=False) for k in ways]
    parts = hj.plot.gait_map(branches, model, gaits=MOVING).parts
    path.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    print(f"  {path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def time_scale(model: ModuleType, params) -> float:
    """Seconds of an animation for one unit of the model's time."""
    from hyjax._results.labels import units_of
    from hyjax.plot.scene import SECONDS

    return SECONDS.get(units_of(model, params).time, 1.0)


def fps_for(seconds: float) -> int:
    """So many frames per second that there are about `FRAMES`."""
    return max(5, min(20, math.floor(FRAMES / seconds)))


def save(animation, path: Path, fps: int) -> None:
    """Write a GIF, with fewer dots where it is larger than `LARGEST`."""
    from hyjax.plot.animation import gif_writer

    for dots in (DPI, 0.85 * DPI, 0.7 * DPI):
        animation.save(path, writer=gif_writer(fps), dpi=dots)
        print(f"  {path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
        if path.stat().st_size <= LARGEST:
            break


if __name__ == "__main__":
    main()
