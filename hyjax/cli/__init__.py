"""The command line `hyjax`."""

from .app import main as main
