"""Evaluations of a vector field, counted by callbacks into Python while a compiled program runs; and compilations.

This holds for one lane alone. Under `vmap` a callback without a batched operand runs once for the whole batch, which is how all
columns of `jacfwd` count once.
"""

import re

import equinox as eqx
import jax


def compiled(caplog, fn):
    """The names of the programs that JAX compiles while `fn()` runs."""
    caplog.clear()
    with jax.log_compiles():
        fn()
    return re.findall(r"Compiling (\S+)", caplog.text)


class Counter:
    """A vector field, with the numbers of its evaluations and of its linearizations so far, complete after
    `jax.effects_barrier()`. The value that comes with a linearization is not an evaluation."""

    def __init__(self, field):
        self.evaluations = self.jacobians = 0

        def evaluated(_):
            self.evaluations += 1

        def linearized(_):
            self.jacobians += 1

        @eqx.filter_custom_jvp
        def counting(t, x, params):
            jax.debug.callback(evaluated, x[0])
            return field(t, x, params)

        @counting.def_jvp
        def _(primals, tangents):
            # The operand is the point, which all columns of a Jacobian share.
            jax.debug.callback(linearized, primals[1][0])
            return eqx.filter_jvp(field, primals, tangents)

        self.field = lambda t, x, params: counting(t, x, params)
