r"""The monomials of a Taylor model: exponents, products, degrees."""

import functools as ft
import itertools

import numpy as np


class Basis:
    r"""All monomials $s^\alpha$ of at most `degree` in `variables` variables, by degree; the first is the constant.

    **Attributes:** `exponents`: shape `(N, variables)`. `degrees`: shape `(N,)`. `factor`: shape `(N, N)`, the index of the
    monomial $s^{\alpha_k - \alpha_i}$ at `[k, i]`, or `N` where there is none: so that the product's coefficient $k$ is
    $\sum_i a_i b_{\mathrm{factor}[k, i]}$ with a zero appended to $b$. `products`: the largest number of terms of such a sum.
    """

    def __init__(self, variables: int, degree: int):
        self.variables, self.degree = variables, degree
        exponents = [
            each
            for total in range(degree + 1)
            for each in itertools.product(range(total, -1, -1), repeat=variables)
            if sum(each) == total
        ]
        self.exponents = np.array(exponents, dtype=int).reshape(len(exponents), variables)
        self.degrees = self.exponents.sum(axis=1)
        at = {each: i for i, each in enumerate(exponents)}
        self._at = at
        n = len(exponents)
        self.factor = np.full((n, n), n)
        for k, whole in enumerate(exponents):
            for i, part in enumerate(exponents):
                rest = tuple(w - p for w, p in zip(whole, part, strict=True))
                self.factor[k, i] = at.get(rest, n)
        self.products = int((self.factor < n).sum(axis=1).max())

    @property
    def size(self) -> int:
        """The number `N` of monomials."""
        return len(self.degrees)

    def index(self, exponents: tuple[int, ...]) -> int:
        """The index of a monomial."""
        return self._at[exponents]

    def linear(self, variable: int) -> int:
        """The index of the monomial $s_j$."""
        return self._at[tuple(int(j == variable) for j in range(self.variables))]


@ft.cache
def basis(variables: int, degree: int) -> Basis:
    """The one `Basis` of these sizes: bases are compared by identity, as static parts of compiled programs."""
    return Basis(variables, degree)


# Balls: a midpoint without a polynomial part.
BALL = basis(0, 0)
