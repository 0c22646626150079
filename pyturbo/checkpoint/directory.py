"""A directory with config.json and model*.safetensors, as mlx-lm or transformers writes it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from pyturbo._messages import shown
from pyturbo.checkpoint import json_file, safetensors
from pyturbo.checkpoint.checkpoint import Checkpoint
from pyturbo.checkpoint.config import Quantization, read_config
from pyturbo.checkpoint.directory_weights import DirectoryWeights
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.gguf_model import read_text_parts
from pyturbo.checkpoint.sampling import directory_sampling
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.checkpoint.tokenizer import huggingface_source
from pyturbo.errors import FileError, FormatError

#: A GGUF file without tensors, in a directory that was made of one: its tokenizer and sampling defaults.
GGUF_TOKENIZER = "tokenizer.gguf"

_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-(\d{1,6})-of-(\d{1,6})\.safetensors")

_log = logging.getLogger("pyturbo.checkpoint")


class DirectoryCheckpoint(Checkpoint):
    """One safetensors file, or several with an index."""

    def __init__(self, path: Path) -> None:
        config = read_config(path / "config.json")
        quantization = Quantization(path / "config.json", config)
        files, weight_map = weight_files(path)
        tensors: dict[str, TensorInfo] = {}
        formats = set()
        for name in files:
            found, metadata = _shard(path / name)
            formats.add(metadata.get("format", ""))
            for key, info in found.items():
                if weight_map is None and key in tensors:
                    raise FormatError(f"{info}: is in {tensors[key].file.path.name} too")
                if weight_map is None or weight_map.get(key) == name:
                    tensors[key] = info
                elif key not in weight_map:
                    _log.warning("%s: is not in the index and is not used", info)
        for key, name in (weight_map or {}).items():
            if key not in tensors:
                raise FormatError(
                    f"{path / name}: {shown(key)}: expected this tensor of the index, found none"
                )
        super().__init__(path, tensors)
        self.config = config
        self.tokenizer = huggingface_source(path, config)
        self.sampling = directory_sampling(path)
        if (path / GGUF_TOKENIZER).is_file():
            self.tokenizer, self.sampling = read_text_parts(path / GGUF_TOKENIZER)
        #: The formats that the config states.
        self.quantization = quantization
        self._format = "mlx" if formats == {"mlx"} else ""

    def weights(self, layout: FileLayout | None = None, values: bool = True) -> DirectoryWeights:
        return DirectoryWeights(self, layout or FileLayout(), self.quantization, self._format, values)


def weight_files(path: Path) -> tuple[list[str], dict[str, str] | None]:
    """List the safetensors files of a directory, with its index if it has one; none may be missing."""
    index = path / _INDEX
    weight_map = _weight_map(index) if index.is_file() else None
    return _files(path) if weight_map is None else _listed_files(index, weight_map), weight_map


def _shard(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    try:
        return safetensors.read_header(path)
    except FileError as error:
        raise FormatError(str(error)) from None


def _weight_map(index: Path) -> dict[str, str]:
    value: Any = json_file.read_object(index).get("weight_map")
    if not isinstance(value, dict) or not value:
        raise FormatError(f"{index}: weight_map: expected an object of file names, got {shown(value)}")
    return value


def _listed_files(index: Path, weight_map: dict[str, str]) -> list[str]:
    """Return the names of the shards, which must be plain names of files beside the index."""
    present = {entry.name for entry in index.parent.iterdir()}
    files: dict[str, None] = {}
    for key, name in weight_map.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or "/" in name or "\\" in name:
            raise FormatError(f"{index}: {shown(key)}: expected the name of a shard, got {shown(name)}")
        if name not in present:
            raise FormatError(f"{index}: {shown(key)}: expected a file {shown(name)}, found none")
        files[name] = None
    return sorted(files)


def _files(directory: Path) -> list[str]:
    """List all model*.safetensors; if their names are numbered, none may be missing."""
    names = sorted(entry.name for entry in directory.glob("model*.safetensors"))
    if not names:
        raise FormatError(f"{directory}: expected model*.safetensors, found none")
    numbered = [match for match in map(_SHARD.fullmatch, names) if match]
    counts = {int(match[2]) for match in numbered}
    if numbered and (len(counts) > 1 or {int(m[1]) for m in numbered} != set(range(1, max(counts) + 1))):
        raise FormatError(f"{directory}: expected all shards 1 to {max(counts)}, got {shown(names)}")
    return names
