"""The former name of `hyjax.models.linear_impact_oscillator`."""

from .linear_impact_oscillator import *  # noqa: F403
