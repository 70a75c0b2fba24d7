"""States sampled along one arc."""

import equinox as eqx
from jaxtyping import Array, Float


class Arc(eqx.Module):
    """States sampled along one arc, the flow between two jumps.

    **Attributes:** `mode`: name of its mode. `t`: times, shape `(n,)`, from the arc's start to its end, both included, on the
    clock of the whole orbit or trajectory. `x`: states, shape `(n, dimension)`, in the order of the mode's `coordinates`. Times
    and states are in the units of the vector field, and NaN where the flow fails.
    """

    mode: str = eqx.field(static=True)
    t: Float[Array, " n"]
    x: Float[Array, "n dimension"]
