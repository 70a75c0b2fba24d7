"""Placeholder for a user function that a saved file refers to by name."""

from typing import Any, NoReturn

import equinox as eqx

# The fields of an optimization and of its constraints that may hold a user function.
FUNCTIONS = ("objective", "function")


class AbsentFunction(eqx.Module):
    """Stands in a loaded result for a function that `hyjax.load` was not given; `ValueError` with the remedy where it is called.

    **Attributes:** `name`: of the function in the file. `source`: a digest of its source, `None` where there was none.
    `path`: of the file.
    """

    name: str = eqx.field(static=True)
    source: str | None = eqx.field(static=True)
    path: str = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> NoReturn:
        raise ValueError(
            f"The function {self.name!r} is needed here, and a file holds no code: this result was loaded from {self.path} "
            f"without it. Give it: hj.load({self.path!r}, functions={{{self.name!r}: ...}})."
        )
