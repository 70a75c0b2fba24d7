"""Papers, done again: their numbers or their formulas, beside ours."""

from ._bhounsule import bhounsule as bhounsule
from ._saltation import saltation as saltation
