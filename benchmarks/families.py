"""How long does a family of 500 gaits of a conservative model with multipliers take, in seconds of CPU?

The runs of the biped on springy legs, a stride of two passes and nine coordinates, over the energy, in steps so short that there
are 500. Seconds are those of CPU of the process, of all its threads, which the load of the machine changes little. Compilation
is the first call less the second.

    python benchmarks/families.py

A run is kept in `outputs/families.json`.
"""

import time

import jax
import jax.numpy as jnp

import hyjax as hj
from hyjax.models import biped_slip as biped

jax.config.update("jax_enable_x64", True)

ahead, rate = 0.698963928891899, -0.176108794808757
top = jnp.array([3.60468264543979, 0.876854765425460, 0, -ahead, ahead, rate, rate, 0, 0])
method = hj.PseudoArclength(step=2e-3, max_step=2e-3, max_points=500)

if __name__ == "__main__":
    run = hj.periodic_orbit(biped.step, top, biped.Params(), conserved=biped.energy)
    print(f"{'':<14}{'gaits':>6}{'energy':>10}{'to':>10}{'CPU, s':>10}{'ms each':>10}   the branch ends as", flush=True)
    for call in ("first call", "second call"):
        start = time.process_time()
        family = hj.continuation(run, stop=float(run.params.conserved) + 1, method=method, throw=False)
        jax.block_until_ready(family.multipliers)
        seconds, ends = time.process_time() - start, family.values[jnp.array([0, -1])]
        print(
            f"{call:<14}{len(family):>6}{ends[0]:>10.5f}{ends[1]:>10.5f}{seconds:>10.2f}{seconds / len(family) * 1e3:>10.2f}"
            f"   {family.result}",
            flush=True,
        )
