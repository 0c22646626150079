"""A packed checkpoint: a directory whose routed experts are records in files of their own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arrays import Array
from pyturbo._buffer import Buffer
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.directory_weights import DirectoryWeights
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.file_layout import FileLayout
from pyturbo.checkpoint.manifest import Manifest, Part, checksum
from pyturbo.checkpoint.source import Plane, Shape, Source
from pyturbo.checkpoint.tensors import TensorInfo, Watch
from pyturbo.errors import FormatError
from pyturbo.streaming import ExpertMemory, RecordFile, ServedLayer


@dataclass(frozen=True)
class RecordPlane(Plane):
    """One part of every record of a layer; `tensors` is the file, as bytes [experts, 1, stride]."""

    layer: int = field(kw_only=True)  # its number in the manifest
    part: Part = field(kw_only=True)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.part.array_dtype

    @property
    def whole(self) -> bool:
        return False


class PackedCheckpoint(DirectoryCheckpoint):
    """A directory that `pyturbo pack` wrote; docs/packed-format.md specifies it.

    Attributes:
        manifest: What the files of experts hold.
        records: Each file of experts, as bytes [experts, 1, stride], in the order of the manifest.
        experts: Where experts are used from; None: from their mapped files, whatever pages are in memory.
    """

    def __init__(self, path: Path) -> None:
        self.manifest = Manifest.read(path)
        self.records: list[TensorInfo] = []
        self.experts: ExpertMemory | None = None
        try:
            super().__init__(path)
            for layer in self.manifest.layers:
                shape, kind = (layer.experts, 1, layer.stride), np.dtype(np.uint8)
                file = TensorFile(path / layer.file)
                nbytes = layer.experts * layer.stride
                self.records.append(TensorInfo(layer.path, "U8", shape, file, 0, nbytes, kind, shape))
                if file.size != nbytes:
                    raise FormatError(f"{file.path}: expected {nbytes} bytes, got {file.size}")
        except BaseException:
            for info in self.records:
                info.file.close()
            raise

    def weights(self, layout: FileLayout | None = None, values: bool = True) -> PackedWeights:
        return PackedWeights(self, layout or FileLayout(), values)

    def record_files(self) -> list[RecordFile]:
        """List the files of experts, in the order of the manifest."""
        return [
            RecordFile(info.file.path, layer.experts, layer.stride)
            for info, layer in zip(self.records, self.manifest.layers)
        ]

    def mappings(self) -> list[Buffer]:
        """Map the files of experts, each as a whole."""
        return [info.file.mapping() for info in self.records]

    def stated_fingerprint(self) -> str:
        """Return that of the source if all values are those of the source, else one of the manifest."""
        source, stated = self.manifest.source, self.manifest.files.get("config.json")
        config = json_file.read_bytes(self.path / "config.json")
        if stated is not None and stated.checksum == checksum(config) and "expert_bits" not in source:
            return str(source["fingerprint"])
        digest = hashlib.sha256(json.dumps(self.manifest.to_json(), sort_keys=True).encode())
        digest.update(config)
        return digest.hexdigest()

    def watches(self) -> list[Watch]:
        return [*super().watches(), *([] if self.experts is None else [self.experts])]

    def all_tensors(self) -> list[TensorInfo]:
        return [*super().all_tensors(), *self.records]


class PackedWeights(DirectoryWeights):
    """Weights whose stacks of experts are parts of records, at equal distances from each other."""

    def __init__(self, checkpoint: PackedCheckpoint, layout: FileLayout, values: bool) -> None:
        super().__init__(checkpoint, layout, checkpoint.quantization, "mlx", values)
        self._records, self._memory = checkpoint.records, checkpoint.experts
        self._layers = checkpoint.manifest.layers
        self._numbers = {layer.path: number for number, layer in enumerate(self._layers)}
        #: Parts of records that nothing has asked for.
        self._left = {f"{layer.path}.{part.name}" for layer in self._layers for part in layer.parts}

    def served(self, path: str) -> ServedLayer | None:
        number = self._numbers.get(path)
        return None if number is None or self._memory is None else self._memory.served(number)

    def unused(self) -> list[str]:
        return [*super().unused(), *sorted(self._left)]

    def _find_matrix(self, path: str, shape: Shape | None, axes: int) -> Source:
        number = self._number(path)
        if number is None:
            return super()._find_matrix(path, shape, axes)
        layer, projection = self._layers[number], path.rpartition(".")[2]
        values = self._plane(number, f"{projection}.weight")
        form = layer.formats[projection]
        scales, biases, factor = (
            None if layer.part(name) is None else self._plane(number, name)
            for name in (f"{projection}.{part}" for part in ("scales", "biases", "global_scale"))
        )
        size = values.shape if form is None else (*values.shape[:-1], form.width(values.shape[-1]))
        self.check(layer.path, f"shape of {projection}", shape, size)
        return Source(path, size, values, scales, biases, factor, form, matrix=True)

    def _find_expert_bias(self, path: str, shape: Shape) -> Source:
        number = self._number(path)
        if number is None:
            return super()._find_expert_bias(path, shape)
        plane = self._plane(number, f"{path.rpartition('.')[2]}.bias")
        self.check(self._layers[number].path, "shape of the bias", shape, plane.shape)
        return Source(f"{path}.bias", shape, plane)

    def _number(self, path: str) -> int | None:
        """Return the number of the layer that a projection belongs to; None if it is not in records."""
        return self._numbers.get(path.rpartition(".")[0])

    def _plane(self, number: int, name: str) -> RecordPlane:
        layer, info = self._layers[number], self._records[number]
        part = layer.part(name)
        if part is None:
            raise FormatError(f"{info}: expected {name} in its records, found none")
        self._left.discard(f"{layer.path}.{name}")
        return RecordPlane((info,), (layer.experts, *part.shape), layer=number, part=part)

    def _array(self, plane: Plane) -> Array:
        if not isinstance(plane, RecordPlane):
            return super()._array(plane)
        if self.ledger is not None:
            return self.ledger.array(plane.shape, plane.dtype, mapped=True)
        layer = self._layers[plane.layer]
        if self._memory is None:
            records = self._records[plane.layer].file.view(np.dtype(np.uint8), (layer.nbytes,), 0)
            return layer.array(plane.part, records)
        records = self._memory.records(plane.layer)
        return layer.array(plane.part, records.reshape(-1), len(records))
