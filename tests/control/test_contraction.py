"""The contraction factor of a matrix: its equation by other routes, its bounds, its derivatives where eigenvalues meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_discrete_lyapunov

import hyjax as hj
from hyjax._testing import contraction_factor

SKEW = np.array([[1.0, 5.0], [0.0, 1.0]])


def radius(matrix):
    return np.max(np.abs(np.linalg.eigvals(matrix)))


def sum_of_squares(matrix):
    """The sum of the squared norms of all powers, from a Lyapunov equation solved by SciPy."""
    return np.trace(solve_discrete_lyapunov(matrix.T, matrix.T @ matrix))


def rotation(angle):
    """Rotation and shrinking to 0.9, in skewed coordinates."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return 0.9 * SKEW @ turn @ np.linalg.inv(SKEW)


def factors(matrices, smoothing):
    """Of many matrices; SciPy's spectral radius is where the search starts."""
    radii = np.array([radius(matrix) for matrix in matrices])
    return np.asarray(jax.jit(jax.vmap(lambda a, r: contraction_factor(a, r, smoothing)))(jnp.array(matrices), radii))


@pytest.mark.parametrize("smoothing", [1e-6, 1e-3, 1.0])
def test_the_equation_and_its_bounds(smoothing):
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(40, 4, 4)) * 10.0 ** rng.integers(-3, 3, size=(40, 1, 1))
    matrices[3:, :, -1] = matrices[3:, :, 0]
    # A Jordan block in other coordinates, whose eigenvalues are found to 1e-4; and a nilpotent matrix.
    matrices[0] = matrices[2] @ (0.9 * np.eye(4) + np.eye(4, k=1)) @ np.linalg.inv(matrices[2])
    matrices[1] = np.eye(4, k=1)
    found = factors(matrices, smoothing)
    for matrix, factor in zip(matrices, found, strict=True):
        # Rounding of the factor is multiplied by the slope of the sum, 2 / (1 - (rho / r)^2), at most 2 / smoothing.
        assert_allclose(sum_of_squares(matrix / factor), 1 / smoothing, rtol=1e-14 / smoothing + 1e-13)
        assert factor >= radius(matrix) * (1 - 1e-13) * np.sqrt(1 + smoothing)
        # No deviation grows beyond this bound.
        powers = [np.linalg.norm(np.linalg.matrix_power(matrix / factor, k), 2) for k in range(1, 30)]
        assert max(powers) * np.sqrt(smoothing) < 1 + 1e-12


def test_closed_forms_and_units():
    """One eigenvalue: r = |a| sqrt(1 + e); a nilpotent matrix: r = |A| sqrt(e). A unit of all states changes nothing."""
    plain = jnp.array([[-0.8]]), jnp.array([[0.0, 2.0], [0.0, 0.0]])
    assert_allclose(contraction_factor(plain[0], jnp.array(0.8), 0.01), 0.8 * np.sqrt(1.01), rtol=1e-14)
    assert_allclose(contraction_factor(plain[1], jnp.array(0.0), 0.01), 0.2, rtol=1e-14)
    one, small, large = factors([rotation(0.7) * scale for scale in (1, 1e-30, 1e30)], 1e-3)
    assert_allclose([small * 1e30, large * 1e-30], one, rtol=1e-13)
    zero, slope = jax.value_and_grad(lambda a: contraction_factor(a, jnp.zeros(()), 1e-3))(jnp.zeros((2, 2)))
    assert zero == 0 and np.all(slope == 0)
    assert np.isnan(contraction_factor(jnp.full((2, 2), jnp.nan), jnp.array(jnp.nan), 1e-3))
    for smoothing in (0.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match="smoothing="):
            hj.objectives.contraction(smoothing)


def test_no_minima_that_the_spectral_radius_lacks():
    """The spectral radius of a rotation is the same at all angles. The norm of a power has a minimum in each of its periods."""
    angles = np.linspace(0.1, 1.5, 500)
    matrices = [rotation(angle) for angle in angles]
    minima = lambda values: np.sum((values[1:-1] < values[:-2]) & (values[1:-1] < values[2:]))
    power = np.array([np.linalg.norm(np.linalg.matrix_power(matrix, 16)) ** (1 / 16) for matrix in matrices])
    assert minima(power) > 5
    assert minima(factors(matrices, 1e-3)) <= 1


@pytest.mark.medium
def test_derivatives_where_eigenvalues_meet():
    """At s = 0 a real pair becomes complex: the spectral radius has a slope of 1/sqrt(s) there. Forward, reverse, differences."""
    matrix, direction = np.array([[0.6, 1.0], [0.0, 0.6]]), np.array([[0.3, 0.0], [1.0, -0.2]])

    # The root of the equation does not depend on where its search starts, a little below the spectral radius for some s.
    def along(s):
        return contraction_factor(jnp.array(matrix) + s * jnp.array(direction), jnp.array(0.6), 1e-2)

    zero, h = jnp.zeros(()), 1e-4
    program = jax.jit(jax.vmap(lambda s: (along(s), jax.grad(along)(s), jax.jvp(along, (s,), (jnp.ones(()),))[1])))
    values, slopes, forward = program(h * jnp.arange(-2.0, 3.0))
    assert_array_equal(np.isfinite(slopes), True)
    assert_allclose(slopes, forward, rtol=1e-13)
    central = lambda f: (8 * (f[3] - f[1]) - (f[4] - f[0])) / (12 * h)
    # The factor varies on the scale of the smoothing, 1e-2: truncation (1e-2)^4, and rounding of 1e-15 over the spacing.
    assert_allclose(slopes[2], central(values), rtol=1e-8)
    bend = jax.jit(jax.jacfwd(jax.jacfwd(along)))(zero)
    assert_allclose(bend, central(slopes), rtol=1e-7)
    radii = [radius(matrix + s * direction) for s in (0, 1e-6)]
    assert (radii[1] - radii[0]) / 1e-6 > 300 * abs(slopes[2])
