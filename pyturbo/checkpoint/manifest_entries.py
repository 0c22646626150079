"""Entries of a manifest, each checked for its type and range."""

from __future__ import annotations

import re
from typing import Any

from pyturbo._messages import label, shown
from pyturbo.checkpoint.config import Format, read_format
from pyturbo.errors import FormatError

_LARGEST = 2**62  # bounds sizes in bytes, and offsets


class Fields:
    """An object of the manifest. A missing or wrong entry is a FormatError that starts with `where`."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where, self.values = where, values

    def named(self, name: str) -> Fields:
        return Fields(f"{self.where}: {name}", self.values)

    def value(self, name: str) -> Any:
        return self.values.get(name)

    def count(self, name: str, least: int) -> int:
        value = self.values.get(name)
        if type(value) is not int or not least <= value <= _LARGEST:
            raise self.wrong(name, f"a number from {least} on")
        return value

    def matching(self, name: str, pattern: re.Pattern[str], expected: str) -> str:
        value = self.values.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise self.wrong(name, expected)
        return value

    def texts(self, name: str, pattern: re.Pattern[str], expected: str) -> list[str]:
        """Return a list of texts that all match."""
        found = self._list(name)
        for text in found:
            if not isinstance(text, str) or not pattern.fullmatch(text):
                raise FormatError(f"{self.where}: {name}: expected {expected}, got {shown(text)}")
        return found

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return a shape, which has no empty axis."""
        value = self.values.get(name)
        if not isinstance(value, list) or len(value) > 2:
            raise self.wrong(name, "at most two sizes")
        if not all(type(size) is int and 1 <= size < 2**31 for size in value):
            raise self.wrong(name, "sizes from 1 on, below 2147483648")
        return tuple(value)

    def group(self, name: str) -> Fields:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(f"{self.where}: {label(name)}", value)

    def groups(self, name: str) -> list[Fields]:
        """Return a list of objects."""
        found = [Fields(f"{self.where}: {name}[{i}]", value) for i, value in enumerate(self._list(name))]
        for fields in found:
            if not isinstance(fields.values, dict):
                raise FormatError(f"{fields.where}: expected an object, got {shown(fields.values)}")
        return found

    def formats(self) -> dict[str, Format | None]:
        """Return the entries, all of which are formats or null."""
        formats: dict[str, Format | None] = {}
        for name, value in self.values.items():
            if value is not None and self.group(name).values.keys() != {"mode", "bits", "group_size"}:
                raise self.wrong(name, "null, or mode, bits and group_size")
            formats[name] = None if value is None else read_format(f"{self.where}: {label(name)}", value)
        return formats

    def wrong(self, name: str, expected: str) -> FormatError:
        got = shown(self.values.get(name))
        return FormatError(f"{self.where}: {label(name)}: expected {expected}, got {got}")

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value
