"""Entries of a configuration, each checked for its type and range."""

from __future__ import annotations

from typing import Any

from pyturbo._messages import shown
from pyturbo.checkpoint.tensors import Tensors
from pyturbo.errors import FormatError

_LARGEST = 1e30  # bounds numbers, so that a product of a few of them fits a double


class Entries:
    """Entries of a configuration. A missing or wrong entry is a FormatError; null counts as missing."""

    def __init__(self, where: str, entries: dict[str, Any]) -> None:
        self._where = where
        self._entries = entries

    @staticmethod
    def of(checkpoint: Tensors) -> Entries:
        return Entries(str(checkpoint.path), checkpoint.config)

    def __contains__(self, name: str) -> bool:
        return self._entries.get(name) is not None

    def count(self, name: str, default: int | None = None) -> int:
        """Return a number of things, at least one."""
        value = self._value(name, default)
        if type(value) is not int or value < 1:
            raise self.wrong(name, "a count")
        if value >= 2**31:
            raise self.wrong(name, "a count below 2147483648")
        return value

    def count_or_none(self, name: str, default: int | None = None) -> int:
        """Return a number of things, which may be zero."""
        value = self._value(name, default)
        return 0 if type(value) is int and value == 0 else self.count(name, default)

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if type(value) not in (int, float):
            raise self.wrong(name, "a number")
        if not abs(value) < _LARGEST:
            raise self.wrong(name, f"a number within {_LARGEST:g} of zero")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def list_of(self, name: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        """Return a list whose items are all of one type."""
        value = self._value(name, default)
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.wrong(name, f"a list of {kind.__name__}")
        return value

    def group(self, *names: str) -> Entries:
        """Return the entries of the first of these objects that exists; without one, no entries."""
        for name in names:
            if name in self:
                value = self._entries[name]
                if not isinstance(value, dict):
                    raise self.wrong(name, "an object")
                return Entries(f"{self._where}: {name}", value)
        return Entries(self._where, {})

    def wrong(self, name: str, expected: str) -> FormatError:
        return FormatError(
            f"{self._where}: {name}: expected {expected}, got {shown(self._entries.get(name))}"
        )

    def _value(self, name: str, default: Any) -> Any:
        value = self._entries.get(name)
        return default if value is None else value
