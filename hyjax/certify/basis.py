r"""The monomials of a Taylor model: exponents, products, degrees."""

import functools as ft
import itertools

import numpy as np


class Basis:
    r"""All monomials $s^\alpha$ of at most `degree` in `variables` variables, by degree; the first is the constant.

    **Attributes:** `exponents`: shape `(N, variables)`. `degrees`: shape `(N,)`. `left`, `right`: the pairs of monomials whose
    product is a monomial, sorted by the product, shape `(pairs,)`. `products`: the largest number of pairs with one product.
    `place`: the pairs of each product, shape `(N, products)`; the number of all pairs where there are fewer.
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
        found = []
        for whole in exponents:
            rests = [(part, tuple(w - p for w, p in zip(whole, part, strict=True))) for part in exponents]
            found.append([(at[part], at[rest]) for part, rest in rests if rest in at])
        self.products = max(len(each) for each in found)
        pairs = [pair for each in found for pair in each]
        self.left, self.right = np.array(pairs).T
        # Sorted by the product.
        self.place = np.full((len(found), self.products), len(pairs))
        for k, each in enumerate(found):
            self.place[k, : len(each)] = sum(len(before) for before in found[:k]) + np.arange(len(each))

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
