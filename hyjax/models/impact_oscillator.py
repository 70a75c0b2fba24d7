"""The former name of `hyjax.models.duffing_impact_oscillator`."""

from .duffing_impact_oscillator import *  # noqa: F403
