"""Values computed without JAX, at 18 to 40 digits, kept as strings in `reference.json`.

A, B, C: Taylor series at 75 to 90 digits, with events by Newton's method on the polynomial; each repeated at another
precision. E: exact rationals. F: closed form. `B_branch`: the same gaits by another Taylor code (`make_reference.py`).
"""

import json
import pathlib
from fractions import Fraction

import numpy as np

_CASES = json.loads((pathlib.Path(__file__).parent / "reference.json").read_text())


def numbers(value):
    """The strings of a record as float64; a fraction such as `2/3` is rounded once."""
    if isinstance(value, dict):
        return {key: numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        rows = [numbers(each) for each in value]
        return rows if rows and isinstance(rows[0], dict) else np.array(rows)
    if isinstance(value, str):
        try:
            return float(Fraction(value))
        except ValueError:
            return value
    return value


def exact(name: str) -> dict:
    """The record of a case, as strings."""
    return _CASES[name]


def case(name: str, *keys: str):
    """A record of the reference, as numbers."""
    record = exact(name)
    for key in keys:
        record = record[key]
    return numbers(record)
