"""Solvers that diffrax does not have, as diffrax solvers: for `diffrax.diffeqsolve` and for `hyjax.Integrator`."""

from .adams import AdamsPECE as AdamsPECE
from .ndf import NDF as NDF
from .radau5 import Radau5 as Radau5
from .rodas5p import Rodas5P as Rodas5P
from .rosenbrock23 import Rosenbrock23 as Rosenbrock23
from .tr_bdf2 import TRBDF2 as TRBDF2
from .trapezoidal import Trapezoidal as Trapezoidal
