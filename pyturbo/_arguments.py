"""Conversion of Python arguments to what the native code takes. A wrong argument is an ArgumentError."""

from __future__ import annotations

import math
import numbers
import operator
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._dtypes import DTYPES, NAMES, code_of
from pyturbo._messages import shown
from pyturbo.errors import ArgumentError

MAX_AXES = 32

#: struct format by dtype code. bfloat16 has none: that of its 16 bits stands for it where formats are read.
FORMATS = (b"f", b"e", b"H", b"b", b"B", b"h", b"H", b"i", b"I", b"q", b"Q", b"?", b"B")

_CODES_OF_FORMATS = {
    **{text.decode(): code for code, text in enumerate(FORMATS)},
    **{text: code_of(dtype) for text, dtype in (("B", "B"), ("H", "H"), ("l", "l"), ("L", "L"), ("c", "B"))},
}


def code_of_format(text: str) -> int:
    """Return the dtype code of a buffer's elements."""
    native = "<" if sys.byteorder == "little" else ">"
    code = _CODES_OF_FORMATS.get(text.lstrip("@=" + native))
    if code is None:
        raise ArgumentError(f"buffer: expected elements of a known type, got format {text!r}")
    return code


def index(what: str, value: Any, least: int = 0, bits: int = 63) -> int:
    """Return an integer of at least `least` and below 2^bits. Other numbers are refused, not rounded."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ArgumentError(f"{what}: expected an integer from {least} on, got {shown(value)}")
    if number > 0 and number >> bits:
        raise ArgumentError(f"{what}: expected an integer below 2^{bits}, got {shown(value)}")
    return number


def real(what: str, value: Any) -> float:
    """Return a number as a float. Texts, and numbers that no float is near, are refused."""
    if not isinstance(value, numbers.Real):
        raise ArgumentError(f"{what}: expected a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{what}: expected a number in range, got {shown(value)}") from None


def path_bytes(what: str, path: Any) -> bytes:
    """Return the name of a file as the system takes it."""
    try:
        encoded = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise ArgumentError(f"{what}: expected the name of a file, got {shown(path)}") from None
    if b"\0" in encoded:
        raise ArgumentError(f"{what}: expected no zero byte, got {shown(path)}")
    return encoded


_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(|[kmgt]i?)b?", re.IGNORECASE)


def byte_count(what: str, value: Any) -> int:
    """Return a positive number of bytes, given as an integer or as text such as "12GB" or "1.5 GiB"."""
    if isinstance(value, bool):
        raise ArgumentError(f"{what}: expected an integer or text, got {value}")
    if not isinstance(value, str):
        return index(what, value, least=1)
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ArgumentError(
            f'{what}: expected bytes such as 12000000000, "12GB" or "12GiB", got {shown(value)}'
        )
    unit = match[2].lower()
    base = 1024 if unit.endswith("i") else 1000
    number = float(match[1]) * base ** " kmgt".index(unit[:1] or " ")
    if not 1 <= number < 2.0**63:
        raise ArgumentError(f"{what}: expected 1 to 2^63 - 1 bytes, got {shown(value)}")
    return int(number)


def flag(what: str, value: Any) -> bool:
    """Return True or False; other values, such as texts, are refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(f"{what}: expected True or False, got {shown(value)}")
    return bool(value)


def token_ids(what: str, tokens: Any) -> NDArray[np.uint32]:
    """Return a token, or a sequence of tokens, as an array."""
    try:
        ids = np.asarray(tokens if np.ndim(tokens) else [operator.index(tokens)])
    except (TypeError, ValueError):
        ids = np.array([-1])
    integers = ids.ndim == 1 and (ids.dtype.kind in "iu" or not ids.size)
    if not integers or (ids.size and not 0 <= ids.min() <= ids.max() < 2**31):
        raise ArgumentError(f"{what}: expected ids from 0 to 2^31 - 1, got {shown(tokens)}")
    return np.ascontiguousarray(ids, np.uint32)


def shape_of(shape: Any, itemsize: int) -> tuple[int, ...]:
    """Return a shape whose size in bytes fits an integer."""
    try:
        given = (shape,) if isinstance(shape, int) or np.ndim(shape) == 0 else tuple(shape)
        extents = tuple([operator.index(extent) for extent in given])
    except (TypeError, ValueError):
        extents = (-1,)
    if min(extents, default=0) < 0:
        raise ArgumentError(f"shape: expected counts that are not negative, got {shown(shape)}")
    if len(extents) > MAX_AXES:
        raise ArgumentError(f"shape: expected at most {MAX_AXES} axes, got {len(extents)}")
    if math.prod(extent for extent in extents if extent) * itemsize >= 2**63:
        raise ArgumentError(f"shape: expected fewer than 2^63 bytes, got {shown(extents)}")
    return extents


def counts_of(what: str, given: Any) -> tuple[int, int, int]:
    """Return the counts of threadgroups or threads along the three axes."""
    try:
        counts = (given,) if np.ndim(given) == 0 else tuple(given)
        x, y, z = (*(operator.index(count) for count in counts), 1, 1, 1)[:3]
    except (TypeError, ValueError):
        counts, x, y, z = (), 0, 0, 0
    if not 1 <= len(counts) <= 3:
        raise ArgumentError(f"{what}: expected one to three counts, got {shown(given)}")
    if not 0 <= min(x, y, z) <= max(x, y, z) < 2**32:
        raise ArgumentError(f"{what}: expected counts below 2^32, got {shown(given)}")
    return x, y, z


def value_bytes(what: str, code: int, components: int, size: int, value: Any) -> bytes:
    """Encode a value argument as the shader's type: a number, a sequence for a vector, bytes for a struct."""
    if NAMES[code] == "raw":
        try:
            raw = bytes(memoryview(value).cast("B"))
        except TypeError:
            raise ArgumentError(f"{what}: expected {size} bytes, got {shown(value)}") from None
        if len(raw) != size:
            raise ArgumentError(f"{what}: expected {size} bytes, got {len(raw)}")
        return raw
    dtype = DTYPES[code]
    try:
        given = [value] if components == 1 else list(value)
        numbers = [_number(n, dtype) for n in given]
        encoded = np.array(numbers).astype(dtype) if dtype.kind in "fV" else np.array(numbers, dtype)
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != components:
        count = f"{components} values of " if components > 1 else ""
        raise ArgumentError(f"{what}: expected {count}{NAMES[code]}, got {shown(value)}")
    return encoded.tobytes().ljust(size, b"\0")


def _number(value: Any, dtype: np.dtype[Any]) -> float:
    """Return a number in the range of a type. Text is refused, and bool takes 0 and 1."""
    if dtype.kind in "fV":
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        return float(value)
    number = int(value) if isinstance(value, np.bool_) else operator.index(value)
    least, most = _limits(dtype)
    if not least <= number <= most:
        raise OverflowError
    return number


@cache
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def path_of(what: str, value: Any) -> Path:
    """Return the path that a caller gave; empty text is refused."""
    try:
        if os.fspath(value):
            return Path(value)
    except TypeError:
        pass
    got = "an empty text" if isinstance(value, str) else type(value).__name__
    raise ArgumentError(f"{what}: expected a path, got {got}")


def callback(what: str, value: Callable[..., Any] | None) -> None:
    """Refuse anything that cannot be called; None stands for no callback."""
    if value is not None and not callable(value):
        raise ArgumentError(f"{what}: expected a function or None, got {shown(value)}")
