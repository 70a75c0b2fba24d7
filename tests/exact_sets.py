"""Exact arithmetic of rational numbers, for members of enclosures: what is in a set, and whether a member's image is in another.

Arrays of `Fraction`s are arrays of objects, with the operations of NumPy; every float is a rational number.
"""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from hyjax._testing import StateSet, TaylorModel

# Sides of right triangles: unit vectors of rational numbers.
UNIT_VECTORS = ((Fraction(3, 5), Fraction(4, 5)), (Fraction(-5, 13), Fraction(12, 13)), (Fraction(1), Fraction(0)))


def fraction(a) -> Fraction:
    """A ball of Arb of radius zero, exactly."""
    assert a.is_exact()
    digits, exponent = (int(each) for each in a.man_exp())
    return Fraction(digits) * Fraction(2) ** exponent


def fractions(a) -> np.ndarray:
    """The exact values of floats that are finite."""
    a = np.asarray(a, float)
    return np.array([Fraction(each) for each in a.ravel().tolist()], object).reshape(a.shape)


def wide(rng, shape, low=-140, high=140) -> np.ndarray:
    """Floats of both signs: a third of them of size one, a third of any exponent, some zero, subnormal or short."""
    ordinary, extreme = rng.normal(size=shape), rng.normal(size=shape) * 10.0 ** rng.uniform(low, high, shape)
    short, tiny = rng.integers(-3, 4, shape).astype(float), rng.integers(-9, 10, shape) * 5e-324
    kind = rng.integers(9, size=shape)
    return np.select([kind < 3, kind < 6, kind < 8], [ordinary, extreme, short], tiny)


def polynomial(coefficients, basis, s) -> np.ndarray:
    """The exact values of polynomials with coefficients of shape `(N, *shape)` at a point of rational numbers."""
    total = 0 * fractions(coefficients[0])
    for exponents, each in zip(basis.exponents.tolist(), fractions(coefficients), strict=True):
        monomial = Fraction(1)
        for x, power in zip(s, exponents, strict=True):
            monomial *= Fraction(x) ** power
        total = total + monomial * each
    return total


def member(model: TaylorModel, s, error=0) -> np.ndarray:
    """The exact values of a function in a Taylor model at `s`: the polynomial and `error` times the radius."""
    return polynomial(np.asarray(model.coefficients), model.basis, s) + error * fractions(model.radius)


def missed(model: TaylorModel, s, values) -> np.ndarray:
    """Which exact values at `s` are not in a Taylor model; infinite radii hold all."""
    radius = np.asarray(model.radius)
    known = np.isfinite(radius)
    apart = np.abs(member(TaylorModel(model.coefficients, jnp.zeros_like(model.radius), model.basis), s) - values)
    return known & (apart > fractions(np.where(known, radius, 0)))


def inverse(matrix) -> np.ndarray:
    """The exact inverse of a regular matrix, by elimination."""
    n = len(matrix)
    rows = np.concatenate([np.array(matrix, object), fractions(np.eye(n))], axis=1)
    for i in range(n):
        k = next(k for k in range(i, n) if rows[k, i] != 0)
        rows[[i, k]] = rows[[k, i]]
        rows[i] = rows[i] / rows[i, i]
        for j in range(n):
            if j != i:
                rows[j] = rows[j] - rows[j, i] * rows[i]
    return rows[:, n:]


def state(states: StateSet, s, pushes=(), error=()) -> np.ndarray:
    """The exact state of a set for variables `s`, unit vectors `pushes` of the groups, and `error` in [-1, 1]^n."""
    x = polynomial(np.asarray(states.polynomial), states.basis, s)
    for generators, push in zip(fractions(states.generators), pushes, strict=False):
        x = x + generators @ np.array(push, object)
    e = np.array(error if len(error) else [0] * len(x), object)
    return x + fractions(states.frame.matrix) @ (e * fractions(states.error))


def outside(states: StateSet, x, s, pushes=()) -> bool:
    """Whether an exact state is not in a set for these variables and unit vectors."""
    apart = inverse(fractions(states.frame.matrix)) @ (x - state(states, s, pushes))
    return bool(np.any(np.abs(apart) > fractions(states.error)))
