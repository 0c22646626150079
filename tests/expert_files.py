"""Files of expert records with known bytes, and a stand-in for the launches of a replay over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pyturbo
from pyturbo import _native_tests
from pyturbo._experts import ExpertStore

STRIDE = 12288


def record(layer: int, expert: int, stride: int = STRIDE) -> NDArray[np.uint8]:
    """Return the bytes of an expert, which no other expert has."""
    return np.random.default_rng([layer, expert]).integers(0, 256, stride, np.uint8)


def write_files(folder: Path, experts: Iterable[int], stride: int = STRIDE) -> list[tuple[Path, int]]:
    files = []
    for layer, count in enumerate(experts):
        path = folder / f"layer-{layer:03}.bin"
        path.write_bytes(b"".join(record(layer, expert, stride).tobytes() for expert in range(count)))
        files.append((path, count))
    return files


class Replays:
    """A store over new files, and replays of its layers in place of launches.

    A pass reads the slots it is given, and requires the right bytes in them.
    """

    def __init__(
        self,
        folder: Path,
        experts: Iterable[int] = (7, 5),
        slots: int = 4,
        mapped: bool = False,
        **options: Any,
    ) -> None:
        self.device = pyturbo.Device("cpu", threads=1)
        self.files = write_files(folder, experts)
        self.experts = [count for _, count in self.files]
        padded = -(-max(self.experts) // 4) * 4
        self.tables = self.device.empty((len(self.files), 5, padded), "int32")
        self.rows = self.tables.numpy()
        if mapped:
            buffers = [self.device.map(path) for path, _ in self.files]
            self.memory = [buffer.numpy().reshape(-1, STRIDE) for buffer in buffers]
            self.store = ExpertStore.mapped(buffers, STRIDE, self.tables, **options)
        else:
            slab = self.device.empty(slots * STRIDE, "uint8")
            self.memory = [slab.numpy().reshape(slots, STRIDE)] * len(self.files)
            self.store = ExpertStore(self.files, STRIDE, slab, self.tables, **options)
        following = [*range(1, len(self.files)), None]
        self.loops = [self.store.loop(layer, ahead) for layer, ahead in enumerate(following)]

    def find_slots(self, layer: int, ids: Iterable[int]) -> int:
        """Do what the kernel of that name does, and return the number of missing experts."""
        table, counts, slots, missing, _ = self.rows[layer]
        slots[:] = table
        np.add.at(counts.view(np.uint32), list(ids), 1)
        missing[0] = sum(table[expert] < 0 for expert in set(ids))
        return int(missing[0])

    def run_pass(self, layer: int, chosen: set[int]) -> set[int]:
        """Return the experts of this pass."""
        slots = self.rows[layer, 2]
        ready = {expert for expert in chosen if slots[expert] >= 0}
        for expert in ready:
            np.testing.assert_array_equal(self.memory[layer][slots[expert]], record(layer, expert))
        return ready

    def layer(self, layer: int, ids: Iterable[int], guesses: Iterable[int] = ()) -> list[set[int]]:
        """Run the launches of one layer, and return the experts of each pass. Each is in exactly one.

        `guesses`: experts that the next layer is expected to choose.
        """
        chosen = set(ids)
        if guesses:
            np.add.at(self.rows[layer + 1, 4].view(np.uint32), list(guesses), 1)
        asked = self.find_slots(layer, list(ids)) > 0 or bool(guesses)
        if asked:
            _native_tests.begin(self.loops[layer])
        passes = [self.run_pass(layer, chosen)]
        last = not asked
        while not last and _native_tests.next_pass(self.loops[layer]):
            passes.append(self.run_pass(layer, chosen))
            assert passes[-1]
            last = self.rows[layer, 3, 0] == 0
        assert sorted(expert for ready in passes for expert in ready) == sorted(chosen)
        return passes

    def replay(self, *choices: Iterable[int], guesses: Sequence[Iterable[int]] = ()) -> list[list[set[int]]]:
        """Run a replay in which layer i chooses choices[i]; return the passes of each layer.

        guesses[i] are experts that layer i expects layer i + 1 to choose.
        """
        expected = [*guesses, *[()] * (len(choices) - len(guesses))]
        try:
            passes = [
                self.layer(layer, list(ids), list(expected[layer])) for layer, ids in enumerate(choices)
            ]
        except pyturbo.errors.TurboError:
            for loop in self.loops:
                _native_tests.cancel(loop)
            raise
        for loop in self.loops:
            _native_tests.finish(loop)
        self.check_tables()
        return passes

    def cached(self) -> dict[tuple[int, int], int]:
        """Return the slot of each expert that the tables have one for."""
        return {
            (layer, expert): int(self.rows[layer, 0, expert])
            for layer, count in enumerate(self.experts)
            for expert in range(count)
            if self.rows[layer, 0, expert] >= 0
        }

    def check_tables(self) -> None:
        """Require that no two experts have one place, and that each has the bytes of its expert."""
        cached = self.cached()
        places = {(id(self.memory[layer]), slot) for (layer, _), slot in cached.items()}
        assert len(places) == len(cached)
        for (layer, expert), slot in cached.items():
            np.testing.assert_array_equal(self.memory[layer][slot], record(layer, expert))
