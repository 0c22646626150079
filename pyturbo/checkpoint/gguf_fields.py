"""Metadata of a GGUF file, each entry checked for its type and range."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pyturbo._messages import shown
from pyturbo.checkpoint.tokenizer import token_ids
from pyturbo.errors import FormatError

_NAME = re.compile(r"[\w.-]{1,64}")


class Fields:
    """Metadata, checked for the types it must have; "{}" in a key stands for the architecture."""

    def __init__(self, path: Path, metadata: dict[str, Any]) -> None:
        self.path = path
        self.architecture = ""
        self._metadata = metadata

    def __contains__(self, key: str) -> bool:
        return self._value(key, None) is not None

    def integer(self, key: str, default: int | None = None, smallest: int = 1) -> int:
        value = self._value(key, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()  # the file has one value for each layer
        if type(value) is not int or not smallest <= value < 2**31:
            self.refuse(key, f"a number from {smallest} on", value)
        return int(value)

    def is_list(self, key: str) -> bool:
        return isinstance(self._value(key, None), np.ndarray)

    def each(self, key: str) -> list[int] | None:
        """Return the values of a list, one for each layer; None if there is no such entry."""
        value = self._value(key, None)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iub":
            self.refuse(key, "a list of numbers", value)
        return [int(item) for item in value]

    def is_zero(self, key: str) -> bool:
        value = self._value(key, None)
        return type(value) in (int, float) and value == 0

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if type(value) not in (int, float) or not (math.isfinite(value) and value > 0):
            self.refuse(key, "a positive number", value)
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            self.refuse(key, "text", value)
        return str(value)

    def name(self, key: str) -> str:
        value = self.text(key)
        if not _NAME.fullmatch(value):
            self.refuse(key, "a short name", value)
        return value

    def flag(self, key: str) -> bool | None:
        value = self._value(key, None)
        if value is not None and not isinstance(value, bool):
            self.refuse(key, "true or false", value)
        return value

    def texts(self, key: str) -> list[str]:
        value = self._metadata.get(key, [])
        if not isinstance(value, list):
            self.refuse(key, "a list of texts", value)
        return list(value)

    def numbers(self, key: str, kinds: str) -> Any:
        value = self._metadata.get(key, np.empty(0, np.int32))
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds + "iu":
            self.refuse(key, "a list of numbers", value)
        return value.tolist()

    def token_id(self, key: str, count: int) -> int | None:
        ids = token_ids(self.path, key, self._metadata.get(key))
        if any(i >= count for i in ids):
            self.refuse(key, f"a token below {count}", ids)
        return ids[0] if ids else None

    def refuse_set(self, key: str, what: str) -> None:
        """Refuse an entry, for `what` is not supported, unless it is missing or 0."""
        value = self._value(key, 0)
        if isinstance(value, np.ndarray) or value:
            self.refuse(key, f"0, because {what} are not supported", value)

    def _value(self, key: str, default: Any) -> Any:
        return self._metadata.get(key.replace("{}", self.architecture), default)

    def refuse(self, key: str, expected: str, value: Any) -> NoReturn:
        """Raise the error about an entry."""
        got = "nothing" if value is None else shown(value)
        raise FormatError(
            f"{self.path}: {key.replace('{}', self.architecture)}: expected {expected}, got {got}"
        )
