"""Elementary functions of floats with rigorous radii, for float64 arrays of any shape.

Each gives a value and a radius, `|f(a) - value| <= radius` for the number `a`; `sin_cos` gives both pairs. The radius is infinite
where `f` is not defined or nothing is known, and never NaN; the value is always finite. They are elementwise, and work under
`jit` and `vmap`. What is assumed of the machine and of the compiler, and what holds of arguments that are themselves results of
floating-point operations: see `rounding`. Method, proof and source: see the files.
"""

from .arctangent import acos as acos, asin as asin, atan as atan
from .exponential import exp as exp, expm1 as expm1, tanh as tanh
from .logarithm import log as log, power as power
from .roots import cbrt as cbrt, reciprocal as reciprocal, sqrt as sqrt
from .trigonometric import sin_cos as sin_cos
