"""The records of this folder, and the systems that they are of. Each record is a simulation with noise; write them with

    python examples/data/records.py

`compass_markers.csv`: markers of a compass gait at the hip and at both feet, from the side, in m, 20 times a second with errors
of 3 mm, and the times of its heel strikes with errors of 0.5 ms. The camera is level: the walker goes down its slope.

`buck_waveform.csv`: output voltage and coil current of a buck converter near its orbit, every 0.03 ms with errors of 10 mV and
2 mA, and the times at which it switches, with errors of 0.5 us.
"""

import csv
import pathlib

import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax.models import buck_converter as buck, compass_gait as compass

HERE = pathlib.Path(__file__).parent


# The compass gait in a laboratory: where its stance foot is, and which of the feet that is, change at heel strikes.


def swing(t, x, params):
    return compass.swing(t, x[:4], params)


def heel_strike(t, x, params):
    stride = params.leg_length * compass.travel("swing", x[:4], params)
    return jnp.concatenate([compass.heel_strike(t, x[:4], params), x[4:6] + stride, -x[6:]])


def on_legs(function):
    """A function of the legs' angles and rates as one of the whole state."""
    return lambda t, x, params: function(t, x[:4], params)


walker = hj.HybridSystem(
    modes={
        "swing": hj.Mode(
            swing, compass.coordinates, domain=on_legs(compass.hip_height), held=("foot_x", "foot_y", "side"),
            units=("rad", "rad", "rad/s", "rad/s", "m", "m", "1"),
        )
    },
    transitions=(
        hj.Transition(
            "swing", "swing", guard=on_legs(compass.foot_height), reset=heel_strike, armed=on_legs(compass.foot_ahead)
        ),
    ),
    time_unit="s",
)  # fmt: skip


def marker(part: str, axis: int):
    """The place of a marker at `part`: the hip, or the left or right foot; `axis` 0 is horizontal, 1 vertical."""

    def place(t, x, params):
        legs, foot = compass.outline("swing", x[:4], params), x[4:6]
        stance_is_left = x[6] > 0
        hip, other = (foot + params.leg_length * end for end in legs["swing leg"])
        points = {
            "hip": hip,
            "left": jnp.where(stance_is_left, foot, other),
            "right": jnp.where(stance_is_left, other, foot),
        }
        return points[part][axis]

    return place


markers = {f"{part}_{name}": marker(part, k) for part in ("hip", "left", "right") for k, name in enumerate("xy")}
marker_noise = {"time": 5e-4} | dict.fromkeys(markers, 3e-3)
# Slope, mass ratio, ratio of lengths, gravity, leg length.
walking = compass.Params(*map(jnp.array, (0.05, 1.5, 0.8, 9.81, 0.9)))


def after_strike(s, params):
    """The state just after a heel strike, from the stance leg's angle and both rates. The left foot stands, at the origin."""
    angle, *rates = s
    return jnp.stack([angle, -angle - 2 * params.slope, *rates, 0 * angle, 0 * angle, 1 + 0 * angle])


# The buck converter, with coil current and output voltage beside those of its orbit.

# Input voltage, resistance, inductance, capacitance.
circuit = buck.Params(*map(jnp.array, (22.0, 20.0, 18.0, 0.05)))
waveform = {"voltage": lambda t, x, params: x[0], "current": lambda t, x, params: x[1]}
waveform_noise = {"time": 5e-4, "voltage": 1e-2, "current": 2e-3}


# Where the switch turns: at the end of the ramp it may stay as it is.
switchings = ("off->on", "on->off", "on->off again", "off again->on")


def at_the_foot(s, params):
    """The state at the foot of the ramp, from voltage and current."""
    voltage, current = s
    return jnp.stack([voltage, current, params.ramp_low])


def record(path, system, x0, params, mode, t1, interval, observed, noise, units, seed, events=None):
    """Write samples and events with noise, in the order of time."""
    times = np.arange(interval, t1, interval)
    run = hj.simulate(system, x0, params, mode=mode, t1=t1, times=jnp.asarray(times), max_jumps=100)
    assert run.samples is not None
    draw = np.random.default_rng(seed)
    rows = []
    for t, x in zip(times, run.samples.x, strict=True):
        seen = [float(each(t, x, params)) + noise[name] * draw.standard_normal() for name, each in observed.items()]
        rows.append((t, "", *(f"{value:.5f}" for value in seen)))
    for event in run.events:
        name = f"{event.source}->{event.target}"
        if events is not None and name not in events:
            continue
        late = event.t + noise["time"] * draw.standard_normal()
        rows.append((late, name, *([""] * len(observed))))
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        heads = [f"{name} ({unit})" for name, unit in zip(["time", *observed], units, strict=True)]
        table.writerow([heads[0], "event", *heads[1:]])
        table.writerows((f"{t:.5f}", event, *seen) for t, event, *seen in sorted(rows))


if __name__ == "__main__":
    start = after_strike(jnp.array([0.24, -1.2, -0.2]), walking)
    meters = ("s", *["m"] * len(markers))
    record(HERE / "compass_markers.csv", walker, start, walking, "swing", 2.6, 0.05, markers, marker_noise, meters, 4)
    start, units = at_the_foot(jnp.array([12.0, 0.7]), circuit), ("ms", "V", "A")
    path = HERE / "buck_waveform.csv"
    record(
        path, buck.system, start, circuit, "off", 2.1, 0.03, waveform, waveform_noise, units, 2, switchings
    )  # fmt: skip
