"""A hybrid system whose stride is a quadratic map, for tests of sweeps; as a script, a process that sweeps it.

The state $x$ rests while a clock runs from 0 to 1; then $x \\mapsto c + a x (1 - x / b)$. So orbits, multipliers, folds,
attractors and basins are known in closed form, and a stride costs nothing.
"""

import pathlib
import signal
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from systems import CLOCK

import hyjax as hj


class Params(eqx.Module):
    a: Array = eqx.field(converter=jnp.asarray, metadata={"unit": "1/stride"})
    b: Array = eqx.field(default=1.0, converter=jnp.asarray)
    c: Array = eqx.field(default=0.0, converter=jnp.asarray)


def run_clock(t, x, p):
    return jnp.stack([jnp.zeros_like(x[0]), jnp.ones_like(x[1])])


def time_left(t, x, p):
    return 1 - x[1]


def quadratic(t, x, p):
    return jnp.stack([p.c + p.a * x[0] * (1 - x[0] / p.b), jnp.zeros_like(x[1])])


system = hj.HybridSystem(
    modes={"wait": hj.Mode(run_clock, ("x", "clock"))},
    transitions=(hj.Transition("wait", "wait", guard=time_left, reset=quadratic),),
)
sequence = ("wait",)
integrator = CLOCK
step = hj.ReturnMap(system, sequence=sequence, integrator=integrator)
a_and_c = lambda p: (p.a, p.c)
values = np.linspace(1.5, 3.7, 23), np.linspace(-0.12, 0.2, 11)


def orbit() -> hj.PeriodicOrbit:
    """The orbit at a = 2.5, b = 1, c = 0, which is known: x = 0.6, with the multiplier -0.5. So nothing is compiled for it."""
    x, by_x = jnp.array([0.6, 0.0]), jnp.diag(jnp.array([-0.5, 0.0]))
    return hj.PeriodicOrbit(
        x=x, period=jnp.array(1.0), multipliers=jnp.diag(by_x).astype(complex), return_jacobian=by_x, residual=jnp.array(0.0),
        guard_rates=jnp.array([-1.0]), nodes=x[None], start_times=jnp.zeros(1),
        before=(end := jnp.array([[0.6, 1.0]])), arc_ends=(end,), jump_times=jnp.ones((1, 1)),
        iterations=jnp.array(1), distance=jnp.array(0.0), result=hj.RESULTS.successful,
        params=Params(2.5), system=system, sequence=sequence, strides=1, integrator=integrator,
    )  # fmt: skip


def record(orbit):
    return {"twice": 2 * orbit.x, "slope": orbit.return_jacobian[0, 0]}


def swept(start, out=None, **options):
    return hj.sweep(start, where=a_and_c, values=values, record=record, out=out, progress=False, **options)


def child(out: pathlib.Path, kill_after: int) -> None:
    """Sweep into a store; once so many chunks are whole, die in the midst of the next."""
    from hyjax._testing import Store

    write, written = Store.write, []

    def counted(self, i, data):
        if len(written) == kill_after:
            write(self, i, {name: data[name] for name in ("x", "period")})
            signal.raise_signal(signal.SIGKILL)
        write(self, i, data)
        written.append(i)

    Store.write = counted
    swept(orbit(), out, chunk=24)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    out, kill_after = sys.argv[1:]
    child(pathlib.Path(out), int(kill_after))
