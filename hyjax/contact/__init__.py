"""Rigid bodies with unilateral constraints and friction, as hybrid systems."""

from .contact import Contact as Contact
from .contact_set import set_name as set_name, start as start
from .mechanism import lagrangian as lagrangian, Mechanism as Mechanism
from .mode_of import mode_of as mode_of
from .several_contacts import contacts_system as contacts_system
from .single_contact import contact_system as contact_system
