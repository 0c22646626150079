"""Checkpoints: directories of safetensors as mlx-lm and transformers write them, and GGUF files.

Nothing in a file is trusted: every count, size, offset and type is checked before it is used. Anything
wrong is a FormatError that names the file and the tensor.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from pyturbo._arguments import path_of
from pyturbo._messages import shown
from pyturbo.checkpoint import hub_cache
from pyturbo.checkpoint._nearby import holds, missing
from pyturbo.checkpoint.checkpoint import Checkpoint
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.gguf_model import GgufCheckpoint
from pyturbo.checkpoint.manifest import NAME as MANIFEST
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.checkpoint.sampling import SamplingDefaults
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.checkpoint.tokenizer import TokenizerSource
from pyturbo.checkpoint.weights import Weights
from pyturbo.errors import FileError, FormatError
from pyturbo.files.replace import is_partial

__all__ = [
    "Checkpoint",
    "SamplingDefaults",
    "TensorInfo",
    "TokenizerSource",
    "Weights",
    "locate",
    "open_checkpoint",
]


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Open a directory with config.json and model*.safetensors, or a .gguf file, without reading tensors.

    If there is no such path, OWNER/NAME is a model in the cache of huggingface_hub, which `pyturbo pull`
    fills: OWNER/NAME@REVISION is one of its revisions, OWNER/NAME:FILE.gguf one of its files.

    Examples:
        >>> from pyturbo.checkpoint import open_checkpoint
        >>> from pyturbo.model import default_model
        >>> with open_checkpoint(default_model()) as checkpoint:
        ...     len(checkpoint), checkpoint["language_model.model.norm.weight"].shape
        (354, (256,))
    """
    place = locate(path)
    if is_partial(place):
        raise FormatError(f"{place}: expected a complete checkpoint, got an unfinished one")
    if place.is_dir():
        if not (place / "config.json").is_file():
            hint = "; name the .gguf file itself" if any(place.glob("*.gguf")) else ""
            raise FormatError(
                f"{place}: expected a directory with config.json, it holds {holds(place)}{hint}"
            )
        return PackedCheckpoint(place) if (place / MANIFEST).exists() else DirectoryCheckpoint(place)
    if place.suffix.lower() != ".gguf":
        raise FormatError(f"{place}: expected a directory with config.json or a .gguf file")
    return GgufCheckpoint(place)


def locate(path: str | PathLike[str]) -> Path:
    """Return `path` if it exists, otherwise the model with this id in the cache of huggingface_hub."""
    try:
        place = path_of("path", path)
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        wanted = hub_cache.model_id(str(path))
        found = None if wanted is None else hub_cache.find(wanted)
        if found is None:
            raise FileError(f"{path}: no such file or directory{missing(place, wanted)}") from None
        return found
    except (OSError, ValueError) as error:
        raise FileError(f"{shown(path)}: cannot be opened: {error}") from None
    return place
