"""Three published stiff problems by the stiff solvers, to their published digits and to SciPy's Radau at a tight tolerance."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import hyjax as hj

S = hj.solvers


def van_der_pol(t, y, args):
    return jnp.stack([y[1], ((1 - y[0] ** 2) * y[1] - y[0]) / 1e-6])


def robertson(t, y, args):
    a, b, c = y
    slow, back, fast = 0.04 * a, 1e4 * b * c, 3e7 * b**2
    return jnp.stack([-slow + back, slow - back - fast, fast])


def hires(t, y, args):
    a, b, c, d, e, f, g, h = y
    bound = 280 * f * h
    return jnp.stack(
        [
            -1.71 * a + 0.43 * b + 8.32 * c + 0.0007,
            1.71 * a - 8.75 * b,
            -10.03 * c + 0.43 * d + 0.035 * e,
            8.32 * b + 1.71 * c - 1.12 * d,
            -1.745 * e + 0.43 * f + 0.43 * g,
            -bound + 0.69 * d + 1.71 * e - 0.43 * f + 0.69 * g,
            bound - 1.81 * g,
            -bound + 1.81 * g,
        ]
    )


# Field, start, end, the scale of the smallest coordinate, and the state at the end.
# Mazzia, Magherini (2008), Test Set for Initial Value Problem Solvers 2.4, University of Bari.
PROBLEMS = {
    "van der Pol": (van_der_pol, [2.0, 0.0], 2.0, 1.0, [0.1706167732170483e1, -0.8928097010247975]),
    "Robertson": (
        robertson, [1.0, 0.0, 0.0], 1e11, 1e-13,
        [0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050],
    ),
    "HIRES": (
        hires, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], 321.8122, 1e-4,
        [0.7371312573325668e-3, 0.1442485726316185e-3, 0.5888729740967575e-4, 0.1175651343283149e-2, 0.2386356198831133e-2,
         0.6238968252742796e-2, 0.2849998395185769e-2, 0.2850001604814231e-2],
    ),
}  # fmt: skip
# Solver, tolerance of a step, and the relative error that its hundreds to thousands of steps add up to.
SOLVERS = {
    "Rosenbrock23": (S.Rosenbrock23(), 1e-5, 1e-3),
    "TRBDF2": (S.TRBDF2(), 1e-5, 1e-3),
    "Trapezoidal": (S.Trapezoidal(), 1e-6, 1e-3),
    "Rodas5P": (S.Rodas5P(), 1e-8, 1e-6),
    "Radau5": (S.Radau5(), 1e-8, 1e-6),
    "NDF": (S.NDF(), 1e-7, 1e-5),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("problem", PROBLEMS)
def test_digits_of_a_stiff_problem(problem):
    field, start, end, small, published = PROBLEMS[problem]
    far = lambda x: np.max(np.abs(np.asarray(x) / np.array(published) - 1))
    jacobian = jax.jit(jax.jacfwd(field, argnums=1), static_argnums=2)
    rate = jax.jit(field, static_argnums=2)
    route = scipy.integrate.solve_ivp(
        lambda t, y: np.asarray(rate(t, y, None)), (0, end), start, "Radau", rtol=1e-10, atol=1e-11 * small,
        jac=lambda t, y: np.asarray(jacobian(t, y, None)),
    )  # fmt: skip
    # Another implementation, at the error that its steps add up to.
    assert far(route.y[:, -1]) <= 1e-11
    for name, (solver, tolerance, error) in SOLVERS.items():
        # The trapezoidal rule does not damp what is fast: at the end of this interval its error is as large as the solution.
        if (problem, name) == ("Robertson", "Trapezoidal"):
            continue
        control = dfx.PIDController(rtol=tolerance, atol=tolerance * small)
        sol = jax.jit(
            lambda x, solver=solver, control=control: dfx.diffeqsolve(
                dfx.ODETerm(field), solver, 0.0, end, 1e-6, x, stepsize_controller=control, max_steps=20000
            )
        )(jnp.asarray(start))
        assert sol.ys is not None
        assert far(sol.ys[-1]) <= error, name
