"""One file per architecture, named as the checkpoint's ``model_type``. Adding a model is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.errors import FormatError
from pyturbo.models._config import Entries
from pyturbo.models._decoder import Decoder
from pyturbo.models._outline import Outline


def known() -> list[str]:
    """The architectures there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def build(checkpoint: Checkpoint, progress: Progress | None = None) -> Decoder:
    """The network of a checkpoint, with its weights. A tensor that no layer has a use for is an error."""
    module = _module(checkpoint)
    weights = checkpoint.weights()
    weights.preload(progress)
    network: Decoder = module.build(Entries.of(checkpoint), weights)
    if unused := weights.unused():
        raise other_tensors(checkpoint, unused)
    return network


def other_tensors(checkpoint: Checkpoint, names: list[str]) -> FormatError:
    """The error for tensors that the architecture has no use for."""
    return FormatError(
        f"{checkpoint.path}: expected the tensors of {checkpoint.config['model_type']}, "
        f"found {len(names)} others: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    )


def outline(checkpoint: Checkpoint) -> tuple[Decoder, Outline]:
    """The network of a checkpoint without values, and what it asks for. Only headers are read."""
    asked = Outline(checkpoint.weights())
    network: Decoder = _module(checkpoint).build(Entries.of(checkpoint), asked)
    return network, asked


def _module(checkpoint: Checkpoint) -> Any:
    name = checkpoint.config["model_type"]
    if name not in known():
        raise FormatError(
            f"{checkpoint.path}: model_type: expected one of {', '.join(known())}, got {name!r}"
        )
    return importlib.import_module(f"pyturbo.models.{name}")
