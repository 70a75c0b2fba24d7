"""Proofs of attraction for random systems of which all orbits are known: one that attracts a set, or several, none, one that
attracts only a part of it, a cycle of two; near kinks, jumps, double roots, in any unit.

Nothing false may be proved: that a set is mapped into its interior, that every orbit from it converges to one limit cycle, that
cells of the basin lead to the set. Of what is true much is proved.
"""

import functools as ft
import warnings
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from random_attractors import attracting, Attraction, converges, FACETS, Known, mapped_inside, Place, proved_basin
from random_maps import Family, fixed_points, GUARDS, value

from hyjax._testing import Disturbance, from_supports

ONE = (
    "one",
    "one",
    "one",
    "repelling",
    "tangent",
    "part",
    "part",
    "none",
    "kink",
    "kink",
    "guard",
    "guard",
    "jump",
    "jump",
)
# Of several orbits: a cycle of two about a fixed point, two fixed points beside one that repels, a cycle or chaos of a map that
# is bent, smoothly, and at a kink of the reset.
SEVERAL = ("cycle", "two", "hump", "tent")
KINDS = (*ONE, *SEVERAL, *SEVERAL)
Draw = tuple[dict[str, float], Place, float, str]


def far(rng):
    return rng.choice([-1, 1]) * rng.uniform(20, 30)


def about(at, coefficients):
    """A polynomial of the distance from a point."""
    return np.polynomial.Polynomial(coefficients)(np.polynomial.Polynomial([-at, 1.0]))


def wanted(kind: str, at: float, rng):
    """A smooth return map with a fixed point, or nearly, at a point; and the size of its neighbourhood that matters."""
    width, curved, sign = rng.uniform(0.05, 0.5), rng.uniform(0.2, 1.5), rng.choice([-1, 1])
    if kind == "cycle":
        slope = rng.uniform(-1.6, -1.05)
        return about(at, [at, slope, 0.0, -(1 + slope) / width**2]), width
    if kind == "two":
        strength = rng.uniform(0.1, 0.9)
        return about(at, [at, 1 + strength, 0.0, -strength / width**2]), width
    if kind == "hump":
        return about(at, [at + sign * width * rng.uniform(0.78, 1.6), rng.uniform(-0.2, 0.2), -sign / width]), width
    if kind == "tangent":
        gap = 10.0 ** rng.uniform(-12, -2) * rng.choice([-1, 0, 1])
        return about(at, [at + gap, 1.0, sign * curved]), max(np.sqrt(abs(gap)), 1e-3)
    if kind == "part":
        slope = rng.uniform(-0.8, 0.8)
        return about(at, [at, slope, sign * (1 - slope) / width]), width
    slope = rng.uniform(-0.9, 0.9) if kind != "repelling" else rng.choice([-1, 1]) * rng.uniform(1.02, 3)
    return about(at, [at, slope, 0.3 * rng.normal(), 0.3 * rng.normal()]), 1.0


def farthest(known, place, radius):
    """How far the image of a regular set reaches, in units of its radius: of points at the boundary, in floats."""
    directions = attracting._around(FACETS)
    z0, z1 = from_supports(directions, np.full(FACETS, radius)).divided(16 * FACETS).T
    x, before = known.of_floats(place.of_floats(z0, z1))
    aside = (z1 + (before / 2 - float(place.y)) / (2 * float(place.unit))) / 2
    ends = np.stack([(x - float(place.x)) / float(place.unit) - float(place.shear) * aside, aside])
    return np.max(directions @ ends) / radius


def drawn(family: Family, rng, kind: str | None = None) -> Draw:
    """A system, the coordinates of a section, the size of a set there, and of what kind it is, by default any."""
    kind = kind or str(rng.choice(KINDS if family is GUARDS else ("one", "repelling", "part", "surface")))
    p = dict.fromkeys(family.names, 0.0) | {"a": rng.uniform(-0.2, 0.2), "k": rng.uniform(-0.1, 0.1), "q": far(rng)}
    p |= {"v": far(rng), "j": rng.normal(), "r": 30.0} if family is GUARDS else {"s": 5.0, "m": 0.3, "b": 0.1}
    at, reach = rng.uniform(-0.4, 0.4), 10.0 ** rng.uniform(-2, 0.5)
    if kind == "surface":
        p |= {"s": rng.uniform(0.05, 0.95), "m": rng.uniform(-0.5, 0.5), "b": rng.uniform(-0.2, 0.2)}
        p |= {"c1": rng.uniform(-0.8, 0.8), "c2": 0.2 * rng.normal()}
        width = 0.3
    elif kind == "guard":
        p |= {
            "a": rng.uniform(0.3, 0.6),
            "l": rng.uniform(-1, 1),
            "c1": rng.uniform(-1.2, 1.2),
            "c2": 0.2 * rng.normal(),
        }
        bent = at + rng.choice([-1, 0, 1]) * 10.0 ** rng.uniform(-7, -1)
        p["r"] = (bent + p["a"]) / (1 - (p["k"] + p["l"]) * p["a"])
        width = 0.3
    else:
        # Of x before the reset in terms of x after it.
        (zero, one), *_ = (tuple(map(float, line)) for line in Known(family, p).lines)
        if kind == "kink":
            low, high = rng.uniform(-1.3, 1.3, 2)
            width = 10.0 ** rng.uniform(-5, -1)
            p |= {"q": zero + one * at, "c1": (low + high) / 2, "e": (high - low) / 2}
            p["c0"] = at + rng.choice([-1, 0, 1]) * width - p["c1"] * p["q"]
        elif kind == "jump":
            p |= {"c1": rng.uniform(-0.9, 0.9), "j": rng.choice([-1, 1]) * 10.0 ** rng.uniform(-6, 0)}
            p["v"] = zero + one * at
            p["c0"] = at - p["c1"] * p["v"] - rng.uniform(-0.2, 1.2) * p["j"]
            width = abs(p["j"])
        elif kind == "tent":
            width, sign = rng.uniform(0.05, 0.5), rng.choice([-1, 1])
            gentle, steep = rng.uniform(0.1, 1.1), rng.uniform(-2.2, -1.05)
            p |= {"q": zero + one * at, "c1": (gentle + steep) / (2 * one), "e": sign * (steep - gentle) / (2 * one)}
            p["c0"] = at + sign * width - p["c1"] * p["q"]
        else:
            wish, width = wanted(kind, at, rng)
            coefficients = wish(np.polynomial.Polynomial([-zero / one, 1 / one])).coef
            p |= {f"c{i}": float(each) for i, each in enumerate(coefficients) if f"c{i}" in p}
    if kind in ("surface", "guard"):
        p["c0"] = float(at - value(Known(family, p).polynomials[Known(family, p).piece(Fraction(at))], Fraction(at)))
    unit, zoom = 10.0 ** rng.choice([0.0, rng.uniform(-6, 6)]), 10.0 ** rng.uniform(-1, 1)
    shear = rng.choice([0.0, rng.uniform(-0.3, 0.3)])
    powers = dict(a=1, b=1, k=-1, m=-1, l=-1, r=1, c0=1, c2=-1, c3=-2, q=1, v=1, j=1)
    system = {name: float(each * unit ** powers.get(name, 0)) for name, each in p.items()}
    known = Known(family, system)

    def placed(centre):
        """y is at rest where x is."""
        return Place((centre, float(known.before(Fraction(centre)) / 2)), unit * zoom, shear)

    if kind in SEVERAL and rng.uniform() < 0.9:
        # The size that is mapped farthest inside, if one is.
        place = placed(float(at * unit))
        ratio, reach = min((farthest(known, place, each / zoom), each) for each in width * np.linspace(0.8, 2.4, 9))
        return (system, place, reach / zoom, kind) if ratio < 0.85 else drawn(family, rng, kind)
    reach *= width * {"kink": 10.0, "guard": 0.03, "jump": 3.0}.get(kind, 1.0)
    aside = rng.choice([0.0, 0.0, 0.2, -0.5]) * rng.uniform(0, 1) if kind != "none" else rng.choice([-4, 4])
    centre = at + aside * reach + rng.choice([0.0, width, -width]) * (kind in ("two", "part"))
    return system, placed(float(centre * unit)), reach / zoom, kind


@ft.cache
def built(bound=0.0):
    with warnings.catch_warnings():
        # That derivatives lack the jumps: the proofs are to see them.
        warnings.simplefilter("ignore")
        return Attraction(GUARDS, Disturbance(bound, channels=("x",)) if bound else None)


@pytest.fixture
def attraction(monkeypatch):
    def of(bound=0.0):
        found = built(bound)
        found.installed(monkeypatch)
        return found

    return of


def judged(attraction, count, seed):
    """How often sets of each kind that attract, or do not, are proved to; the same of cells; and what was false."""
    rng, outcomes, false = np.random.default_rng(seed), Counter(), []
    for i in range(count):
        system, place, radius, kind = drawn(attraction.family, rng)
        known, given = attraction.meant(system, place), (system, place.numbers, radius)
        certificate = attraction(radius)
        vertices = [place(z) for z in certificate.polygon]
        low, high = min(x for x, _ in vertices), max(x for x, _ in vertices)
        inward = mapped_inside(known, vertices)
        onto_one = inward and converges(known, low, high)
        outcomes[kind, "mapped inside", inward, certificate.proved] += 1
        outcomes[kind, "converges", onto_one, certificate.converges] += 1
        if certificate.proved and not inward:
            false.append((kind, "the set is not mapped inside", *given))
        elif certificate.converges and not onto_one:
            false.append((kind, "orbits do not converge", *given))
        elif certificate.proved and not image_is_held(known, place, certificate):
            false.append((kind, "the image is not held", *given))
        elif certificate.converges:
            basin = proved_basin.proved_basin(certificate, extent=4 * radius, cells=8, levels=0)
            outcomes[kind, "cells beyond the set"] += int(np.sum(basin.strides > 0))
            if not cells_lead_there(known, place, certificate, basin, (low, high), np.random.default_rng(i)):
                false.append((kind, "a cell of the basin is none", *given))
    return outcomes, false


def image_is_held(known, place, certificate):
    """Of the vertices and middles of the edges, to rounding."""
    z = np.concatenate([certificate.polygon, 0.5 * (certificate.polygon + np.roll(certificate.polygon, 1, axis=0))])
    ends = np.array([in_coordinates(place, known(*place(each))) for each in z])
    steps = np.roll(certificate.image, -1, axis=0) - certificate.image
    apart = ends[:, None] - certificate.image
    turn = steps[:, 0] * apart[..., 1] - steps[:, 1] * apart[..., 0]
    return bool(np.all(turn > -1e-9 * np.max(np.abs(certificate.polygon)) ** 2))


def in_coordinates(place, state):
    """z of x and y, in floats."""
    aside = (state[1] - place.y) / (2 * place.unit)
    return float((state[0] - place.x) / place.unit - place.shear * aside), float(aside)


def cells_lead_there(known, place, certificate, basin, held, rng):
    """Whether points of the cells come into the set within the strides, and no cell has a fixed point that is not in the set."""
    edges = np.roll(certificate.polygon, -1, axis=0) - certificate.polygon
    pieces = known.breaks, known.polynomials
    for cell, strides in zip(basin.cells, basin.strides, strict=True):
        spread = [place(z)[0] for z in cell]
        for a, b, _ in fixed_points(pieces, min(spread), max(spread), (max(spread) - min(spread)) / 10**9):
            if not held[0] <= (a + b) / 2 <= held[1]:
                # The cell is a parallelogram of x and y: has it the state at rest?
                z = in_coordinates(place, ((a + b) / 2, known.before((a + b) / 2) / 2))
                if np.all(z >= cell.min(axis=0)) and np.all(z <= cell.max(axis=0)):
                    return False
        for part in (*np.array([(0, 0), (1, 0), (0, 1), (1, 1)]), *rng.uniform(0, 1, (2, 2))):
            x, y = place(cell[0] + part * (cell[2] - cell[0]))
            for _ in range(strides + 1):
                apart = np.array(in_coordinates(place, (x, y))) - certificate.polygon
                turn = edges[:, 0] * apart[:, 1] - edges[:, 1] * apart[:, 0]
                if np.all(turn > -1e-9 * np.max(np.abs(certificate.polygon)) ** 2):
                    break
                # Rounded far below the tolerance: the digits of exact states grow without end.
                x, y = (Fraction(round(each * 10**60), 10**60) for each in known(x, y))
            else:
                return False
    return True


def share(outcomes, statement):
    """Of the true statements of a kind, which part is proved."""
    proved, missed = (
        sum(n for key, n in outcomes.items() if key[1:] == (statement, True, found)) for found in (True, False)
    )
    return proved / max(proved + missed, 1)


def test_the_oracle_knows_a_cycle_of_two():
    """x+ = -1.2 d + 0.2 d^3 / w^2 has the points of the period two at w: the set is mapped inside, and does not converge."""
    p = dict.fromkeys(GUARDS.names, 0.0) | {"c1": -1.25, "c3": 1.0, "q": 30.0, "v": 30.0, "r": 30.0}
    known = Known(GUARDS, p)
    square = [(Fraction(x), Fraction(y)) for x, y in ((-0.7, -0.7), (0.7, -0.7), (0.7, 0.7), (-0.7, 0.7))]
    assert mapped_inside(known, square) and not converges(known, Fraction(-0.7), Fraction(0.7))
    assert converges(Known(GUARDS, p | {"c1": -0.75}), Fraction(-0.7), Fraction(0.7))
    assert not mapped_inside(Known(GUARDS, p | {"c1": -1.75}), square)
    assert not mapped_inside(Known(GUARDS, p | {"c0": 0.3}), square)
    # A jump within: the closure of the image.
    assert not mapped_inside(Known(GUARDS, p | {"j": 1e-9, "v": 0.1}), square)


def shares(outcomes):
    return share(outcomes, "mapped inside"), share(outcomes, "converges")


def many_are_several(outcomes, count):
    """Whether many sets of several orbits are proved to be mapped inside, and many cells to lead to one."""
    several = sum(outcomes[kind, "mapped inside", True, True] for kind in SEVERAL)
    cells = sum(n for key, n in outcomes.items() if key[1] == "cells beyond the set")
    return several > count / 10 and cells > count / 2


@pytest.mark.medium
def test_nothing_false_is_proved_of_random_sets(attraction):
    outcomes, false = judged(attraction(), 150, 0)
    assert not false, (len(false), false[:3])
    assert min(shares(outcomes)) > 0.4 and many_are_several(outcomes, 150), outcomes


@pytest.mark.slow
def test_nothing_false_is_proved_of_a_thousand_random_sets(attraction):
    outcomes, false = judged(attraction(), 1000, 1)
    assert not false, (len(false), false[:3])
    assert min(shares(outcomes)) > 1 / 3 and many_are_several(outcomes, 1000), outcomes
