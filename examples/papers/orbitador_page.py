r"""The biped of the ORBITADOR page: its equations, and the numbers that the page prints.

The state $(\phi_1, \dot\phi_1, \phi_2, \dot\phi_2)$ is that of the simplest walker, $(\theta, \dot\theta, \phi, \dot\phi)$.

Source: Jerray, Fribourg, André, `perso.telecom-paristech.fr/jjerray/orbitador/biped.html`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax.models import simplest_walker

# Before the parameters are made.
jax.config.update("jax_enable_x64", True)

START = np.array([0.009, -0.05869, -0.0009629, -0.3432])
TAU, STEPS, PERIODS = 2e-5, 194129, 5
RADIUS, W = 1e-3, 1e-4
ARMED_BELOW = -0.1
PARAMS = simplest_walker.Params(slope=jnp.asarray(0.009))
# Printed: the sum of lambda over the period i0 = 4, and the extremes of the borders of the tube of phi_1 in it.
PRINTED_SUM, LOWEST_UPPER, HIGHEST_LOWER = -3010.0, -0.1856, 0.1856


def far_forward(t, x, params):
    return x[2] < ARMED_BELOW


def printed_strike(t, x, params):
    """The reset as printed, with the sine of the double angle in the second component."""
    theta, theta_rate, _, _ = x
    after = simplest_walker.heel_strike(t, x, params)
    return jnp.stack([after[0], theta_rate * jnp.sin(2 * theta), after[2], after[3]])


def _walker(reset) -> hj.HybridSystem:
    strike = hj.Transition("swing", "swing", simplest_walker.foot_height, reset, far_forward)
    return hj.HybridSystem({"swing": hj.Mode(simplest_walker.swing, simplest_walker.coordinates)}, (strike,))


walker = _walker(simplest_walker.heel_strike)
printed_walker = _walker(printed_strike)
