"""JSON from untrusted files: one object, no duplicate keys, only finite numbers, bounded size."""

from __future__ import annotations

import codecs
import json
import math
from pathlib import Path
from typing import Any, NoReturn

from pyturbo._messages import shown
from pyturbo.checkpoint.file import TensorFile
from pyturbo.errors import FormatError

#: The largest JSON text that is read, in bytes; safetensors sets the same limit for its header.
LONGEST = 100_000_000


#: Entries of generation_config.json that decide where a reply ends; none may occur twice.
_DECISIVE = ("bos_token_id", "eos_token_id")


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file."""
    return parse_object(read_bytes(path), str(path))


def read_generation_config(path: Path) -> dict[str, Any]:
    """Read the object in a generation_config.json, of which little is used.

    A byte order mark, numbers that are not finite and duplicate keys are accepted; the last of duplicate
    keys counts. Duplicate keys for token ids are an error.
    """
    data = read_bytes(path).removeprefix(codecs.BOM_UTF8)
    return _object(data, str(path), object_pairs_hook=_last)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file that is not too large for JSON."""
    file = TensorFile(path)
    try:
        if file.size > LONGEST:
            raise FormatError(f"{path}: expected at most {LONGEST} bytes of JSON, got {file.size}")
        return file.bytes(0, file.size)
    finally:
        file.close()


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in `data`; messages start with `where`."""
    return _object(data, where, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refused)


def _object(data: bytes, where: str, **hooks: Any) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), **hooks)
    except RecursionError:
        raise FormatError(f"{where}: JSON is nested too deeply") from None
    except ValueError as error:  # so is text that is not UTF-8, or a number of thousands of digits
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


def _last(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _unique([pair for pair in pairs if pair[0] in _DECISIVE])
    return dict(pairs)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number {shown(text)} is out of range")
    return number


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
