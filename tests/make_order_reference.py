"""Print the record `A_orders` of `reference.json`: partial derivatives of the rimless wheel's stride and gait, to order three.

The wheel conserves an energy between two collisions: so its rate is a square root, the time of a stride an integral, and both,
at the fixed point of the rate, are the gait's numbers. `mpmath` integrates and differentiates these forms; no flow, event or
implicit function is in them. A partial derivative goes by its orders in each input, such as "1,0,2,0". A minute:

    python tests/make_order_reference.py
"""

import itertools
import json

from mpmath import cos, diff, mp, mpf, nstr, pi, quad, sin, sqrt

mp.dps = 30
SPOKES = 6


def kept(ratio):
    """How much of the rate a collision leaves: mu."""
    return 1 + ratio * (cos(2 * pi / SPOKES) - 1)


def speed(theta, theta_0, rate_0, slope, ratio):
    """The rate at an angle, by conservation of energy."""
    return sqrt(rate_0**2 + 2 * ratio * (cos(theta_0 + slope) - cos(theta + slope)))


def after(theta_0, rate_0, slope, ratio):
    """The rate after the collision."""
    return kept(ratio) * speed(pi / SPOKES, theta_0, rate_0, slope, ratio)


def duration(theta_0, rate_0, slope, ratio):
    return quad(lambda theta: 1 / speed(theta, theta_0, rate_0, slope, ratio), [theta_0, 0, pi / SPOKES])


def rate(slope, ratio):
    """Of the gait, after the collision (Bhounsule 2014, eq. 19)."""
    mu = kept(ratio)
    return sqrt(4 * mu**2 * ratio * sin(pi / SPOKES) * sin(slope) / (1 - mu**2))


def period(slope, ratio):
    return duration(-pi / SPOKES, rate(slope, ratio), slope, ratio)


def by_angle(slope, ratio):
    """How the rate after the next collision depends on the angle after this one, on a section that the flow crosses."""
    return -(kept(ratio) ** 2) * ratio * sin(slope - pi / SPOKES) / rate(slope, ratio)


def multiplier(slope, ratio):
    return kept(ratio) ** 2


CASES = {
    "stride": (("-0.45", "0.7", "0.27", "0.8"), {"rate": after, "time": duration}),
    "gait": (("0.27", "0.8"), {"rate": rate, "period": period, "by_angle": by_angle, "multiplier": multiplier}),
}


def partials(f, q):
    out = {}
    for order in range(4):
        for axes in itertools.combinations_with_replacement(range(len(q)), order):
            times = tuple(axes.count(k) for k in range(len(q)))
            out[",".join(map(str, times))] = nstr(diff(f, q, times) if order else f(*q), 20)
    return out


if __name__ == "__main__":
    record = {}
    for name, (at, functions) in CASES.items():
        q = tuple(map(mpf, at))
        record[name] = {"at": at} | {each: partials(f, q) for each, f in functions.items()}
    print(json.dumps(record, indent=1))
