"""Rigid bodies with unilateral constraints and friction, as hybrid systems."""

from .contact import Contact as Contact
from .mechanism import lagrangian as lagrangian, Mechanism as Mechanism
from .named_sets import set_name as set_name
from .single_contact import contact_system as contact_system
from .start import start as start
from .strike import impact as impact, relabelling as relabelling
