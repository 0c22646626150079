"""Targets of `pack`: a new or empty folder, or one with a checkpoint that pack wrote."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from pyturbo.checkpoint.directory import GGUF_TOKENIZER
from pyturbo.checkpoint.manifest import NAME, RESIDENT
from pyturbo.convert.target import COPIED, is_written_by
from pyturbo.files.target import HARMLESS, check_target
from pyturbo.pack import journal
from pyturbo.pack.write import WRITTEN_BY

#: The folder of the records.
EXPERTS = "experts"

_FILES = (NAME, RESIDENT, "config.json", GGUF_TOKENIZER, journal.NAME, *COPIED, *HARMLESS)
_LAYER = re.compile(r"layer-\d{3,6}\.bin")


def check(target: Path, source: Path, force: bool) -> None:
    """Refuse a target where something could be lost. Both paths are free of symbolic links."""
    check_target(target, source, force, "pack", _not_written_by_pack)


def _not_written_by_pack(folder: Path) -> str | None:
    """Return the name of something in a folder that pack did not write; None if it wrote everything."""
    every = sorted(entry.name for entry in folder.iterdir())
    for name in every:
        mode = (folder / name).lstat().st_mode
        if not (stat.S_ISREG(mode) and name in _FILES) and not (stat.S_ISDIR(mode) and name == EXPERTS):
            return name
    for path in sorted(folder.glob(f"{EXPERTS}/*")):
        if not stat.S_ISREG(path.lstat().st_mode) or not (
            _LAYER.fullmatch(path.name) or path.name in HARMLESS
        ):
            return f"{EXPERTS}/{path.name}"
    if not is_written_by(folder / RESIDENT, WRITTEN_BY):
        names = [name for name in every if name not in HARMLESS]
        return RESIDENT if RESIDENT in every else names[0] if names else None
    return None
