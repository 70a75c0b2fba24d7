"""States sampled along one arc."""

import equinox as eqx
from jaxtyping import Array, Float


class Arc(eqx.Module):
    """States sampled along one arc, the flow between two jumps.

    **Attributes:** `mode`: name of its mode. `t`: times, shape `(n,)`, from the arc's start to its end, both included, on the
    clock of the whole orbit or trajectory. `x`: states, shape `(n, dimension)`, in the order of the mode's `coordinates`. Times
    and states are in the units of the vector field, and NaN where the flow fails.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> (arc,) = orbit.sample(5)
    >>> arc.mode, arc.t.shape, arc.x.shape
    ('stance', (5,), (5, 2))
    """

    mode: str = eqx.field(static=True)
    t: Float[Array, " n"]
    x: Float[Array, "n dimension"]
