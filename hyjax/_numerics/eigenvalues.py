r"""Eigenvalues of batches of small real matrices in plain JAX operations: Francis's double-shift QR algorithm.

Householder reflections $H \to PHP$ bring the matrix to Hessenberg form and then, sweep after sweep, to block triangular form with
blocks of size 1 and 2. Reduction and sweeps are one loop of reflections, in which each lane of the batch is at its own place in
its own sweep: the loop is as long as the slowest lane needs, and finished lanes keep their numbers. Lanes are the last axis,
contiguous in memory.

The reflections run on accelerators alone. On an H100 GPU (jax 0.11.2) 10 000 matrices of size 4 take 0.0019 s, where cuSOLVER,
which `jnp.linalg.eigvals` calls one matrix after the other, takes 3.3 s. On a CPU LAPACK takes no longer, and compiles in a
quarter of the time: 0.050 s for 0.053 s, of size 8 0.17 for 0.29 s (16 cores; `benchmarks/eigenvalues.py`). Two calls of LAPACK
for a batch that overlap can deadlock, see `elimination` (jaxlib 0.10.2).

Source: Golub, Van Loan (2013), *Matrix Computations*, ch. 7.5; Anderson et al. (1999), *LAPACK Users' Guide*, `dlahqr`.

Sorted, they have derivatives of every order where they are simple: with the eigenvectors $A v = s v$ and $w A = s w$, $\dot s = w
\dot A v / w v$. The next order needs the derivatives of the vectors: $(A - s) \dot v = (\dot s - \dot A) v$ and $\dot w (A - s) =
w (\dot s - \dot A)$, with $\dot v$ and $\dot w$ orthogonal to $v$ and $w$. The equations are regular once the matrix is bordered
by the vectors.

Source: Kato (1995), *Perturbation Theory for Linear Operators*, ch. 2; Govaerts (2000), *Numerical Methods for Bifurcations of
Dynamical Equilibria*, ch. 3.
"""

from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import batching, mlir
from jaxtyping import Array, Bool, Complex, Float, Int, Shaped

from .elimination import null_vectors, solver

# Up to this size, the arithmetic of a step on whole matrices costs less than the launch of the step.
_LARGEST = 12
# The loop is limited to 30 n^2 reflections. A lane needs about 2.5 sweeps for an eigenvalue, each of at most n reflections; after
# 10 sweeps without success the shift is changed.
_STEPS = 30
# Six rounds balance units that differ by a factor of 1e8.
_ROUNDS = 6

Lanes = Float[Array, "n n lanes"]
Each = Float[Array, " lanes"]
Index = Int[Array, " lanes"]


def spectrum(matrix: Float[Array, "n n"]) -> Complex[Array, " n"]:
    """The eigenvalues, unordered, complex pairs adjacent; NaN where the matrix is not finite. Not differentiable."""
    finite = jnp.all(jnp.isfinite(matrix))
    # A matrix with NaN would make LAPACK fail for the whole batch.
    return jnp.where(finite, _spectrum.bind(jnp.where(finite, matrix, 0)), jnp.nan)


def plain_spectrum(matrix: Float[Array, "*lanes n n"]) -> Complex[Array, "*lanes n"]:
    r"""The eigenvalues of finite matrices, without LAPACK up to size 12; NaN where the iteration does not converge.

    Backward stable: they are the eigenvalues of a matrix that differs by about $n \epsilon \|A\|$ from the given matrix, or,
    where units differ, from the balanced matrix.
    """
    *lanes, n, _ = matrix.shape
    if n > _LARGEST:
        return jnp.linalg.eigvals(matrix)
    form = jnp.moveaxis(matrix.reshape(-1, n, n), 0, -1)
    unit = _power_of_two(jnp.max(jnp.abs(form), axis=(0, 1)) / 2)
    form, links = form / unit, jnp.full(form.shape[2], 2 ** (n - 1) - 1, np.int32)
    if n > 2:
        form, links, done = _iterated(_balanced(form))
        unit = jnp.where(done, unit, jnp.nan)
    real, imag = _of_blocks(form, links)
    return jax.lax.complex(real * unit, imag * unit).T.reshape(*lanes, n)


def _lapack_spectrum(matrix: Float[Array, "*lanes n n"]) -> Complex[Array, "*lanes n"]:
    *lanes, n, _ = matrix.shape
    if n <= 2:
        return plain_spectrum(matrix)
    # One matrix at a time. Hazard: two batched LAPACK calls that overlap can deadlock, see `hyjax/_numerics/elimination.py`.
    return jax.lax.map(jnp.linalg.eigvals, matrix.reshape(-1, n, n)).reshape(*lanes, n)


# A primitive traces the algorithm of the platform alone; `jax.lax.platform_dependent` would trace both, for 0.1 to 0.2 s.
_spectrum = jax.extend.core.Primitive("spectrum")
_spectrum.def_impl(jax.jit(_spectrum.bind))
mlir.register_lowering(_spectrum, mlir.lower_fun(plain_spectrum, multiple_results=False))
mlir.register_lowering(_spectrum, mlir.lower_fun(_lapack_spectrum, multiple_results=False), platform="cpu")


@_spectrum.def_abstract_eval
def _shape_of_spectrum(matrix):
    return jax.core.ShapedArray(matrix.shape[:-1], np.result_type(matrix.dtype, np.complex64))


batching.primitive_batchers[_spectrum] = lambda of, axes: (_spectrum.bind(jnp.moveaxis(of[0], axes[0], 0)), 0)


def _power_of_two(x: Array) -> Array:
    """The power of two nearest to a positive number, a factor free of rounding; 1 where there is none."""
    nearest = jax.lax.reduce_precision(x, exponent_bits=jnp.finfo(x.dtype).nexp, mantissa_bits=0)
    return jnp.where((nearest > 0) & jnp.isfinite(nearest), nearest, 1)


def _balanced(form: Lanes) -> Lanes:
    r"""The balanced matrix $D^{-1} H D$, whose rows and columns have nearly equal norms, with the same eigenvalues.

    The factors of a round together minimize a bound on the sum of squares (each product $d_i^{-1} d_j$ replaced by the mean of
    the squares), so each round lowers the norm. Rows and columns of the size of rounding are not scaled.
    """
    n = len(form)
    rounding = 4 * n * jnp.finfo(form.dtype).eps

    def balance(_, form):
        squares = jnp.where(np.eye(n, dtype=bool)[:, :, None], 0, form**2)
        rows, columns = jnp.sum(squares, axis=1), jnp.sum(squares, axis=0)
        sound = jnp.minimum(rows, columns) > rounding**2 * jnp.max(jnp.maximum(rows, columns), axis=0)
        ratio = jnp.where(sound, rows / jnp.where(sound, columns, 1), 1)
        factor = _power_of_two(jnp.sqrt(jnp.sqrt(jnp.sqrt(ratio))))
        return form * factor / factor[:, None]

    return jax.lax.fori_loop(0, _ROUNDS, balance, form)


def _iterated(form: Lanes) -> tuple[Lanes, Index, Bool[Array, " lanes"]]:
    """The block triangular form, the bits of its subdiagonal entries that are not negligible, and whether it was reached.

    The carry of the loop: the form; `links`, one bit for each subdiagonal entry, set until the entry is negligible; `k`, where
    the next reflection acts on rows k and following; `low` and `high`, the first and last row of the current block, where
    high = 0 if the lane is finished; `sweeps` since a block was last split off; and the number of steps.
    """
    n, _, lanes = form.shape
    each = jnp.arange(n, dtype=jnp.int32)[:, None]

    def step(state):
        form, links, k, low, high, sweeps, steps = state
        start = k >= high
        links = jnp.where(start, links & _coupled(form), links)
        first, last = _last_block(links)
        sweeps = jnp.where(start, jnp.where(last == high, sweeps + 1, 0), sweeps)
        low, high = jnp.where(start, first, low), jnp.where(start, last, high)
        k = jnp.where(start, low, k)

        # The column to be reduced: the first of a new sweep, or the one with the bulge of the last reflection.
        column = jnp.take_along_axis(form, jnp.broadcast_to(k - 1, (n, 1, lanes)), axis=1, mode="clip")[:, 0]
        x = jnp.where(start, _first_column(form, low, high, each - k, sweeps), column)
        inside = (each >= k) & (each <= high)
        form = _reflected(form, jnp.where(inside, x, 0), each - k, start, (each >= low) & (each <= high), high > 0)
        return form, links, k + 1, low, high, sweeps, steps + 1

    of_lanes = lambda value: jnp.full(lanes, value, np.int32)
    # The reduction to Hessenberg form is a sweep of whole columns that begins at row 1.
    start = (
        form, of_lanes(2 ** (n - 1) - 1), of_lanes(1), of_lanes(0), of_lanes(n - 1), of_lanes(0), jnp.zeros((), np.int32),
    )  # fmt: skip
    going = lambda state: (jnp.max(state[4]) > 0) & (state[6] < _STEPS * n * n)
    form, links, _, _, high, _, _ = jax.lax.while_loop(going, step, start)
    return form, links, high == 0


def _coupled(form: Lanes) -> Index:
    """A bit for each subdiagonal entry that is larger than the rounding of its neighbours on the diagonal."""
    eps = jnp.finfo(form.dtype).eps
    d, below = jnp.abs(_diagonal(form, 0)), jnp.abs(_diagonal(form, 1))
    coupled = below > eps * jnp.maximum(d[:-1] + d[1:], eps)
    bits = jnp.where(coupled, 1 << np.arange(len(below), dtype=np.int32)[:, None], 0)
    return jax.lax.reduce(bits, np.int32(0), jax.lax.bitwise_or, (0,))


def _last_block(links: Index) -> tuple[Index, Index]:
    """The first and last row of the last block of at least three rows; zeros where there is none."""
    pairs = links & (links >> 1)
    high = jnp.where(pairs > 0, 33 - jax.lax.clz(pairs), 0)
    gaps = ~links & ((1 << jnp.maximum(high - 1, 0)) - 1)
    return 32 - jax.lax.clz(gaps), high


def _first_column(form: Lanes, low: Index, high: Index, place: Array, sweeps: Index) -> Float[Array, "n lanes"]:
    r"""The first column of $(H - \sigma)(H - \bar\sigma)$ in the block, up to a factor: three entries, where `place` is 0, 1, 2.

    The shift $\sigma$ is the eigenvalue of the block's last two rows and columns that is nearest to the last diagonal entry.
    """
    n = len(form)
    last = np.array([0, -n - 1, -1, -n, -n - 2], np.int32)[:, None] + high * (n + 1)
    first = np.array([0, n + 1, n, 1, 2 * n + 1], np.int32)[:, None] + low * (n + 1)
    at = jnp.concatenate([last, first])
    d, c, dc, cd, cb, e, f, fe, ef, gf = jnp.take_along_axis(form.reshape(n * n, -1), at, axis=0, mode="clip")
    square, _, _, near = _pair(c, d, dc * cd)
    real, square = jnp.where(square >= 0, near, (c + d) / 2), jnp.maximum(-square, 0)
    # Where the iteration does not converge with these shifts, the exceptional shift of LAPACK's dlahqr.
    size = jnp.abs(dc) + jnp.abs(cb)
    stuck = sweeps % 10 == 9
    real, square = jnp.where(stuck, d + 0.75 * size, real), jnp.where(stuck, 0.4375 * size**2, square)
    one, two, three = (e - real) ** 2 + square + fe * ef, fe * (e + f - 2 * real), fe * gf
    total = jnp.abs(one) + jnp.abs(two) + jnp.abs(three)
    x = jnp.where(place == 0, one, jnp.where(place == 1, two, jnp.where(place == 2, three, 0)))
    return x / jnp.where(total > 0, total, 1)


def _reflected(form: Lanes, x: Array, place: Array, start: Array, block: Array, active: Array) -> Lanes:
    """`P form P` within the block, where the reflection `P` maps `x` to a multiple of the first unit vector.

    Except at the start of a sweep, `x` is a column of `form` and is set to this multiple exactly.
    """
    bits = jnp.finfo(form.dtype)
    alpha = jnp.sum(jnp.where(place == 0, x, 0), axis=0)
    rest = jnp.sum(jnp.where(place == 0, 0, x * x), axis=0)
    # Where squares underflow, x is rounding, and no reflection is applied.
    active = active & (rest > bits.tiny / bits.eps)
    norm = jnp.sqrt(alpha * alpha + rest)
    beta = jnp.where(alpha < 0, norm, -norm)
    v = jnp.where(place == 0, alpha - beta, x)
    tau = 2 / jnp.where(active, (alpha - beta) ** 2 + rest, 1)
    turned = form - v[:, None] * jnp.where(block, tau * jnp.sum(v[:, None] * form, axis=0), 0)
    turned = turned - jnp.where(block, tau * jnp.sum(v * turned, axis=1), 0)[:, None] * v
    reduced = (~start & (place == -1)) & (block & (place >= 0))[:, None]
    turned = jnp.where(reduced, jnp.where(place == 0, beta, 0)[:, None], turned)
    return jnp.where(active, turned, form)


def _of_blocks(form: Lanes, links: Index) -> tuple[Float[Array, "n lanes"], Float[Array, "n lanes"]]:
    """The real and imaginary parts of the eigenvalues of the diagonal blocks."""
    n = len(form)
    if n == 1:
        return form[0], jnp.zeros_like(form[0])
    d = _diagonal(form, 0)
    product = _diagonal(form, 1) * _diagonal(form, -1)
    linked = ((links >> np.arange(n - 1, dtype=np.int32)[:, None]) & 1 == 1) & (product != 0)
    square, root, far, near = _pair(d[:-1], d[1:], product)
    mean, real = (d[:-1] + d[1:]) / 2, square >= 0
    above, below = (lambda x: jnp.pad(x, ((0, 1), (0, 0)))), (lambda x: jnp.pad(x, ((1, 0), (0, 0))))
    second = jnp.where(below(linked), below(jnp.where(real, near, mean)), d)
    imag = jnp.where(linked & ~real, root, 0)
    return jnp.where(above(linked), above(jnp.where(real, far, mean)), second), above(imag) - below(imag)


def _pair(upper: Array, lower: Array, product: Array) -> tuple[Array, Array, Array, Array]:
    """The discriminant `s` of a 2x2 matrix with diagonal `(upper, lower)` and given product of the other entries; `sqrt(|s|)`;
    and, where they are real, the eigenvalues far from and near to `lower`."""
    half = (upper - lower) / 2
    square = half * half + product
    root = jnp.sqrt(jnp.abs(square))
    far = half + jnp.where(half < 0, -root, root)
    return square, root, lower + far, lower - product / jnp.where(far == 0, 1, far)


def _diagonal(form: Lanes, below: int) -> Array:
    """The diagonal that lies `below` rows below the main diagonal."""
    n = len(form)
    first = below * n if below > 0 else -below
    return form.reshape(n * n, -1)[first :: n + 1][: n - abs(below)]


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


def off_circle(dtype: Any) -> float:
    """How far from the unit circle a multiplier is not on it: above rounding."""
    return float(np.finfo(dtype).eps) ** 0.6


def inside_circle(values: Any) -> Any:
    """Whether all multipliers, along the last axis of an array of JAX or NumPy, lie inside the unit circle, by more than
    rounding: those of a conservative system lie on it."""
    return abs(values).max(axis=-1, initial=0) < 1 - off_circle(values.dtype)


def outside_circle(values: Any) -> Any:
    """Which multipliers lie outside the unit circle, by more than rounding, each by itself."""
    return abs(values) > 1 + off_circle(values.dtype)


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
