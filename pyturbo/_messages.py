"""Values in messages. Text from a file is quoted, printable and short, whatever it contains."""

from __future__ import annotations

import math
import re
from typing import Any

#: Bytes by which a process may have grown when it is given the memory that an error named. Most are pages of
#: libraries: a process has more of them in memory once the system has all of their files in its cache.
GROWTH = 16_000_000

_LONGEST = 120
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def shown(value: Any) -> str:
    """Return `value` as it may appear in a message."""
    if isinstance(value, str):
        value = value[: _LONGEST + 1]
    elif isinstance(value, (list, tuple)):
        value = value[:16]
    elif isinstance(value, dict):
        return f"an object of {len(value)} entries"
    elif isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def label(name: str) -> str:
    """Return a name from a file as messages show it: as it is, or quoted if it has other characters."""
    return name if _PLAIN.fullmatch(name) else shown(name)


def least_size(nbytes: float) -> str:
    """Return a number of bytes for people that is enough, also for a process that is a little larger."""
    nbytes += GROWTH
    return f"{math.ceil(nbytes / 1e6)} MB" if nbytes < 1e10 else f"{math.ceil(nbytes / 1e8) / 10:.1f} GB"


def size(nbytes: float) -> str:
    """Return a number of bytes for people: 12 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"
