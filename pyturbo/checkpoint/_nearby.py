"""Suggestions for paths that do not exist."""

from __future__ import annotations

import difflib
from pathlib import Path

from pyturbo._messages import shown
from pyturbo.checkpoint import hub_cache

_MOST = 5


def missing(path: Path, wanted: hub_cache.ModelId | None = None) -> str:
    """Return the hint after "no such file or directory" for `path`, which may be the id of a model."""
    if path.is_symlink():
        return f": it is a link to {path.readlink()}"
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    if folder == path.parent:
        names = _names(folder)
        near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
        if near:
            return f"; {folder} has {_listed(near)}"
    if wanted is not None:
        near = difflib.get_close_matches(wanted.repository, hub_cache.models(), n=3, cutoff=0.6)
        cached = f"; the cache has {_listed(near)}" if near else ""
        return f"{cached}; if it is the name of a model on the Hugging Face hub: {wanted.pull}"
    return f"; {folder} holds {holds(folder)}"


def holds(folder: Path) -> str:
    """Return the first few names in a folder, for messages."""
    names = _names(folder)
    rest = len(names) - _MOST
    return _listed(names[:_MOST]) + (f" and {rest} more" if rest > 0 else "") if names else "nothing"


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def _listed(names: list[str]) -> str:
    return ", ".join(map(shown, names))
