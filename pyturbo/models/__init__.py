"""One file per architecture, named as the checkpoint's ``model_type``. Adding a model is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from pyturbo.checkpoint import Checkpoint
from pyturbo.errors import FormatError
from pyturbo.models._decoder import Decoder


def known() -> list[str]:
    """The architectures there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def build(checkpoint: Checkpoint) -> Decoder:
    """The network of a checkpoint, with its weights."""
    name = checkpoint.config["model_type"]
    if name not in known():
        raise FormatError(
            f"{checkpoint.path}: model_type: expected one of {', '.join(known())}, got {name!r}"
        )
    module: Any = importlib.import_module(f"pyturbo.models.{name}")
    network: Decoder = module.build(checkpoint)
    return network
