r"""Sorted eigenvalues of a real matrix, with derivatives of every order where they are simple.

With the eigenvectors $A v = s v$ and $w A = s w$, $\dot s = w \dot A v / w v$. The next order needs the derivatives of the
vectors: $(A - s) \dot v = (\dot s - \dot A) v$ and $\dot w (A - s) = w (\dot s - \dot A)$, with $\dot v$ and $\dot w$ orthogonal
to $v$ and $w$. The equations are regular once the matrix is bordered by the vectors.

Source: Kato (1995), *Perturbation Theory for Linear Operators*, ch. 2; Govaerts (2000), *Numerical Methods for Bifurcations of
Dynamical Equilibria*, ch. 3.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Shaped

from .._numerics.eigenvalues import spectrum
from .._numerics.elimination import null_vectors, solver

Values = Complex[Array, " n"]
Vectors = Complex[Array, "k n"]


@jax.custom_jvp
def eigenvalues(matrix: Float[Array, "n n"]) -> Values:
    """The eigenvalues, largest modulus first; of a complex pair, the one with positive imaginary part first.

    Differentiable to any order where they are simple; the derivative of an eigenvalue that is zero up to rounding is zero.
    NaN for a matrix that is not finite.
    """
    values = spectrum(matrix)
    # The moduli of a complex pair are equal up to rounding, so they are rounded before the pair is ordered by imaginary part.
    modulus = jnp.abs(values)
    digits = jnp.sqrt(jnp.finfo(matrix.dtype).eps) * jnp.max(modulus)
    order = jnp.lexsort((-values.imag, -jnp.round(modulus / jnp.where(digits > 0, digits, 1))))
    return values[order]


@eigenvalues.defjvp
def _eigenvalues_jvp(primals, tangents):
    (matrix,), (dmatrix,) = primals, tangents
    values = eigenvalues(matrix)
    right, left = eigenvectors(matrix, values)
    moved = jnp.sum((left @ dmatrix.astype(values.dtype)) * right, axis=1)
    frozen = _frozen(matrix, values)
    product = jnp.where(frozen, 1, jnp.sum(left * right, axis=1))
    return values, jnp.where(frozen, 0, moved / product)


def set_apart(lap: Shaped[Array, "n n"], last: Shaped[Array, "n k"] | None = None) -> Shaped[Array, "n k"]:
    """$(I - w w^*) D$ with the unit left eigenvector $w$ of the eigenvalue 1 of the `lap` $D$ along a family of orbits, which
    becomes 0; the others stay (Wielandt's deflation). **Arguments:** `last`: a last factor of $D$, to be multiplied instead."""
    left = jnp.linalg.svd(lap - jnp.eye(len(lap), dtype=lap.dtype))[0][:, -1]
    last = lap if last is None else last
    return last - jnp.outer(left, left.conj() @ last)


def _frozen(matrix: Float[Array, "n n"], values: Complex[Array, " k"]) -> Array:
    """Eigenvalues that are zero up to rounding: multiple zeros of a matrix of low rank stay zero while the rank is constant."""
    modulus = jax.lax.stop_gradient(jnp.abs(values))
    return modulus < 1e3 * jnp.finfo(matrix.dtype).eps * jnp.max(modulus)


@jax.custom_jvp
def eigenvectors(matrix: Float[Array, "n n"], values: Complex[Array, " k"]) -> tuple[Vectors, Vectors]:
    """Right and left unit eigenvectors to simple eigenvalues, some or all of them, as rows: $A v = s v$ and $w A = s w$."""
    singular = _shifted(matrix, values)
    both = jnp.stack([singular, jnp.swapaxes(singular, 1, 2)])
    right, left = jax.vmap(jax.vmap(lambda each: null_vectors(each, rank=len(matrix) - 1)[0]))(both)
    return right, left


@eigenvectors.defjvp
def _eigenvectors_jvp(primals, tangents):
    (matrix, values), (dmatrix, dvalues) = primals, tangents
    right, left = eigenvectors(matrix, values)
    n, frozen = len(matrix), _frozen(matrix, values)

    def one(singular, dsingular, v, w, frozen):
        across, along = jax.lax.stop_gradient((jnp.conj(w), jnp.conj(v)))
        corner = jnp.zeros((1, 1), v.dtype)
        bordered = jnp.block([[singular, across[:, None]], [along[None], corner]])
        solve = solver(jnp.where(frozen, jnp.eye(n + 1, dtype=v.dtype), bordered))
        transposed = jax.linear_transpose(solve, jnp.zeros(n + 1, v.dtype))
        forced = -jnp.where(frozen, 0, dsingular)
        dv = solve(jnp.append(forced @ v, corner))
        (dw,) = transposed(jnp.append(w @ forced, corner))
        return dv[:n], dw[:n]

    each = _shifted(matrix, values), _shifted(dmatrix, dvalues), right, left, frozen
    return (right, left), jax.vmap(one)(*each)


def _shifted(matrix: Float[Array, "n n"], values: Complex[Array, " k"]) -> Complex[Array, "k n n"]:
    """`A - s I` for each eigenvalue `s`."""
    return matrix.astype(values.dtype) - values[:, None, None] * jnp.eye(len(matrix), dtype=values.dtype)
