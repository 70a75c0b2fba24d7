"""Two published stiff problems by the stiff solvers, to their published digits."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj

S = hj.solvers


def van_der_pol(y):
    """With a coordinate at rest."""
    return jnp.stack([y[1], ((1 - y[0] ** 2) * y[1] - y[0]) / 1e-6, 0 * y[2]])


def robertson(y):
    a, b, c = y
    slow, back, fast = 0.04 * a, 1e4 * b * c, 3e7 * b**2
    return jnp.stack([-slow + back, slow - back - fast, fast])


def either(t, y, first):
    return jnp.where(first, van_der_pol(y), robertson(y))


# Whether it is van der Pol's, start, end, the scale of the smallest coordinate, and the state at the end.
# Mazzia, Magherini (2008), Test Set for Initial Value Problem Solvers 2.4, University of Bari.
PROBLEMS = {
    "van der Pol": (True, [2.0, 0.0, 0.0], 2.0, 1.0, [0.1706167732170483e1, -0.8928097010247975]),
    "Robertson": (
        False, [1.0, 0.0, 0.0], 1e11, 1e-13,
        [0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050],
    ),
}  # fmt: skip
# Solver, tolerance of a step, and the relative error that its hundreds to thousands of steps add up to.
SOLVERS = {
    "TRBDF2": (S.TRBDF2(), 1e-5, 1e-3),
    "Rodas5P": (S.Rodas5P(), 1e-8, 1e-6),
    "Radau5": (S.Radau5(), 1e-8, 1e-6),
    "NDF": (S.NDF(), 1e-7, 1e-5),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", SOLVERS)
def test_digits_of_stiff_problems(name):
    """One program for both."""
    solver, tolerance, error = SOLVERS[name]

    @jax.jit
    def end_of(first, start, end, small):
        control = dfx.PIDController(rtol=tolerance, atol=tolerance * small)
        sol = dfx.diffeqsolve(
            dfx.ODETerm(either), solver, 0.0, end, 1e-6, start, first, stepsize_controller=control, max_steps=20000
        )
        assert sol.ys is not None
        return sol.ys[-1]

    for problem, (first, start, end, small, published) in PROBLEMS.items():
        found = end_of(jnp.array(first), jnp.array(start), jnp.array(end), jnp.array(small))[: len(published)]
        assert np.max(np.abs(np.asarray(found) / published - 1)) <= error, problem
