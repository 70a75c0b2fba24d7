"""The search for a periodic orbit, and the orbit's strides as functions of their start and of `what = (problem, params)`.

The differentiation rules in `implicit.py` and `backward.py` are built from these functions.
"""

import dataclasses

import jax
from jaxtyping import Array, PyTree

from .._flow.integrator import PlainForward
from .._flow.mode_integrators import Integrators, with_adjoint
from .._numerics.batch_axes import batched_like
from .._system.types import Scalar, State
from .chain import Passage, Start, stride_jacobian
from .shooting import AbstractShooting, Found


def find(what: PyTree, guess: Array, method: AbstractShooting, integrator: Integrators) -> Found:
    """The orbit near a guess; with the strides' Jacobians, if `problem.varied` is not empty. Not differentiable."""
    problem, params = what
    integrator = with_adjoint(integrator, PlainForward())
    found = method.search(problem, guess, params, integrator)
    chain = found.chain
    if problem.varied and chain.jacobians is None:
        by = jax.vmap(lambda t, x: jacobians(what, t, x, integrator))(chain.starts, chain.nodes)
        chain = dataclasses.replace(chain, jacobians=by)
    chain, jacobian = batched_like((chain, found.jacobian), what)
    return dataclasses.replace(found, chain=chain, jacobian=jacobian)


def passage(what: PyTree, t: Scalar, x: State, integrator: Integrators) -> Passage:
    """The stride that starts at `(t, x)`."""
    problem, params = what
    start = Start(dataclasses.replace(problem, varied=()), t, x, params)
    return start.flow(start.pack(), integrator)[0]


def jacobians(what: PyTree, t: Scalar, x: State, integrator: Integrators) -> Passage:
    """The Jacobians of `passage` with respect to the stride's start and the leaves `varied` of the problem."""
    problem, params = what
    return stride_jacobian(problem, t, x, params, integrator)[1]
