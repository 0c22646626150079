"""One file per architecture, named as the checkpoint's ``model_type``. Adding a model is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import Any

from pyturbo._messages import shown
from pyturbo.checkpoint import Checkpoint, Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.tensors import Progress
from pyturbo.errors import FormatError
from pyturbo.layers.decoder import Decoder

_LAYER = re.compile(r"model\.layers\.(\d+)\.")


def known() -> list[str]:
    """List the architectures."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def layout(name: str) -> FileLayout:
    """Return the layout that an architecture declares as LAYOUT, or the common one."""
    declared: FileLayout = getattr(_module(name), "LAYOUT", FileLayout())
    return declared


def build(checkpoint: Checkpoint, progress: Progress | None = None) -> Decoder:
    """Return the network of a checkpoint, with its weights. A tensor that no layer uses is an error."""
    return _build(checkpoint, checkpoint.weights(_layout(checkpoint)), progress)


def outline(checkpoint: Checkpoint) -> tuple[Decoder, Weights]:
    """Return the network of a checkpoint without values, and its weights, which know what it asked for.

    Only headers are read. Everything that `build` refuses is refused here too.
    """
    weights = checkpoint.weights(_layout(checkpoint), values=False)
    return _build(checkpoint, weights), weights


def _build(checkpoint: Checkpoint, weights: Weights, progress: Progress | None = None) -> Decoder:
    entries = Entries.of(checkpoint)
    _check_layers(checkpoint, entries, weights)
    weights.preload(progress)
    network: Decoder = _module(checkpoint.model_type).build(entries, weights)
    if unused := weights.unused():
        some = ", ".join(shown(weights.raw_name(name)) for name in unused[:3])
        numbers = [int(match[1]) for match in map(_LAYER.match, unused) if match]
        last = max(numbers, default=-1)
        raise FormatError(
            f"{checkpoint.path}: expected the tensors of {checkpoint.model_type}, "
            f"found {len(unused)} others: {some}{', ...' if len(unused) > 3 else ''}"
            f"{f'; layer {last} is beyond {checkpoint.layers_entry}' if last >= len(network.layers) else ''}"
        )
    return network


def _check_layers(checkpoint: Checkpoint, entries: Entries, weights: Weights) -> None:
    """Refuse more layers than have tensors, before anything is built for each of them.

    Fewer leave tensors that no layer uses. All other counts are sizes of tensors and are checked when those
    are asked for.
    """
    found = len({match[1] for match in map(_LAYER.match, weights) if match})
    count = entries.count("num_hidden_layers")
    if count > found:
        raise FormatError(
            f"{checkpoint.path}: {checkpoint.layers_entry}: "
            f"expected at most {found}, the layers with tensors, got {count}"
        )


def _layout(checkpoint: Checkpoint) -> FileLayout:
    """Return the layout of a checkpoint's architecture, which must be one whose files can be read."""
    name = checkpoint.model_type
    if name in known() and checkpoint.reads(layout(name)):
        return layout(name)
    names = checkpoint.type_names([name for name in known() if checkpoint.reads(layout(name))])
    raise FormatError(
        f"{checkpoint.path}: {checkpoint.type_entry}: expected one of {', '.join(names)}, got {shown(name)}"
    )


def _module(name: str) -> Any:
    return importlib.import_module(f"pyturbo.models.{name}")
