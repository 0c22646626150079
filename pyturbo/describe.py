"""Describe a checkpoint by the headers of its files, without reading its weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pyturbo import models
from pyturbo._arrays import Array
from pyturbo._blank import Blank
from pyturbo._device import device_list, device_traits
from pyturbo._machine import machine_memory
from pyturbo.checkpoint import Checkpoint, Weights
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.engine.layout import Layout
from pyturbo.errors import ArgumentError, TurboError
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.kv_cache import KV_FORMATS
from pyturbo.text import Tokenizer

#: Parts of a model, with texts in the names of their tensors; the first match counts.
PARTS = {
    "embedding": ("model.embed_tokens.",),
    "output head": ("lm_head.",),
    "norms": ("layernorm.", "model.norm."),
    "attention": (".self_attn.",),
    "delta net": (".linear_attn.",),
    "shared expert": (".shared_expert.", ".shared_experts.", ".shared_expert_gate."),
    "experts": (".switch_mlp.", ".experts."),
    "router": (".gate.", ".router."),
    "mlp": (".mlp.",),
}


#: Context lengths for which `describe` states the memory of a conversation.
_CONTEXTS = (4096, 32768, 131072)


@dataclass
class Part:
    parameters: int = 0
    nbytes: int = 0


@dataclass
class Survey:
    """Sizes of a checkpoint once it is loaded: bytes are those in memory, whatever the files take.

    Scales and biases of groups count as bytes of their part, not as parameters.
    """

    network: Decoder
    parts: dict[str, Part]
    formats: Counter[str]  # numbers of tensors with values
    mapped_bytes: int = 0  # weights in mapped files, which the system reads when they are used
    copied_bytes: int = 0  # weights that loading copies, because of their place or format in the files
    peak_bytes: int = 0  # most memory that loading takes at once, beside mapped files
    file_bytes: int = 0  # size of the tensors that are used, in the files
    other_bytes: int = 0  # size of vision, audio and draft parts, which are not used
    files: list[str] = field(default_factory=list)
    tied: bool = False  # whether the embedding is also the output head

    @property
    def weights(self) -> Part:
        parts = self.parts.values()
        return Part(sum(part.parameters for part in parts), sum(part.nbytes for part in parts))

    @property
    def choices(self) -> int:
        """Return the number of experts that a layer uses for a token; 0 if there are none."""
        moe = self._moe()
        return int(moe[0].k) if moe else 0

    @property
    def chosen(self) -> float:
        """Return the share of the experts that a token uses; 1 if there are none."""
        moe = self._moe()
        return float(moe[0].k / moe[0].experts.count) if moe else 1.0

    def _moe(self) -> list[Any]:
        """List the layers with experts."""
        return [layer.mlp for layer in self.network.layers if hasattr(layer.mlp, "experts")]

    @property
    def bytes_per_token(self) -> float:
        """Return the bytes of weights that one token reads: not the embedding, nor experts not chosen."""
        skipped = 0 if self.tied else self.parts.get("embedding", Part()).nbytes
        experts = self.parts.get("experts", Part()).nbytes
        return self.weights.nbytes - skipped - experts * (1 - self.chosen)


def survey(checkpoint: Checkpoint) -> Survey:
    network, weights = models.outline(checkpoint)
    out = Survey(network, {name: Part() for name in PARTS}, Counter())
    _count_memory(out, weights)
    used: dict[tuple[str, int], TensorInfo] = {}  # by name and place in the files
    formats: dict[str, str] = {}  # of the tensors with values
    for source in weights.sources.values():
        out.parts[_part(f"{source.name}.")].parameters += math.prod(source.shape)
        formats |= {info.name: source.format_name for info in source.values.tensors}
        used |= {(info.name, info.offset): info for plane in source.planes for info in plane.tensors}
    out.formats.update(formats.values())
    out.file_bytes = sum(info.nbytes for info in used.values())
    out.parts = {name: part for name, part in out.parts.items() if part.nbytes}
    names = {name for name, _ in used}
    out.other_bytes = sum(info.nbytes for name, info in checkpoint.items() if name not in names)
    out.tied = weights.tied
    out.files = sorted({info.file.path.name for info in checkpoint.all_tensors()})
    return out


def network_arrays(part: Any, seen: set[int] | None = None) -> Iterator[Array]:
    """Yield all arrays of a network once: its weights and tables computed from its configuration."""
    seen = set() if seen is None else seen
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, np.ndarray):
        yield part
        return
    inner = part if isinstance(part, (list, tuple)) else getattr(part, "__dict__", {}).values()
    for one in inner:
        yield from network_arrays(one, seen)


def _count_memory(out: Survey, weights: Weights) -> None:
    for array in network_arrays(out.network):
        # Arrays that belong to no tensor are tables of positions, for attention.
        name = f"{array.path}." if isinstance(array, Blank) else ".self_attn."
        out.parts[_part(name)].nbytes += array.nbytes
        if isinstance(array, Blank) and array.mapped:
            out.mapped_bytes += array.nbytes
        else:
            out.copied_bytes += array.nbytes
    if weights.ledger is not None:
        out.peak_bytes = max(weights.ledger.peak, out.copied_bytes)


def _part(name: str) -> str:
    for part, marks in PARTS.items():
        if any(mark in name for mark in marks):
            return part
    return "norms"


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Describe a checkpoint as plain data: architecture, tokenizer, sizes, and the memory it needs here."""
    found = survey(checkpoint)
    weights = found.weights
    experts = found.parts["experts"].parameters if "experts" in found.parts else 0
    return {
        "path": str(checkpoint.path),
        "architecture": checkpoint.config["model_type"],
        "layers": _layers(found),
        "context": found.network.context,
        "vocabulary": found.network.vocab,
        "tokenizer": _tokenizer(checkpoint),
        "sampling": checkpoint.sampling.stated(),
        "sampling_ignored": checkpoint.sampling.ignored,
        "parameters": weights.parameters,
        "parameters_per_token": round(weights.parameters - experts * (1 - found.chosen)),
        "bytes": weights.nbytes,
        "mapped_bytes": found.mapped_bytes,
        "copied_bytes": found.copied_bytes,
        "peak_bytes": found.peak_bytes,
        "files": found.files,
        "file_bytes": found.file_bytes,
        "other_bytes": found.other_bytes,
        "parts": {name: asdict(part) for name, part in found.parts.items()},
        "formats": dict(found.formats.most_common()),
        "machine_memory": machine_memory(),
        "state_bytes": _state_bytes(found),
    }


def _layers(found: Survey) -> dict[str, int]:
    return dict(Counter(layer.mixer.kind for layer in found.network.layers))


def _state_bytes(found: Survey) -> dict[str, dict[int, int]]:
    """Return bytes of a conversation by kv setting and context, up to the context of the model."""
    most, chunk = found.network.context, device_traits(device_list()[0]).chunk
    contexts = [*(context for context in _CONTEXTS if context < most), most]
    sizes: dict[str, dict[int, int]] = {}
    for kv in KV_FORMATS:
        with suppress(ArgumentError):  # the format does not support heads of this size
            sizes[kv.name] = {
                context: Layout.of(found.network, context, chunk, kv).nbytes for context in contexts
            }
    return sizes


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Describe the tokenizer, or what is wrong with it; None if there is none."""
    try:
        source = checkpoint.tokenizer
        if source.path is None and not source.tokens:
            return None
        tokenizer = Tokenizer(source)
    except TurboError as error:
        return {"fault": str(error)}
    fault = None if tokenizer.chat_template is None else _template_fault(tokenizer.chat_template)
    return {
        "kind": source.kind,
        "size": tokenizer.vocab_size,
        "ends": [tokenizer.piece(token) for token in tokenizer.eos_ids],
        "chat_template": tokenizer.chat_template is not None and fault is None,
        "chat_template_fault": fault,
    }


def _template_fault(template: str) -> str | None:
    """Return why a chat template cannot be compiled; None if it can."""
    from pyturbo.text.chat_template import ChatTemplate

    try:
        ChatTemplate(template, {})
    except TurboError as error:
        return str(error)
    return None
