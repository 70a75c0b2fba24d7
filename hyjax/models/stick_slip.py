"""The former name of `hyjax.models.friction_oscillator`."""

from .friction_oscillator import *  # noqa: F403
