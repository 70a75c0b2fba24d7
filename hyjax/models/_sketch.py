"""Lines from which the outlines of models are composed, and the ground on which they stand."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Point = Float[Array, "2"]
Length = float | Float[Array, ""]


def ground(params) -> Float[Array, ""]:
    """The angle by which the ground falls to the right in the frame of the outline: zero, where that frame is vertical."""
    return jnp.zeros(())


def spring(start: Point, end: Point, turns: int, width: Length) -> Float[Array, "n 2"]:
    """A zigzag from one point to another, straight at both ends. **Arguments:** `width`: in the units of the points."""
    inner = np.linspace(0.2, 0.8, 2 * turns + 1)
    along = np.concatenate([[0.0], inner, [1.0]])
    aside = np.concatenate([[0.0, 0.0], np.tile([1.0, -1.0], turns)[: 2 * turns - 1], [0.0, 0.0]])
    way = end - start
    across = jnp.stack([-way[1], way[0]]) / jnp.sqrt(way @ way)
    return start + jnp.asarray(along)[:, None] * way + width * jnp.asarray(aside)[:, None] * across


def mass_before_wall(x: Length, wall: Length, anchor: Length, size: Length) -> dict[str, Float[Array, "n 2"]]:
    """Anchor, spring, mass and wall of an oscillator. The mass is drawn behind its face, at `x`, which strikes the wall."""
    zero = jnp.zeros_like(size)
    up = jnp.stack([zero, size])
    mass, end, side = (jnp.stack([at, zero]) for at in (x - size / 2, anchor, wall))
    return {
        "mass": box(mass, size, size),
        "wall": jnp.stack([side - up, side + up]),
        "spring": spring(end, mass - jnp.stack([size / 2, zero]), 6, 0.25 * size),
        "anchor": jnp.stack([end - up, end + up]),
    }


def disc(centre: Point, radius: Length) -> Float[Array, "33 2"]:
    """The rim of a disc."""
    angle = np.linspace(0, 2 * np.pi, 33)
    return centre + jnp.asarray(radius) * jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1))


def box(centre: Point, width: Length, height: Length) -> Float[Array, "5 2"]:
    """The rim of an upright rectangle."""
    corners = jnp.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5], [-0.5, -0.5]])
    return centre + corners * jnp.stack([jnp.asarray(width), jnp.asarray(height)])
