"""Targets of a conversion: a new or empty folder, or one with a checkpoint that convert wrote."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from pyturbo.checkpoint import safetensors
from pyturbo.errors import FileError, FormatError
from pyturbo.files.target import HARMLESS, check_target

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


def check(target: Path, source: Path, force: bool) -> None:
    """Refuse a target where something could be lost. Both paths are free of symbolic links."""
    check_target(target, source, force, "convert", _not_written_by_convert)


def _not_written_by_convert(folder: Path) -> str | None:
    """Return the name of something in a folder that convert did not write; None if it wrote everything."""
    every = sorted(entry.name for entry in folder.iterdir())
    shards = [name for name in every if _SHARD.fullmatch(name)]
    for name in every:
        ours = name in shards or name in ("config.json", INDEX, *COPIED, *HARMLESS)
        if not ours or not stat.S_ISREG((folder / name).lstat().st_mode):
            return name
    names = [name for name in every if name not in HARMLESS]
    for name in shards:
        if not is_written_by(folder / name, WRITTEN_BY):
            return name
    return None if shards else names[0] if names else None


def is_written_by(path: Path, metadata: Mapping[str, str]) -> bool:
    """Return whether a file is safetensors with this metadata."""
    try:
        _, found = safetensors.read_header(path)
    except (FileError, FormatError):
        return False
    return metadata.items() <= found.items()
