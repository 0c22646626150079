"""JSON from untrusted files: one object, no duplicate keys, only finite numbers, bounded size."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from pyturbo.checkpoint._shown import shown
from pyturbo.checkpoint.file import TensorFile
from pyturbo.errors import FormatError

#: The longest JSON text that is read; also the limit that safetensors sets for its header.
LONGEST = 100_000_000


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    file = TensorFile(path)
    try:
        if file.size > LONGEST:
            raise FormatError(f"{path}: expected at most {LONGEST} bytes of JSON, got {file.size}")
        return parse_object(file.bytes(0, file.size), str(path))
    finally:
        file.close()


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` holds; `where` starts the messages."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_finite,
            parse_constant=_refused,
        )
    except RecursionError:
        raise FormatError(f"{where}: JSON is nested too deeply") from None
    except ValueError as error:  # also what is not UTF-8, and numbers of thousands of digits
        raise FormatError(f"{where}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{where}: expected a JSON object, got {shown(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {shown(key)}")
            seen.add(key)
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number {shown(text)} is out of range")
    return number


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
