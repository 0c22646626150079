"""Session files taken apart and put together as docs/session-file.md says, to change them."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from pyturbo.engine import session_file


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and state."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<I", data, 20)
    return json.loads(data[24 : 24 + length]), data[24 + length + 32 : -32]


def encoded(header: bytes, state: bytes = b"", version: int = session_file.VERSION) -> bytes:
    """A file whose checksums are right whatever its header says."""
    data = session_file.MAGIC + struct.pack("<II", version, len(header)) + header
    data += hashlib.sha256(data).digest() + state
    return data + hashlib.sha256(data).digest()


def change(path: Path, **entries: Any) -> None:
    """Write other entries into the header of a file."""
    header, state = parts(path)
    path.write_bytes(encoded(json.dumps(header | entries).encode(), state))
