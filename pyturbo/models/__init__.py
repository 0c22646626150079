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


def known() -> list[str]:
    """The architectures there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def build(checkpoint: Checkpoint, progress: Progress | None = None) -> Decoder:
    """The network of a checkpoint, with its weights. A tensor that no layer has a use for is an error."""
    name = checkpoint.config["model_type"]
    if name not in known():
        raise FormatError(
            f"{checkpoint.path}: model_type: expected one of {', '.join(known())}, got {name!r}"
        )
    module: Any = importlib.import_module(f"pyturbo.models.{name}")
    weights = checkpoint.weights()
    weights.preload(progress)
    network: Decoder = module.build(Entries.of(checkpoint), weights)
    if unused := weights.unused():
        raise FormatError(
            f"{checkpoint.path}: expected the tensors of {name}, found {len(unused)} others: "
            f"{', '.join(unused[:3])}{', ...' if len(unused) > 3 else ''}"
        )
    return network
