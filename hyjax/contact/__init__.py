"""Rigid bodies with unilateral constraints and friction, as hybrid systems."""

from .contact import Contact as Contact
from .contact_system import contact_system as contact_system, set_name as set_name
from .mechanism import lagrangian as lagrangian, Mechanism as Mechanism
from .start import start as start
from .strike import impact as impact, relabelling as relabelling
