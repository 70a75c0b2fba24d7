"""The former name of `hyjax.models.impact_microactuator`."""

from .impact_microactuator import *  # noqa: F403
