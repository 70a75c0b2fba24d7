"""Solvers that diffrax does not have, as diffrax solvers: for `diffrax.diffeqsolve` and for `hyjax.Integrator`."""

from .multistep import AdamsPECE as AdamsPECE, NDF as NDF
from .radau5 import Radau5 as Radau5
from .rosenbrock import Rodas5P as Rodas5P, Rosenbrock23 as Rosenbrock23
from .trapezoidal import Trapezoidal as Trapezoidal, TRBDF2 as TRBDF2
