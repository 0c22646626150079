"""One file per architecture, named as the checkpoint's ``model_type``. Adding a model is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

from pyturbo._messages import shown
from pyturbo.checkpoint import Checkpoint, Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.outline import Outline
from pyturbo.checkpoint.tensors import Progress
from pyturbo.errors import FormatError
from pyturbo.layers.decoder import Decoder

_LAYER = re.compile(r"model\.layers\.(\d+)\.")


def known() -> list[str]:
    """The architectures there are."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def build(checkpoint: Checkpoint, progress: Progress | None = None) -> Decoder:
    """The network of a checkpoint, with its weights. A tensor that no layer has a use for is an error."""
    weights = checkpoint.weights()
    return _build(checkpoint, weights, weights, progress)


def outline(checkpoint: Checkpoint) -> tuple[Decoder, Outline]:
    """The network of a checkpoint without values, and what it asks for. Only headers are read.

    What `build` refuses is refused here too.
    """
    asked = Outline(checkpoint.weights(values=False))
    return _build(checkpoint, asked.weights, asked), asked


def _build(checkpoint: Checkpoint, weights: Weights, giver: Any, progress: Progress | None = None) -> Decoder:
    """`giver` hands the weights to the layers."""
    module, entries = _module(checkpoint), Entries.of(checkpoint)
    _check_layers(checkpoint, entries, weights)
    weights.preload(progress)
    network: Decoder = module.build(entries, giver)
    if unused := weights.unused():
        some = ", ".join(map(shown, unused[:3])) + (", ..." if len(unused) > 3 else "")
        raise FormatError(
            f"{checkpoint.path}: expected the tensors of {checkpoint.config['model_type']}, "
            f"found {len(unused)} others: {some}"
        )
    return network


def _check_layers(checkpoint: Checkpoint, entries: Entries, weights: Weights) -> None:
    """Refuses more layers than there are tensors for, before anything is built for each of them.

    All other counts are sizes of tensors, which are checked where those are asked for.
    """
    found = len({match[1] for match in map(_LAYER.match, weights) if match})
    count = entries.count("num_hidden_layers")
    if count > found:
        raise FormatError(
            f"{checkpoint.path}: {checkpoint.layers_entry}: "
            f"expected at most {found}, the layers with tensors, got {count}"
        )


def _module(checkpoint: Checkpoint) -> Any:
    name = checkpoint.config["model_type"]
    if name not in known():
        raise FormatError(
            f"{checkpoint.path}: model_type: expected one of {', '.join(known())}, got {shown(name)}"
        )
    return importlib.import_module(f"pyturbo.models.{name}")
