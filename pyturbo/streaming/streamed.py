"""A bounded number of experts in memory, read from their files when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._arrays import Array
from pyturbo._device import Device
from pyturbo._experts import COUNTERS, ExpertStore
from pyturbo.errors import StateError
from pyturbo.streaming.memory import ExpertMemory, ExpertRead, RecordFile, trace_store
from pyturbo.streaming.policy import Policy
from pyturbo.streaming.served import ServedLayer
from pyturbo.streaming.tables import ExpertTables
from pyturbo.streaming.use import ExpertUse


class StreamedExperts(ExpertMemory):
    """Slots that all layers with records of one size share. Sessions and forks of a model share them too.

    Records of several sizes have a group of slots for each size, and more if the device cannot use so many
    slots as one buffer.
    """

    def __init__(
        self, device: Device, files: Sequence[RecordFile], nbytes: int, policy: Policy, top_k: int = 1
    ) -> None:
        """Reserve `nbytes` for slots, which fill as they are used. A token chooses `top_k` experts."""
        self.files, self.policy, self.top_k = tuple(files), policy, top_k
        self._longest = device.longest_argument
        self._layers = self._grouped(nbytes)
        self._groups = [
            _Group(device, [files[layer] for layer in layers], slots, policy, top_k)
            for layers, slots in zip(self._layers, self._division(nbytes))
        ]
        places = {
            layer: (group, number)
            for group, layers in zip(self._groups, self._layers)
            for number, layer in enumerate(layers)
        }
        self._places = [places[layer] for layer in range(len(files))]

    def _grouped(self, nbytes: int) -> list[list[int]]:
        """Return the layers of each group, such that no group needs more than one buffer."""
        groups = []
        for stride in sorted({file.stride for file in self.files}):
            layers = [number for number, file in enumerate(self.files) if file.stride == stride]
            count, total = len(layers), sum(self.files[layer].experts * stride for layer in layers)
            most = min(nbytes, total)
            fits = (parts for parts in range(1, count) if -(-count // parts) * most <= count * self._longest)
            parts = next(fits, count)
            bounds = [count * part // parts for part in range(parts + 1)]
            groups += [layers[begin:end] for begin, end in pairwise(bounds)]
        return groups

    def _division(self, nbytes: int) -> list[int]:
        """Return the slots of each group. Each has one; the rest is shared by what they hold."""
        strides = [self.files[layers[0]].stride for layers in self._layers]
        counts = [sum(self.files[layer].experts for layer in layers) for layers in self._layers]
        others = [(count - 1) * stride for count, stride in zip(counts, strides)]
        rest, total = max(0, nbytes - sum(strides)), max(1, sum(others))
        return [
            max(1, min(count, 1 + rest * size // total // stride, self._longest // stride))
            for count, stride, size in zip(counts, strides, others)
        ]

    @staticmethod
    def least_bytes(files: Sequence[RecordFile]) -> int:
        """Return the least memory for slots: one for each size of records."""
        return sum({file.stride for file in files})

    @property
    def least(self) -> int:
        """The least memory for slots: one in each group."""
        return sum(group.stride for group in self._groups)

    def records(self, layer: int) -> Array:
        return self._places[layer][0].records

    @property
    def slabs(self) -> list[Array]:
        """The memory of all slots, reserved or in use."""
        return [group.records for group in self._groups]

    def served(self, layer: int) -> ServedLayer:
        group, number = self._places[layer]
        following = number + 1 if self._is_of(group, layer + 1) else None
        return group.tables.layer(group.store, number, following, self.policy.ahead)

    def _is_of(self, group: _Group, layer: int) -> bool:
        """Return whether there is such a layer, and whether its experts use the slots of a group."""
        return layer < len(self._places) and self._places[layer][0] is group

    def resize(self, nbytes: int) -> None:
        """Use at most `nbytes` of the reserved memory from now on; the rest is given back.

        No program that uses the experts may be running.
        """
        for group, slots in zip(self._groups, self._division(nbytes)):
            group.resize(slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that may be used."""
        return sum(group.store.slots * group.stride for group in self._groups)

    @property
    def filled_bytes(self) -> int:
        """Bytes of the slots that take memory."""
        return sum(group.store.filled * group.stride for group in self._groups)

    def check(self) -> None:
        for group in self._groups:
            group.store.check_files()

    def stats(self) -> list[dict[str, Any]]:
        """Return the counters of each layer."""
        by_group = {id(group): group.store.stats() for group in self._groups}
        return [by_group[id(group)][number] for group, number in self._places]

    def totals(self) -> dict[str, Any]:
        """Return the sums of the counters over all layers."""
        stats = self.stats()
        return {name: sum(layer[name] for layer in stats) for name in COUNTERS}

    @property
    def use(self) -> ExpertUse:
        """All that has been needed so far."""
        total = self.totals()
        return ExpertUse(total["hits"], total["misses"], total["bytes"], total["wait_seconds"])

    def trace(self, on: bool) -> list[ExpertRead]:
        reads = []
        for group, layers in zip(self._groups, self._layers):
            reads += trace_store(group.store, on, layers, group.files)
        return sorted(reads, key=lambda read: read.end)

    def counts(self) -> list[NDArray[np.uint32]]:
        """Return how often each expert of each layer was chosen so far, modulo 2**32."""
        return [group.tables.counts(number) for group, number in self._places]

    def close(self) -> None:
        """End the reads and close the files. Memory is given back with the last array over it.

        The counters can still be read.
        """
        for group in self._groups:
            group.close()


class _Group:
    """The slots for records of one size, and the tables of their layers."""

    def __init__(
        self, device: Device, files: Sequence[RecordFile], slots: int, policy: Policy, top_k: int
    ) -> None:
        self.files, self.stride = files, files[0].stride
        slab = device.shared((slots, self.stride), np.uint8)
        self._records: Array | None = slab.numpy()
        self.tables, self._policy = ExpertTables(device, [file.experts for file in files]), policy
        self.store = ExpertStore(
            [(file.path, file.experts) for file in files],
            self.stride,
            slab,
            self.tables.buffer,
            threads=policy.threads,
            direct=policy.direct,
            split=policy.split,
            half_life=policy.half_life,
            top_k=top_k,
            staging=self._staging(slots),
            pass_experts=device.traits.pass_experts,
        )

    @property
    def records(self) -> Array:
        """The memory of the slots: uint8 [slots, stride]."""
        if self._records is None:
            raise StateError("the model is closed")
        return self._records

    def close(self) -> None:
        self.store.close()
        self._records = None

    def resize(self, slots: int) -> None:
        self.store.resize(slots, self._staging(slots))

    def _staging(self, slots: int) -> int:
        return self._policy.staging_slots(slots, sum(file.experts for file in self.files))
