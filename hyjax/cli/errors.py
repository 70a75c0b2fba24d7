"""The errors of a command."""


class Misuse(Exception):
    """An invalid request: exit status 2."""


class NotFound(Exception):
    """A valid request without a result: exit status 1."""
