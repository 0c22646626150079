"""The plan of a packed checkpoint: its resident tensors, and the layout of the records of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyturbo import models
from pyturbo._arrays import Array
from pyturbo.checkpoint import Checkpoint, Weights
from pyturbo.checkpoint.manifest import PROJECTIONS, PackedLayer, stride_of
from pyturbo.checkpoint.manifest_parts import lay_out
from pyturbo.checkpoint.names import is_convolution
from pyturbo.checkpoint.source import Source
from pyturbo.checkpoint.stream import Block, Stream
from pyturbo.convert.plan import Output
from pyturbo.convert.shards import CODES
from pyturbo.errors import FormatError
from pyturbo.pack.requantize import RequantizedStream, Squares

_EXPERTS = re.compile(r"(model\.layers\.(\d+)\..*\.(?:switch_mlp|experts))\.((?:gate|up|down)_proj)(\.bias)?")


@dataclass(frozen=True)
class ResidentJob:
    """A tensor or weight outside of records."""

    stream: Stream
    outputs: dict[str, Output]  # by the names of the arrays in blocks

    def blocks(self) -> Iterator[Block]:
        """Read consecutive rows of all arrays."""
        yield from self.stream.blocks()
        if self.stream.global_scale is not None:
            for block in self.stream.global_scale.blocks():
                yield {"global_scale": block["weight"]}


@dataclass(frozen=True)
class LayerJob:
    """The experts of one layer."""

    layer: PackedLayer  # without checksums
    streams: dict[str, dict[str, Stream]]  # by projection: "weight" and, if it has them, its other parts

    def record(self, expert: int) -> Iterator[Array]:
        """Read the bytes of a record in order, in blocks, with all padding."""
        offsets = {part.name: part.offset for part in self.layer.parts}
        position = 0
        for name, array in self._arrays(expert):
            if position < offsets[name]:  # the first block of a part
                yield np.zeros(offsets[name] - position, np.uint8)
                position = offsets[name]
            yield array
            position += array.nbytes
        if position < self.layer.stride:
            yield np.zeros(self.layer.stride - position, np.uint8)

    def squares(self) -> dict[str, Squares]:
        """Return the errors of all records, which have been read, by projection; none if all are exact."""
        found = {}
        for name, streams in self.streams.items():
            weight = streams["weight"]
            if isinstance(weight, RequantizedStream):
                found[name] = Squares.sum(weight.squares[expert] for expert in range(self.layer.experts))
        return found

    @property
    def work(self) -> int:
        """Return the bytes that reading a record takes beside its blocks."""
        return max(stream.work for streams in self.streams.values() for stream in streams.values())

    def _arrays(self, expert: int) -> Iterator[tuple[str, Array]]:
        """Read the arrays of an expert by the names of their parts; all blocks of one follow each other."""
        for projection, streams in self.streams.items():
            held: dict[str, list[Array]] = {}
            for kind, stream in streams.items():
                for block in stream.blocks(expert):
                    yield f"{projection}.{kind}", block.pop("weight")
                    for name, array in block.items():
                        held.setdefault(name, []).append(array)
                for name in list(held):
                    yield f"{projection}.{name}", np.concatenate(held.pop(name))


@dataclass(frozen=True)
class Plan:
    residents: list[ResidentJob]
    layers: list[LayerJob]

    @property
    def outputs(self) -> list[Output]:
        return [output for job in self.residents for output in job.outputs.values()]


def make_plan(checkpoint: Checkpoint, expert_bits: int | None) -> Plan:
    """List what to pack. A checkpoint without experts is a FormatError, as is one that does not load."""
    _, weights = models.outline(checkpoint)
    residents, stacks = [], dict[str, dict[str, Source]]()
    for source in weights.sources.values():
        match = _EXPERTS.fullmatch(source.name)
        if match is None or (source.matrix and len(source.shape) != 3):
            residents.append(_resident(weights, source))
        else:
            stacks.setdefault(match[1], {})[match[3] + (match[4] or "")] = source
    if not stacks:
        raise FormatError(
            f"{checkpoint.path}: expected a model with experts, got {checkpoint.model_type} without any"
        )
    return Plan(residents, [_layer(weights, path, found, expert_bits) for path, found in stacks.items()])


def _resident(weights: Weights, source: Source) -> ResidentJob:
    stream = weights.stream(source)
    name = weights.layout.prefix + source.name
    outputs = {}
    for kind, spec in stream.arrays.items():
        shape = (*spec.shape, 1) if is_convolution(source.name) else spec.shape
        outputs[kind] = Output(f"{name}.{kind}" if source.matrix else name, spec.dtype, shape)
    if stream.global_scale is not None:
        spec = stream.global_scale.arrays["weight"]
        outputs["global_scale"] = Output(f"{name}.global_scale", spec.dtype, spec.shape)
    return ResidentJob(stream, outputs)


def _layer(weights: Weights, path: str, found: dict[str, Source], expert_bits: int | None) -> LayerJob:
    match = _EXPERTS.fullmatch(f"{path}.gate_proj")
    assert match is not None
    streams: dict[str, dict[str, Stream]] = {}
    for projection in PROJECTIONS:
        weight = weights.stream(found[projection], stacked=True)
        if expert_bits is not None:
            weight = RequantizedStream(weight, expert_bits)
        streams[projection] = {"weight": weight}
        if weight.global_scale is not None:
            streams[projection]["global_scale"] = weight.global_scale
        if f"{projection}.bias" in found:
            streams[projection]["bias"] = weights.stream(found[f"{projection}.bias"], stacked=True)
    parts = lay_out(_arrays(streams))
    layer = PackedLayer(
        path=path,
        file=f"experts/layer-{int(match[2]):03}.bin",
        experts=found[PROJECTIONS[0]].shape[0],
        stride=stride_of(parts),
        parts=parts,
        formats={name: of["weight"].format for name, of in streams.items()},
        checksums=(),
    )
    return LayerJob(layer, streams)


def _arrays(streams: dict[str, dict[str, Stream]]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """List the arrays of a record with their types and shapes."""
    for projection, kinds in streams.items():
        for kind, stream in kinds.items():
            for array, spec in stream.arrays.items():
                name = f"{projection}.{kind if array == 'weight' else array}"
                yield name, CODES[spec.dtype], spec.shape[1:]
