"""Proofs of random systems whose periodic orbits are known: several, repelling, nearly double, at kinks and jumps, of any unit.

Nothing that is false may be proved: that a box holds exactly one orbit, that it holds none, the bounds of the orbit and its
multiplier. Of what is true much is proved.
"""

import functools as ft
import itertools
import warnings
from collections import Counter
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from exact_sets import fractions
from random_maps import (
    distinct_roots,
    Family,
    FIELDS,
    fixed_points,
    GUARDS,
    Prover,
    RESETS,
    roots,
    slope,
    value,
    widened_by_rounding,
)

FAMILIES = {"resets": RESETS, "fields": FIELDS, "guards": GUARDS}


KINDS = {
    RESETS: ("one", "repelling", "two", "tangent", "kink", "jump"),
    FIELDS: ("one", "surface", "surface", "kink"),
    GUARDS: ("one", "repelling"),
}


def exactly(system):
    return {name: Fraction(each) for name, each in system.items()}


def drawn(family: Family, rng):
    """A system, the half width of a box and its centre in x, and of what kind it is; in units that are drawn too."""
    kind = str(rng.choice(KINDS[family]))
    far = lambda: rng.choice([-1, 1]) * rng.uniform(20, 30)
    p = dict.fromkeys(family.names, 0.0)
    p |= {"a": rng.uniform(-0.2, 0.2), "k": rng.uniform(-0.1, 0.1), "q": far()}
    p |= (
        {"v": far(), "j": rng.normal()}
        if family is not FIELDS
        else {"s": 5.0, "m": rng.uniform(-0.5, 0.5), "b": rng.uniform(-0.2, 0.2)}
    )
    at, width = rng.uniform(-0.4, 0.4), 1.0
    if family is GUARDS:
        p |= {"a": rng.uniform(0.3, 0.6), "l": rng.uniform(-1, 1)}
        # The kink is at the orbit to rounding, or near.
        bent = at + rng.choice([-1, 0, 1]) * 10.0 ** rng.uniform(-9, -1)
        p["r"] = (bent + p["a"]) / (1 - (p["k"] + p["l"]) * p["a"])
        width = 0.1
    if kind in ("one", "repelling", "surface"):
        p |= {
            "c1": rng.uniform(-0.9, 0.9) + (rng.choice([-2, 2]) if kind == "repelling" else 0),
            "c2": 0.3 * rng.normal(),
        }
        if family is not FIELDS:
            p["c3"] = 0.3 * rng.normal()
        if kind == "surface":
            p["s"] = rng.uniform(0.05, 0.95)
            # Some orbits are near the break where the surface is no longer met.
            p["s"] = rng.choice([p["s"], abs(p["m"] * at) * (1 + 10.0 ** rng.uniform(-6, -1))])
            width = 0.3
    elif kind in ("two", "tangent"):
        # x + A (x - x1)(x - x2) in terms of the state before the reset.
        apart = rng.uniform(0.05, 0.5) if kind == "two" else 10.0 ** rng.uniform(-9, -3)
        curved, width = rng.uniform(0.2, 1.5) * rng.choice([-1, 1]), apart
        gap = curved * apart * apart * rng.choice([-0.25, 0.25])
        zero, one = (float(line) for line in affine(family, p))
        to_x = np.polynomial.Polynomial([-zero / one, 1 / one])
        whole = to_x + curved * (to_x - at) ** 2 + gap
        p["c0"], p["c1"], p["c2"] = whole.coef
        at += rng.choice([0.0, 0.5, -0.5]) * apart
    elif kind == "kink":
        zero, one = (float(line) for line in affine(family, p))
        low, high = rng.uniform(-1, 3, 2) * rng.choice([-1, 1], 2)
        gap = 10.0 ** rng.uniform(-7, -1) * rng.choice([-1, 1])
        p["q"] = zero + one * at
        width = abs(gap)
        if family is RESETS:
            p |= {"c1": (low + high) / 2, "e": (high - low) / 2}
            p["c0"] = at + gap - p["c1"] * p["q"]
        else:
            p |= {"c1": low, "e": high - low}
            p["c0"] = at + gap - high * p["q"]
    else:
        zero, one = (float(line) for line in affine(family, p))
        p |= {"c1": rng.uniform(-0.9, 0.9), "j": rng.choice([-1, 1]) * 10.0 ** rng.uniform(-6, 0)}
        p["v"] = zero + one * at
        p["c0"] = at - p["c1"] * p["v"] - rng.uniform(-0.2, 1.2) * p["j"]
        width = abs(p["j"])
    if kind in ("one", "repelling", "surface"):
        # So that there is an orbit through the point.
        p["c0"] = 0.0
        breaks, polynomials = family.pieces(exactly(p))
        x = Fraction(at)
        p["c0"] = float(x - value(polynomials[sum(x > each for each in breaks)], x))
    reach = width * 10.0 ** rng.uniform(*((-3, 0.7) if kind not in ("one", "repelling") else (-9, 0)))
    centre = at + rng.choice([0.0, 0.0, 0.3, -0.9, 1.2]) * reach * rng.uniform(0, 1)
    unit = 10.0 ** rng.choice([0.0, rng.uniform(-6, 6)])
    powers = dict(a=1, b=1, k=-1, m=-1, l=-1, r=1, c0=1, c2=-1, c3=-2, q=1, v=1, j=1)
    return {name: each * unit ** powers.get(name, 0) for name, each in p.items()}, centre * unit, reach * unit, kind


def affine(family, p):
    """x before the reset in terms of x after the last one."""
    same = exactly(p) | dict.fromkeys(("c0", "c2", "c3", "e", "j"), Fraction(0)) | {"c1": Fraction(1)}
    (line, *_) = family.pieces(
        {name: same[name] for name in p} | {"q": Fraction(10**9)} | ({"v": Fraction(10**9)} if "v" in p else {})
    )[1]
    return line[0], line[1]


def before(family, p, x):
    """y at the fixed point is half of x before the reset."""
    same = p | dict.fromkeys(("c0", "c2", "c3", "e", "j"), Fraction(0)) | {"c1": Fraction(1)}
    breaks, polynomials = family.pieces({name: same[name] for name in p})
    return value(polynomials[sum(x > each for each in breaks)], x)


@ft.cache
def prover(name):
    with warnings.catch_warnings():
        # That derivatives lack the jumps: the prover is to see them.
        warnings.simplefilter("ignore")
        return Prover(FAMILIES[name], 64)


def judged(name, count, seed):
    """How often each kind is proved to have one orbit in its box, or none, or not proved; and what was false."""
    family, rng = FAMILIES[name], np.random.default_rng(seed)
    draws = [drawn(family, rng) for _ in range(count)]
    centres, reaches = [], []
    for system, centre, reach, _ in draws:
        centres.append((centre, float(before(family, exactly(system), Fraction(centre)) / 2)))
        # So wide in y, of which the coordinate is half, that the fixed points of x in the box are those of the map.
        reaches.append((reach, 10 * reach))
    found = prover(name)([each[0] for each in draws], np.array(centres), np.array(reaches))
    # As `Boxes.numbers` does, of the part of the box that holds the fixed point.
    parts = [part for _, part, reasons in found if not reasons]
    held = [i for i, (_, _, reasons) in enumerate(found) if not reasons]
    tiny = dict(zip(held, prover(name).over([draws[i][0] for i in held], np.array(centres)[held], parts), strict=True))
    outcomes, false = Counter(), []
    for i, ((system, centre, _, kind), middle, reach, (over, part, reasons)) in enumerate(
        zip(draws, centres, reaches, found, strict=True)
    ):
        p = exactly(system)
        pieces = family.pieces(p)
        wide = fractions(widened_by_rounding(np.array(reach)))
        low, high = Fraction(centre) - wide[0], Fraction(centre) + wide[0]
        inside = [
            (a, b, each) for a, b, each in fixed_points(pieces, low, high)
            if abs(before(family, p, (a + b) / 2) / 2 - Fraction(middle[1])) <= 2 * wide[1]
        ]  # fmt: skip
        if reasons:
            none = "no periodic orbit" in reasons[0]
            outcomes[kind, "none" if none else "not proved"] += 1
            if none and inside:
                false.append((kind, "there is an orbit", system, middle, reach))
            continue
        outcomes[kind, "one"] += 1
        if len(inside) != 1:
            false.append((kind, f"there are {len(inside)} orbits", system, middle, reach))
            continue
        ((a, b, polynomial),) = inside
        x = (a + b) / 2 - Fraction(centre)
        if abs(x - Fraction(part[0][0])) > Fraction(part[1][0]) + Fraction(1, 10**35):
            false.append((kind, "the orbit is not within its bounds", system, middle, reach))
        sides = [polynomial]
        for at, (below, above) in zip(pieces[0], itertools.pairwise(pieces[1]), strict=True):
            if a <= at <= b:
                sides = [below, above]
        multipliers = [value(slope(each), (a + b) / 2) for each in sides]
        near, slack = tiny[i], Fraction(1, 10**30)
        for image in (over, near):
            center, spread = Fraction(float(image.jacobian.center[0, 0])), Fraction(float(image.jacobian.spread[0, 0]))
            if any(abs(each - center) > spread + slack for each in multipliers):
                false.append((kind, "the multiplier is not within its bounds", system, middle, reach))
        # Multipliers are given where the return map is smooth.
        outcomes["multipliers", bool(near.smooth)] += 1
        if near.smooth and len(set(multipliers)) > 1:
            false.append((kind, "there is no multiplier", system, middle, reach))
    return outcomes, false


def test_roots_are_counted():
    """Of (x - 1)^2 (x - 2), of a pair that is not real, of a line; and where they are."""
    double = [Fraction(c) for c in (-2, 5, -4, 1)]
    assert (
        distinct_roots(double, Fraction(0), Fraction(3)) == 2
        and distinct_roots(double, Fraction(3, 2), Fraction(3)) == 1
    )
    assert distinct_roots([Fraction(1), Fraction(0), Fraction(1)], Fraction(-9), Fraction(9)) == 0
    assert distinct_roots([Fraction(1), Fraction(2), Fraction(0)], Fraction(-9), Fraction(9)) == 1
    found = roots([Fraction(-2), Fraction(0), Fraction(1)], Fraction(-5), Fraction(5), Fraction(1, 10**9))
    assert np.allclose(sorted(float(a) for a, _ in found), [-np.sqrt(2), np.sqrt(2)], atol=1e-8, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_return_maps_in_closed_form_are_those_of_small_steps(name):
    """At points of random systems: rates are constant but for one switch, at which Euler's steps err by their length."""
    family, rng, steps = FAMILIES[name], np.random.default_rng(5), 20_000
    for _ in range(12):
        p, centre, reach, _ = drawn(family, rng)
        start = centre + reach * rng.uniform(-1, 1)
        breaks, polynomials = family.pieces(exactly(p))
        true = float(value(polynomials[sum(Fraction(start) > each for each in breaks)], Fraction(start)))
        x, t, h = start, 0.0, 3.0 / steps
        for _ in range(steps):
            rate = p["a"] if family is not FIELDS else p["a"] + p["b"] * np.sign(t - p["s"] - p["m"] * x)
            turned = p.get("l", 0.0) * (x > p.get("r", 0.0))
            height = 1 + p["k"] * x + p.get("l", 0.0) * max(x, p.get("r", 0.0)) - t
            left = height / (1 - (p["k"] + turned) * rate)
            x, t = x + rate * min(h, left), t + min(h, left)
            if left <= h:
                break
        after = float(family.jump(jnp.asarray(x), {each: jnp.asarray(size) for each, size in p.items()}))
        unit = 1 / abs(p["k"])
        # Near a jump the wrong side may be taken.
        assert abs(after - true) < 1e-3 * unit or ("v" in p and abs(x - p["v"]) < 1e-3 * unit)


@pytest.mark.medium
@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_false_is_proved_of_random_systems(name):
    outcomes, false = judged(name, 320, 0)
    assert not false, (len(false), false[:3])
    # A choice that is undecided over a box is refused, whatever the box holds.
    for kind in {kind for kind, _ in outcomes} - {"jump", "surface", "multipliers"}:
        assert outcomes[kind, "one"] + outcomes[kind, "none"] > 5, outcomes
    # Where kinks are near, some orbits are proved at them, and others beside them.
    withheld, given = outcomes["multipliers", False], outcomes["multipliers", True]
    assert given > 40 and (name != "guards" or withheld > 10), outcomes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("resets", 4500), ("fields", 4500), ("guards", 1000)])
def test_nothing_false_is_proved_of_ten_thousand_random_systems(name, count):
    outcomes, false = judged(name, count, 1)
    assert not false, (len(false), false[:3])
    assert sum(outcomes[key] for key in outcomes if key[1] in ("one", "none")) > 0.3 * count, outcomes
