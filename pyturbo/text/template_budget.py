"""Limits on the cost of one rendering of a template."""

from __future__ import annotations

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sized, ValuesView
from types import MethodType
from typing import Any

#: Limits of one rendering; steps and characters grow with the messages.
STEPS = 10_000_000
CHARACTERS = 64_000_000
SECONDS = 10.0
#: Number of passes over all text of the messages that steps and characters allow.
PASSES = 64
DEPTH = 200

_ENTRY = 64  # characters that an entry of a container counts as
_SHIFT = 4  # reading 16 characters counts as one step
_INTERVAL = 1000  # steps between two checks of the clock
_KEPT = 4096  # containers whose size is remembered
_SCALARS = frozenset((int, float, bool, type(None)))
_CONTAINERS = (list, tuple, dict, set, frozenset, Mapping, KeysView, ItemsView, ValuesView)


class LimitError(Exception):
    """A template exceeded a limit. Jinja handles no exception of this class."""


class Budget:
    """The steps, time and text that one rendering may still use. It belongs to one thread.

    A step is about one node of the template; text counts when it is created, even if it is freed later.
    """

    def __init__(self, given: Any) -> None:
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._left = 0
        size = self._measure(given, DEPTH)[0]
        self._steps = STEPS + (size * PASSES >> _SHIFT)
        self._characters = CHARACTERS + size * PASSES
        self._left, self._room = self._steps, self._characters
        self._next_look = self._left
        self._deadline = time.monotonic() + SECONDS

    def spend(self, steps: int) -> None:
        """Count steps."""
        self._left -= steps
        if self._left < self._next_look:
            self._look()

    def read(self, characters: int) -> None:
        """Count the steps of reading text."""
        self.spend(1 + (characters >> _SHIFT))

    def make(self, characters: int) -> None:
        """Count text before it is created."""
        self._room -= characters
        if self._room < 0:
            raise LimitError(f"expected at most {self._characters:,} characters, got more")
        self.spend(1 + (characters >> _SHIFT))

    def make_entries(self, count: int) -> None:
        """Count the entries of a container before it is created."""
        self.make(count * _ENTRY)

    def size(self, value: Any) -> int:
        """Return about how long a value is as text; a part that occurs twice counts twice."""
        if type(value) is str:
            return len(value)
        if type(value) in _SCALARS:
            return _ENTRY
        if isinstance(value, (str, bytes)):
            return len(value)
        if type(value) is MethodType:  # its text may include the object it is bound to
            return self._measure(value, DEPTH)[0]
        return self._measured(value)[0] if isinstance(value, _CONTAINERS) else _ENTRY

    def hold(self, value: Any) -> Any:
        """Return the value, unless it is larger or deeper than allowed."""
        if type(value) not in _SCALARS and isinstance(value, _CONTAINERS):
            size = self._measured(value)[0]
            if size > self._characters:
                raise LimitError(f"expected at most {self._characters:,} characters in one value, got more")
        return value

    def counted(self, values: Any) -> Counted | CountedOnce:
        return (Counted if isinstance(values, Sized) else CountedOnce)(self, values, 1)

    def _look(self) -> None:
        if self._left < 0:
            raise LimitError(f"expected at most {self._steps:,} steps, got more")
        if time.monotonic() > self._deadline:
            raise LimitError(f"expected at most {SECONDS:g} seconds, got more")
        self._next_look = self._left - _INTERVAL

    def _measured(self, value: Any) -> tuple[int, int]:
        """Return size and depth of a container."""
        if len(self._known) > _KEPT:
            self._known.clear()
        measured = self._measure(value, DEPTH)
        self.spend(1)
        return measured

    def _measure(self, value: Any, depth: int) -> tuple[int, int]:
        """Return size and depth of a value, and count a step for each entry."""
        if type(value) is str or isinstance(value, (str, bytes)):
            return len(value), 0
        if type(value) is MethodType and isinstance(value.__self__, str):
            return _ENTRY + len(value.__self__), 0
        if type(value) in _SCALARS or not isinstance(value, _CONTAINERS):
            return _ENTRY, 0
        known = self._known.get(id(value))
        if known is None:
            if depth == 0:
                raise LimitError(f"expected at most {DEPTH} levels of nested values, got more")
            size, deepest = 0, 0
            for entry in _entries(value):
                self._left -= 1
                length, levels = self._measure(entry, depth - 1)
                size, deepest = size + length + _ENTRY, max(deepest, levels)
            known = self._known[id(value)] = value, size, deepest + 1
        if known[2] > depth:
            raise LimitError(f"expected at most {DEPTH} levels of nested values, got more")
        return known[1], known[2]


class CountedOnce:
    """Values that cost steps when they are iterated over."""

    def __init__(self, budget: Budget, values: Iterable[Any], steps: int) -> None:
        self._budget, self._values, self._steps = budget, values, steps

    def __iter__(self) -> Iterator[Any]:
        spend, steps = self._budget.spend, self._steps
        for value in self._values:
            spend(steps)
            yield value


class Counted(CountedOnce):
    """Such values whose number is known."""

    def __len__(self) -> int:
        return len(self._values)  # type: ignore[arg-type]


def _entries(container: Any) -> Iterable[Any]:
    if isinstance(container, Mapping):
        for key, entry in container.items():
            yield key
            yield entry
    else:
        yield from container
