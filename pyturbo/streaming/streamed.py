"""A bounded number of experts in memory, read from their files when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyturbo._arrays import Array
from pyturbo._experts import COUNTERS, ExpertStore
from pyturbo._native import Device
from pyturbo.errors import StateError
from pyturbo.streaming.memory import ExpertMemory, ExpertRead, RecordFile, trace_store
from pyturbo.streaming.policy import Policy
from pyturbo.streaming.served import ServedLayer
from pyturbo.streaming.tables import ExpertTables
from pyturbo.streaming.use import ExpertUse


class StreamedExperts(ExpertMemory):
    """Slots that all layers with records of one size share. Sessions and forks of a model share them too.

    Records of several sizes have a group of slots for each size.
    """

    def __init__(
        self, device: Device, files: Sequence[RecordFile], nbytes: int, policy: Policy, top_k: int = 1
    ) -> None:
        """Reserve `nbytes` for slots, which fill as they are used. A token chooses `top_k` experts."""
        self.files, self.policy, self.top_k = tuple(files), policy, top_k
        self._groups: dict[int, _Group] = {}
        self._places: list[tuple[_Group, int]] = []
        for stride, slots in self._division(nbytes).items():
            own = [file for file in files if file.stride == stride]
            self._groups[stride] = _Group(device, own, slots, policy, top_k)
        numbers = dict.fromkeys(self._groups, 0)
        for file in files:
            self._places.append((self._groups[file.stride], numbers[file.stride]))
            numbers[file.stride] += 1

    def _division(self, nbytes: int) -> dict[int, int]:
        """Return the slots for each size of records. Each has one; the rest is shared by what they hold."""
        counts: dict[int, int] = {}
        for file in self.files:
            counts[file.stride] = counts.get(file.stride, 0) + file.experts
        others = {stride: (count - 1) * stride for stride, count in counts.items()}
        rest, total = max(0, nbytes - self.least), max(1, sum(others.values()))
        return {
            stride: min(counts[stride], 1 + rest * size // total // stride) for stride, size in others.items()
        }

    @staticmethod
    def least_bytes(files: Sequence[RecordFile]) -> int:
        """Return the least memory for slots: one for each size of records."""
        return sum({file.stride for file in files})

    @property
    def least(self) -> int:
        """The least memory for slots."""
        return self.least_bytes(self.files)

    def records(self, layer: int) -> Array:
        return self._places[layer][0].records

    @property
    def slabs(self) -> list[Array]:
        """The memory of all slots, reserved or in use."""
        return [group.records for group in self._groups.values()]

    def served(self, layer: int) -> ServedLayer:
        group, number = self._places[layer]
        ahead = self.policy.ahead and self._is_of(group, layer + 1)
        return group.tables.layer(group.store, number, number + 1 if ahead else None)

    def _is_of(self, group: _Group, layer: int) -> bool:
        """Return whether there is such a layer, and whether its experts use the slots of a group."""
        return layer < len(self._places) and self._places[layer][0] is group

    def resize(self, nbytes: int) -> None:
        """Use at most `nbytes` of the reserved memory from now on; the rest is given back.

        No program that uses the experts may be running.
        """
        for stride, slots in self._division(nbytes).items():
            self._groups[stride].resize(slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots that may be used."""
        return sum(group.store.slots * stride for stride, group in self._groups.items())

    @property
    def filled_bytes(self) -> int:
        """Bytes of the slots that take memory."""
        return sum(group.store.filled * stride for stride, group in self._groups.items())

    def check(self) -> None:
        for group in self._groups.values():
            group.store.check_files()

    def stats(self) -> list[dict[str, Any]]:
        """Return the counters of each layer."""
        by_group = {id(group): group.store.stats() for group in self._groups.values()}
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
        for group in self._groups.values():
            numbers = [layer for layer, (own, _) in enumerate(self._places) if own is group]
            reads += trace_store(group.store, on, numbers, group.files)
        return sorted(reads, key=lambda read: read.end)

    def counts(self) -> list[NDArray[np.uint32]]:
        """Return how often each expert of each layer was chosen so far, modulo 2**32."""
        return [group.tables.counts(number) for group, number in self._places]

    def close(self) -> None:
        """End the reads and close the files. Memory is given back with the last array over it.

        The counters can still be read.
        """
        for group in self._groups.values():
            group.close()


class _Group:
    """The slots for records of one size, and the tables of their layers."""

    def __init__(
        self, device: Device, files: Sequence[RecordFile], slots: int, policy: Policy, top_k: int
    ) -> None:
        self.files, stride = files, files[0].stride
        slab = device.empty((slots, stride), np.uint8)
        self._records: Array | None = slab.numpy()
        self.tables, self._policy = ExpertTables(device, [file.experts for file in files]), policy
        self.store = ExpertStore(
            [(file.path, file.experts) for file in files],
            stride,
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
