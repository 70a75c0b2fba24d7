"""`python -m hyjax` is the command `hyjax`."""

from .cli import main

main()
