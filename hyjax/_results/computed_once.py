"""Properties of results that are computed when they are first read, and kept beside the result, not in it."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, overload, TypeVar

T = TypeVar("T")


class computed_once(Generic[T]):
    """A property of an immutable object, computed when it is first read.

    `functools.cached_property` keeps its value in the object's `__dict__`, and equinox takes whatever is there for a part of the
    module: a branch whose points have been read would have another PyTree structure than one whose points have not, and JAX
    would compile for it again. Here the value is kept under the object's identity, until the object goes away.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self.compute, self.values, self.__doc__ = compute, {}, compute.__doc__
        self.values: dict[int, tuple[weakref.ref, T]]

    @overload
    def __get__(self, instance: None, owner: type) -> "computed_once[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance, owner) -> Any:
        if instance is None:
            return self
        if id(instance) not in self.values:
            value, key, values = self.compute(instance), id(instance), self.values
            values[key] = weakref.ref(instance, lambda _: values.pop(key)), value
        return self.values[id(instance)][1]

    def known(self, instance: object) -> T | None:
        """The value if it has been computed, without computing it."""
        kept = self.values.get(id(instance))
        return None if kept is None else kept[1]
