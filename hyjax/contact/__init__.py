"""Rigid bodies with unilateral constraints and friction, as hybrid systems."""

from ._contact import Contact as Contact
from ._mechanism import lagrangian as lagrangian, Mechanism as Mechanism
from ._one import contact_system as contact_system
from ._several import contacts_system as contacts_system
