"""The small files of a packed checkpoint: the configuration, and those that are copied from the source."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.directory import GGUF_TOKENIZER, DirectoryCheckpoint
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.gguf_model import GgufCheckpoint
from pyturbo.checkpoint.manifest import PackedFile
from pyturbo.convert.folder import copied_files, copy_file, write_json
from pyturbo.pack.checksums import range_checksum
from pyturbo.pack.plan import Plan


class SmallFiles:
    """The files beside the tensors of a checkpoint, open until `opened` closes them."""

    def __init__(self, checkpoint: Checkpoint, plan: Plan, opened: ExitStack) -> None:
        self._checkpoint, self._plan = checkpoint, plan
        self._copied: list[TensorFile] = []
        if isinstance(checkpoint, DirectoryCheckpoint):
            config = TensorFile(checkpoint.path / "config.json")
            opened.callback(config.close)
            self._copied = [config, *copied_files(checkpoint.path, opened)]

    @property
    def names(self) -> list[str]:
        return [file.path.name for file in self._copied] or ["config.json", GGUF_TOKENIZER]

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self._copied)

    def write(self, folder: Path) -> dict[str, PackedFile]:
        """Write all files, and return their sizes and checksums by name."""
        for file in self._copied:
            copy_file(file, folder / file.path.name)
        if isinstance(self._checkpoint, GgufCheckpoint):
            write_json(folder / "config.json", self._checkpoint.config | _quantization(self._plan))
            (folder / GGUF_TOKENIZER).write_bytes(self._checkpoint.without_tensors())
        return {name: packed_file(folder / name) for name in self.names}


def packed_file(path: Path) -> PackedFile:
    """Return the size and the checksum of a file."""
    file = TensorFile(path)
    try:
        return PackedFile(file.size, range_checksum(file, 0, file.size))
    finally:
        file.close()


def _quantization(plan: Plan) -> dict[str, Any]:
    """Return the entries of a configuration that state the formats of all weights outside of records."""
    formats = {
        job.outputs["weight"].name.removesuffix(".weight"): job.stream.format
        for job in plan.residents
        if job.stream.format is not None
    }
    if not formats:
        return {}
    ((common, _),) = Counter(formats.values()).most_common(1)
    entry: dict[str, Any] = asdict(common) if common is not None else {}
    for path, form in formats.items():
        if form is not None and form != common:
            entry[path] = asdict(form)
    return {"quantization": entry, "quantization_config": entry}
