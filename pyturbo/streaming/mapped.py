"""Experts that are used from their mapped files, and read by several threads before their first use."""

from __future__ import annotations

from collections.abc import Sequence

from pyturbo._arrays import Array
from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._experts import ExpertStore
from pyturbo.streaming.memory import ExpertMemory, ExpertRead, RecordFile, trace_store
from pyturbo.streaming.policy import Policy
from pyturbo.streaming.served import ServedLayer
from pyturbo.streaming.tables import ExpertTables


class MappedExperts(ExpertMemory):
    """The records of mapped files, where expert e is always matrix e.

    A layer asks the host only for experts that were never used, whose pages may not be in memory yet: page
    faults would read them piece by piece, one after the other. Files and threads are given back with the last
    layer.
    """

    def __init__(
        self, device: Device, files: Sequence[RecordFile], mappings: Sequence[Buffer], policy: Policy
    ) -> None:
        """Take the files, each mapped as a whole."""
        self._records = [
            mapping.numpy().reshape(file.experts, file.stride) for file, mapping in zip(files, mappings)
        ]
        self._files = tuple(files)
        self._stores: list[ExpertStore] = []
        self._layers: list[list[int]] = []  # of each store
        self._served: dict[int, ServedLayer] = {}
        for stride in sorted({file.stride for file in files}):  # a store has records of one size
            layers = [number for number, file in enumerate(files) if file.stride == stride]
            tables = ExpertTables(device, [files[layer].experts for layer in layers])
            store = ExpertStore.mapped(
                [mappings[layer] for layer in layers],
                stride,
                tables.buffer,
                threads=policy.threads,
                split=policy.split,
                pass_experts=device.traits.pass_experts,
            )
            self._stores.append(store)
            self._layers.append(layers)
            following = [*range(1, len(layers)), None]
            for number, layer in enumerate(layers):
                self._served[layer] = tables.layer(store, number, following[number])

    def records(self, layer: int) -> Array:
        return self._records[layer]

    def served(self, layer: int) -> ServedLayer:
        return self._served[layer]

    def check(self) -> None:
        for store in self._stores:
            store.check_files()

    def trace(self, on: bool) -> list[ExpertRead]:
        reads = []
        for store, layers in zip(self._stores, self._layers):
            reads += trace_store(store, on, layers, [self._files[layer] for layer in layers])
        return sorted(reads, key=lambda read: read.end)
