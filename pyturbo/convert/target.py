"""Targets of a conversion: a new or empty folder, or one with a checkpoint that convert wrote."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from pyturbo.checkpoint import safetensors
from pyturbo.errors import FileError, FormatError

#: Metadata of files that convert writes, in addition to their format.
WRITTEN_BY = {"written_by": "pyturbo convert"}

INDEX = "model.safetensors.index.json"

#: Files that are copied from the source.
COPIED = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)

_SHARD = re.compile(r"model(-\d{5,}-of-\d{5,})?\.safetensors")
_HARMLESS = (".DS_Store",)  # files that file managers put into folders
_MOUNTS = Path("/proc/self/mountinfo")  # Linux only


def check(target: Path, source: Path, force: bool) -> None:
    """Refuse a target where something could be lost. Both paths are free of symbolic links."""
    for inner, outer in ((target, source), (source, target)):
        if any(_same(folder, outer) for folder in (inner, *inner.parents)):
            raise FileError(
                f"{target}: expected a folder apart from the source {source}, got "
                + ("the source itself" if _same(target, source) else "one that lies in the other")
            )
    if not target.parent.is_dir():
        raise FileError(f"{target.parent}: expected a folder to write to, found none")
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise FileError(f"{target}: expected a folder to write, got a file; delete it or name another")
    if _same(target, Path()):
        raise FileError(f"{target}: expected a folder that can be renamed, got the current one; name another")
    if _is_mount_point(target):
        raise FileError(
            f"{target}: expected a folder that can be renamed, got a mount point; name a new folder in it"
        )
    if not os.access(target, os.W_OK):
        raise FileError(f"{target}: cannot be written: it is read-only")
    if not any(target.iterdir()):
        return
    if (foreign := _not_written_by_convert(target)) is not None:
        raise FileError(
            f"{target}: already exists and holds {foreign}, which this convert did not write; "
            "delete the folder yourself or name another"
        )
    if not force:
        raise FileError(f"{target}: already exists; --force, or force=True, replaces it")


def _same(one: Path, other: Path) -> bool:
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _is_mount_point(folder: Path) -> bool:
    """Return whether something is mounted there, even a folder of the same file system."""
    if os.path.ismount(folder):
        return True
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    name = re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % ord(match[0]), os.fsencode(folder))
    return any(line.split(b" ")[4:5] == [name] for line in lines)


def _not_written_by_convert(folder: Path) -> str | None:
    """Return the name of something in a folder that convert did not write; None if it wrote everything."""
    every = sorted(entry.name for entry in folder.iterdir())
    shards = [name for name in every if _SHARD.fullmatch(name)]
    for name in every:
        ours = name in shards or name in ("config.json", INDEX, *COPIED, *_HARMLESS)
        if not ours or not stat.S_ISREG((folder / name).lstat().st_mode):
            return name
    names = [name for name in every if name not in _HARMLESS]
    for name in shards:
        try:
            _, metadata = safetensors.read_header(folder / name)
        except (FileError, FormatError):
            return name
        if not WRITTEN_BY.items() <= metadata.items():
            return name
    return None if shards else names[0] if names else None
