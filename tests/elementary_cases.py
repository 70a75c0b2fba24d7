"""The elementary functions with rigorous radii, and arguments that are ordinary or hard for them."""

import numpy as np
from enclosures import EXACT, misses

from hyjax._testing import elementary, outward_rounding as rounding

HALF_PI, LN2, INF, NAN = np.pi / 2, np.log(2), np.inf, np.nan
SUBNORMAL = [5e-324, 1e-310, 2.2250738585072009e-308, 2.2250738585072014e-308]


def apart(function, *arguments):
    """A pair of results for each exact function."""
    results = function(*arguments)
    return list(zip(results[::2], results[1::2], strict=True))


# Those of `elementary`, by the names of their exact values.
PLAIN = ("exp", "log", "sqrt", "reciprocal", "atan")
FUNCTIONS = {"sin cos": elementary.sin_cos, **{name: getattr(elementary, name) for name in PLAIN}}
POSITIVE = {"log", "sqrt"}
# Magnitudes of the arguments with a finite relative radius, as powers of ten; and moderate ones, uniform.
MAGNITUDES = {"sin cos": (-300, 6), "exp": (-300, 2.8)}
MODERATE = {"sin cos": 40, "exp": 40}


def exacts(name):
    return [EXACT[each] for each in (name.split() if name == "sin cos" else [name])]


def signed(name, a, rng):
    return a if name in POSITIVE else a * rng.choice([-1.0, 1.0], a.shape)


def ordinary(name, count, rng):
    """Half of them log-uniform, half uniform, where the relative radius is finite."""
    low, high = MAGNITUDES.get(name, (-299, 299))
    wide = 10 ** rng.uniform(low, high, count // 2)
    return signed(name, np.concatenate([wide, rng.uniform(0, MODERATE.get(name, 8), count - count // 2)]), rng)


def thresholds(rng):
    """Arguments at which a case of some function changes, and zeros of sine and cosine."""
    k = np.concatenate([np.arange(-24, 25), rng.integers(-700_000, 700_000, 100)])
    octaves = np.concatenate([np.arange(-3, 4), rng.integers(-990, 990, 40)])
    sixteenths = np.arange(1, 8, 2) * np.pi / 16
    return np.concatenate(
        [k * HALF_PI, (k + 0.5 - 1 / 64) * HALF_PI, (k[:49] + 0.5 - 1 / 64) * LN2, 355 / 113 * np.arange(1, 60)]
        + [
            elementary._LEAST * 2.0**octaves,
            2.0**octaves,
            np.tan(sixteenths),
            np.sin(sixteenths),
            np.cos(2 * sixteenths),
        ]
        + [
            [
                1.0,
                22.0,
                44.0,
                708.0,
                708.5,
                709.0,
                709.78,
                745.0,
                1e6,
                1.2e6,
                1e-305,
                5e-306,
                1e-300,
                1e300,
                0.55,
                0.5493,
            ]
        ]
    )


def hard(rng):
    """Neighbours of thresholds, by a unit of the last place and by 1e-12 to 1e-9; the ends of the range of floats."""
    at = thresholds(rng)
    near = [at + n * np.spacing(at) for n in range(-3, 4)] + [
        at + each * d for each in (-1, 1) for d in (1e-12, 1e-11, 1e-9)
    ]
    largest = rounding.LARGEST
    # The float whose distance from a multiple of pi/2 is the smallest (Muller, 2016).
    ends = [0.0, *SUBNORMAL, 6381956970095103 * 2.0**797, largest, largest / 2, 1e308, 2.0**1023, INF]
    every = np.concatenate([*near, ends, [-each for each in ends]])
    return np.concatenate([every, -every, [NAN]])


def everywhere(name, count, rng):
    """Ordinary arguments, those of all magnitudes, and the hard ones."""
    wide = signed(name, 10 ** rng.uniform(-300, 300, count // 5), rng)
    special = hard(rng)
    return np.concatenate([special, wide, ordinary(name, count - wide.size - special.size, rng)])


def missed(name, a, pairs, divisor=1.0):
    """The finite arguments whose enclosures, their radii divided, do not hold the exact value; none is NaN."""
    found = []
    for exact, (value, radius) in zip(exacts(name), pairs, strict=True):
        value, radius, keep = np.asarray(value), np.asarray(radius), np.isfinite(a)
        assert np.all(np.isfinite(value)) and np.all(radius >= 0)
        found += [a[keep][i] for i in misses(exact, a[keep], value[keep], radius[keep] / divisor)]
    return found
