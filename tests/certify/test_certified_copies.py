"""Elementary functions with rigorous radii, as a compiler may evaluate them: each use of a number may see another copy of it.

A value and its radius are two expressions, and `hyjax.certify.rounding` states what holds for any evaluation of the two.
"""

import numpy as np
import pytest
from elementary_cases import apart, exacts, FUNCTIONS, hard, missed, ordinary, thresholds
from enclosures import misses
from float_copies import COPIES, evaluated

from hyjax._testing import elementary


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_evaluation_of_the_program(name):
    """Each use of each intermediate number sees another copy, rounded up or down, with fused products or without.

    Directed rounding has up to twice the error of rounding to nearest, and the radii are three times what is proved for that: two
    thirds of a radius suffice, unless it is that of a threshold.
    """
    rng = np.random.default_rng(6)
    a = np.concatenate([ordinary(name, 1500, rng), rng.choice(hard(rng), 1500)])
    pairs = apart(evaluated, FUNCTIONS[name], np.broadcast_to(a, (COPIES, a.size)), rng)
    for i in range(COPIES):
        some = [(value[i], np.where(radius[i] < 0.5, radius[i] * 2 / 3, radius[i])) for value, radius in pairs]
        assert not missed(name, a, some)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_copies_of_the_argument(name):
    """Within 2^-39 of a number, relative to it if it is small or the function is one of magnitudes: as `rounding` states."""
    rng = np.random.default_rng(7)
    at = thresholds(rng)
    ends = [
        1e6,
        1.1e6,
        1.2e6,
        5e-306,
        1e-305,
        2e-306,
        elementary._LEAST,
        elementary._LEAST * 2.0**-30,
        *elementary._THRESHOLDS,
    ]
    few = np.concatenate(
        [ends, np.sin(np.arctan(elementary._THRESHOLDS)), np.cos(2 * np.arctan(elementary._THRESHOLDS))]
    )
    at = np.concatenate([at, at + 1e-12, np.tile(few, 30), ordinary(name, 500, rng)])
    magnitude = name in {"log", "sqrt", "reciprocal"}
    relative = 2.0**-39 / (1.0 if magnitude else np.maximum(1.0, np.abs(at)))
    copies = at * (1 + rng.uniform(-1, 1, (COPIES, at.size)) * relative)
    with np.errstate(all="ignore"):
        allowed = 32 * relative * sensitivity(name, at)
    for i, (values, radii) in enumerate(apart(evaluated, FUNCTIONS[name], copies, rng)):
        keep = np.isfinite(allowed[i])
        for value, radius in zip(values, radii, strict=True):
            assert not misses(exacts(name)[i], at[keep], value[keep], radius[keep] + allowed[i][keep]).size


def sensitivity(name, a):
    """|a f'(a)|, not finite where the test is not made."""
    size = np.abs(a)
    if name == "sin cos":
        return size * np.maximum(np.abs([np.cos(a), np.sin(a)]), 1e-10)
    found = {
        "exp": size * np.exp(a), "log": 1 + 0 * a, "sqrt": 0.5 * np.sqrt(a), "reciprocal": 1 / size, "atan": size / (1 + a * a),
    }  # fmt: skip
    return found[name][None]
