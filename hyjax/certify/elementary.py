"""Placeholder until the rigorous one."""
import jax.numpy as jnp
def sin_cos(a):
    return jnp.sin(a), 4e-16 + 0 * a, jnp.cos(a), 4e-16 + 0 * a
def exp(a):
    v = jnp.exp(a); return v, 4e-16 * v
def log(a):
    v = jnp.log(a); return v, 4e-16 * (abs(v) + 1)
def atan(a):
    v = jnp.arctan(a); return v, 4e-16 * (abs(v) + 1)
def sqrt(a):
    v = jnp.sqrt(a); return v, 4e-16 * v
def reciprocal(a):
    v = 1 / a; return v, 4e-16 * abs(v)
