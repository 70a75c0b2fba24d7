r"""The floating-point model of the enclosures, and the constants that bound its errors."""

UNIT = 2.0**-53 * (1 + 2.0**-20)
EPS = 2.0**-51
TINY = 1e-290


def up(radius, n: int = 1):
    """An upper bound of an expression of non-negative terms, of some 8 n roundings."""
    return radius * (1 + 2.0**-49 * n)
