"""What a checkpoint consists of, from the headers of its files."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pyturbo import models
from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.checkpoint.weights import FLOATS
from pyturbo.models._decoder import Decoder
from pyturbo.models._outline import Outline
from pyturbo.ops import FP_FORMATS

#: Parts of a model by what the names of their tensors contain; the first that fits counts.
PARTS = {
    "embedding": ("model.embed_tokens.",),
    "output head": ("lm_head.",),
    "norms": ("layernorm.", "model.norm."),
    "attention": (".self_attn.",),
    "delta net": (".linear_attn.",),
    "shared expert": (".shared_expert.", ".shared_experts.", ".shared_expert_gate."),
    "experts": (".switch_mlp.", ".experts."),
    "router": (".mlp.gate.", ".mlp.router."),
    "mlp": (".mlp.",),
}


#: Element types that are used as they lie in the file; blocks of a GGUF file are not.
_AS_THEY_ARE = (*FLOATS, "U32", "U8")


#: The end of names of experts as gpt-oss is published: two values of mxfp4 in a byte.
_BLOCKS = "_proj_blocks"


@dataclass
class Part:
    parameters: int = 0
    nbytes: int = 0


@dataclass
class Survey:
    """Sizes in a checkpoint. Scales and biases of groups are bytes of their part, not parameters."""

    network: Decoder
    parts: dict[str, Part]
    formats: Counter[str]  # tensors with values, by format
    mapped_bytes: int = 0  # that the operating system brings in as they are used
    copied_bytes: int = 0  # that have to be read, because they are not aligned or change their layout
    other_bytes: int = 0  # of vision, audio and draft parts, which are not used
    files: list[str] = field(default_factory=list)
    tied: bool = False  # whether the embedding is the output head too

    @property
    def weights(self) -> Part:
        parts = self.parts.values()
        return Part(sum(part.parameters for part in parts), sum(part.nbytes for part in parts))

    @property
    def chosen(self) -> float:
        """The share of the experts that a token goes through; 1 where there are none."""
        moe: list[Any] = [layer.mlp for layer in self.network.layers if hasattr(layer.mlp, "experts")]
        return float(moe[0].k / moe[0].experts.count) if moe else 1.0

    @property
    def bytes_per_token(self) -> float:
        """Weights that one token reads: all but a table that is not the head, and experts not chosen."""
        skipped = 0 if self.tied else self.parts.get("embedding", Part()).nbytes
        experts = self.parts.get("experts", Part()).nbytes
        return self.weights.nbytes - skipped - experts * (1 - self.chosen)


def survey(checkpoint: Checkpoint) -> Survey:
    network, asked = models.outline(checkpoint)
    out = Survey(network, {name: Part() for name in PARTS}, Counter())
    used, rearranged = set(), _rearranged(asked)
    for name in asked.weights:
        info = asked.weights.find(name)
        if info is None or (name.startswith("lm_head.") and asked.weights.tied):
            continue
        used.add(info.name)
        part = out.parts[_part(name)]
        part.nbytes += info.nbytes
        if info.mapped and info.dtype in _AS_THEY_ARE and not name.startswith(rearranged):
            out.mapped_bytes += info.nbytes
        else:
            out.copied_bytes += info.nbytes
        path, _, last = name.rpartition(".")
        scaled = last in ("scales", "biases", "global_scale") and f"{path}.scales" in asked.weights
        if scaled or f"{name.removesuffix('_scales')}_blocks" in asked.weights:
            continue
        part.parameters += _parameters(asked, name, info)
        out.formats[_format(asked, path, info)] += 1
    out.parts = {name: part for name, part in out.parts.items() if part.nbytes}
    out.other_bytes = sum(checkpoint[name].nbytes for name in checkpoint if name not in used)
    out.tied = asked.weights.tied
    out.files = sorted({info.file.path.name for info in checkpoint.values()})
    return out


def _part(name: str) -> str:
    for part, marks in PARTS.items():
        if any(mark in name for mark in marks):
            return part
    return "norms"


def _parameters(asked: Outline, name: str, info: TensorInfo) -> int:
    if name.endswith(_BLOCKS):
        return 2 * math.prod(info.shape)
    shape = asked.matrices.get(name.removesuffix(".weight")) if info.dtype == "U32" else None
    return math.prod(shape or info.shape)


def _format(asked: Outline, path: str, info: TensorInfo) -> str:
    """Bits and group size of a quantised matrix follow from its rows; others are named as in the file."""
    if info.name.endswith(_BLOCKS):
        return "mxfp4"
    scales = asked.weights.find(f"{path}.scales")
    if info.dtype != "U32" or scales is None or path not in asked.matrices:
        return info.dtype
    in_dim = asked.matrices[path][-1]
    bits, group_size = info.shape[-1] * 32 // in_dim, in_dim // scales.shape[-1]
    if scales.dtype == "U8":
        return next((mode for mode, known in FP_FORMATS.items() if known == (bits, group_size)), "unknown")
    return f"{bits} bits in groups of {group_size}"


def _rearranged(asked: Outline) -> tuple[str, ...]:
    """Beginnings of names whose tensors are put into another order in memory."""
    paths = [path for path in asked.linears if path.endswith((".in_proj_qkvz", ".in_proj_ba"))]
    stacks = []
    for path in asked.stacks:
        if f"{path}.weight" not in asked.weights:
            experts = path.replace(".switch_mlp.", ".experts.").rpartition(".")[0] + "."
            stacks.append(experts + "gate_up" if f"{experts}down_proj_blocks" in asked.weights else experts)
    return (*(f"{path}." for path in paths), *stacks)
