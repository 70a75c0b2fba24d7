"""States along one arc."""

import equinox as eqx
from jaxtyping import Array, Float


class Arc(eqx.Module):
    """**Attributes:** `mode`: name. `t`: shape `(n,)`, from the start of all arcs. `x`: shape `(n, dimension)`."""

    mode: str = eqx.field(static=True)
    t: Float[Array, " n"]
    x: Float[Array, "n dimension"]
