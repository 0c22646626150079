"""Which experts would be in memory with other numbers of slots: the rule of `native/experts/`, replayed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyturbo.streaming.policy import Policy

#: How often each expert of each layer was chosen in one replay: uint [experts] by layer.
Uses = Sequence[NDArray[np.unsignedinteger]]


@dataclass
class Misses:
    """Experts that had to be read.

    Attributes:
        again: Of these, the ones that had been used before.
        first: Those that had not.
    """

    again: int = 0
    first: int = 0


class SlotSimulation:
    """The content of some slots while replays choose experts. Each layer has its own clock, in tokens."""

    def __init__(self, experts: Sequence[int], slots: int, policy: Policy, top_k: int) -> None:
        self._firsts = np.cumsum([0, *experts])
        staging = policy.staging_slots(slots, sum(experts))
        self._staged = staging > 0
        count = int(self._firsts[-1])
        self._content = np.full(slots - staging, -1)  # number of the expert in each slot of the cache
        self._slot = np.full(count, -1)  # of each expert
        self._layer = np.repeat(np.arange(len(experts)), experts)
        self._log2 = np.full(count, -np.inf)  # of each score when the expert was last used
        self._time = np.zeros(count)  # of that use
        self._now = np.zeros(len(experts))
        self._half_life, self._top_k = policy.half_life, top_k

    def replay(self, uses: Uses) -> Misses:
        """Run the layers of one replay, and return what had to be read for it."""
        misses, hits = Misses(), []
        for layer, counts in enumerate(uses):
            numbers = np.flatnonzero(counts) + self._firsts[layer]
            missing = self._slot[numbers] < 0
            if not missing.any():
                hits.append(layer)
                continue
            unused = np.isneginf(self._log2[numbers])
            misses.first += int((missing & unused).sum())
            misses.again += int((missing & ~unused).sum())
            self._use(layer, counts)
            self._take(numbers[missing], self._slot[numbers[~missing]])
        for layer in hits:  # the host learns of these when the replay is over
            self._use(layer, uses[layer])
        return misses

    def _use(self, layer: int, counts: NDArray[np.unsignedinteger]) -> None:
        """Add uses to the scores of a layer."""
        chosen = np.flatnonzero(counts)
        numbers = chosen + self._firsts[layer]
        self._now[layer] += float(counts.sum()) / self._top_k
        self._log2[numbers] = np.log2(np.exp2(self._values(numbers)) + counts[chosen])
        self._time[numbers] = self._now[layer]

    def _values(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log2 of the scores of experts, each at the time of its layer."""
        age = self._now[self._layer[numbers]] - self._time[numbers]
        values: NDArray[np.float64] = self._log2[numbers] - age / self._half_life
        return values

    def _take(self, missing: NDArray[np.int64], held: NDArray[np.int64]) -> None:
        """Give slots to experts: each takes that of the lowest score, unless all of these score higher."""
        values = self._values(self._content)
        values[self._content < 0] = -np.inf
        values[held] = np.inf
        heap = _lowest(values, len(missing))
        free = len(values) - len(held)
        for number, value in zip(missing.tolist(), self._values(missing).tolist()):
            if not heap or (self._staged and value < heap[0][0]):
                continue
            _, slot = heapq.heappop(heap)
            if self._content[slot] >= 0:
                self._slot[self._content[slot]] = -1
            self._content[slot], self._slot[number] = number, slot
            if len(missing) > free:  # several passes, after each of which its slots can be taken again
                heapq.heappush(heap, (value, slot))


def _lowest(values: NDArray[np.float64], count: int) -> list[tuple[float, int]]:
    """Return a heap of the `count` lowest values, with their numbers; infinite ones are left out."""
    if count < len(values):
        limit = np.partition(values, count - 1)[count - 1]
        below, equal = np.flatnonzero(values < limit), np.flatnonzero(values == limit)
        numbers = np.concatenate([below, equal[: count - len(below)]])
    else:
        numbers = np.arange(len(values))
    heap = [(float(values[i]), int(i)) for i in numbers if values[i] < np.inf]
    heapq.heapify(heap)
    return heap
