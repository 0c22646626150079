"""Small JSON files in the user's folder for caches: what was measured once, and can be measured again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyturbo.errors import FileError
from pyturbo.files.replace import new_file, target_of
from pyturbo.files.write import write_at


def cache_folder() -> Path | None:
    """Return PYTURBO_CACHE, else the user's folder for caches; None if the variable is empty."""
    named = os.environ.get("PYTURBO_CACHE")
    if named is not None:
        return Path(named) if named else None
    home = os.environ.get("HOME")
    if not home:
        return None
    if sys.platform == "darwin":
        return Path(home) / "Library" / "Caches" / "pyturbo"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(home) / ".cache") / "pyturbo"


def read_cached(name: str) -> dict[str, Any]:
    """Return the content of a file that `write_cached` wrote; empty if there is none that can be read."""
    folder = cache_folder()
    if folder is None:
        return {}
    try:
        found = json.loads((folder / name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_cached(name: str, content: dict[str, Any]) -> Path | None:
    """Write a file completely or not at all, and return its path; None if there is no folder for caches."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or error}") from error
    target = target_of("name", folder / name)
    with new_file(target, lambda path: None) as descriptor:
        write_at(descriptor, memoryview(json.dumps(content, indent=1).encode()), 0)
    return target
