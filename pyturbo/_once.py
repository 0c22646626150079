"""An attribute that is computed when it is first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801  reads as the decorator it is
    """Like `functools.cached_property`, but without the lock that it has in Python 3.10 and 3.11.

    In a child of fork() such a lock may never be unlocked. Two threads may both compute the value; one stays.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._name = compute, compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> once[Value]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: object | None, kind: type) -> once[Value] | Value:
        if owner is None:
            return self
        value: Value = owner.__dict__.setdefault(self._name, self._compute(owner))
        return value
