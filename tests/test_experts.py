"""The expert store: the right bytes in the right slots, whatever the number of slots and whatever reads do.

Launches are those of `expert_files.Replays`, not kernels. Which records a pass has depends on the time that
reads take; the tests hold for every order, and can miss a fault that only one order shows.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from expert_files import STRIDE, Replays, record, write_files
from host_loops import Log, Work
from host_loops import record as record_loop
from pyturbo import _native_tests
from pyturbo._experts import ExpertStore, time_reads
from pyturbo.errors import ArgumentError, FileError, FormatError, StateError

pytestmark = pytest.mark.usefixtures("plain_reads")


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("split", [0, 4096, 8192])
@pytest.mark.parametrize("slots", [1, 2, 3, 5, 12, 14])
def test_every_chosen_expert_is_computed_once(tmp_path: Path, slots: int, split: int, direct: bool) -> None:
    rng = np.random.default_rng(slots)
    replays = Replays(tmp_path, slots=slots, split=split, direct=direct, threads=3)
    with replays.store:
        for tokens in [1, 1, 40, 1, 3, 1, 100, 1]:
            replays.replay(rng.integers(0, 7, 2 * tokens), rng.integers(0, 5, 2 * tokens))


@pytest.mark.parametrize("staging", [0, 1, 2, 7])
def test_staging_slots_are_enough(tmp_path: Path, staging: int) -> None:
    replays = Replays(tmp_path, (40, 30), slots=8, staging=staging, threads=2)
    rng = np.random.default_rng(staging)
    with replays.store:
        for tokens in [3, 50, 1, 1, 50, 2]:
            replays.replay(rng.integers(0, 40, tokens), rng.integers(0, 30, tokens))


def test_one_slot_takes_a_pass_for_each_expert(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (64,), slots=1)
    with replays.store:
        assert replays.replay(range(64)) == [[set(), *({expert} for expert in range(64))]]
        # The last one is still there, and comes first.
        assert replays.replay([3, 63, 7]) == [[{63}, {3}, {7}]]


def test_hits_are_computed_first(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (9,), slots=6)
    with replays.store:
        replays.replay([1, 4, 6])
        (passes,) = replays.replay([6, 2, 1, 8])
        assert passes[0] == {1, 6}
        assert set().union(*passes[1:]) == {2, 8}
        assert replays.replay([1, 2, 4, 6, 8]) == [[{1, 2, 4, 6, 8}]]


def test_a_pass_waits_for_several_experts(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (20,), slots=12, threads=1, pass_experts=4)
    with replays.store:
        _native_tests.fail_reads("slow", 300, first=4, count=1)
        present, *passes = replays.replay(range(10, 20))[0]
        assert present == set()
        assert passes[0] == {10, 11, 12, 13}  # and not all, the next of which takes long
        _native_tests.fail_reads("slow", 2)
        for count in (3, 7, 10):
            _, *passes = replays.replay(range(10 - count, 10))[0]
            assert all(len(experts) >= 4 for experts in passes[:-1])
            assert len(passes) <= -(-count // 4)
        replays.store.resize(2)
        assert max(map(len, replays.replay(range(10, 20))[0])) <= 2  # more will not come


@pytest.mark.parametrize("staging", [0, 4])
def test_most_experts_of_a_layer_bring_those_of_the_next(tmp_path: Path, staging: int) -> None:
    replays = Replays(tmp_path, (20, 20, 20), slots=16, staging=staging, threads=2)
    with replays.store:
        replays.store.trace(True)
        replays.replay(range(14), range(20), range(14))  # 15 of 20 are most of them
        reads = replays.store.trace(True)
        assert {layer for layer, _, ahead, *_ in reads if ahead} == {2}
        replays.replay(range(20), range(14), range(20))
        reads = replays.store.trace()
        assert {layer for layer, _, ahead, *_ in reads if ahead} == {1}
        # A chosen expert is read once; one that was expected and not chosen, at most once too.
        assert len({(layer, expert) for layer, expert, *_ in reads}) == len(reads)


def test_the_last_pass_is_announced(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (9,), slots=3)
    with replays.store:
        replays.find_slots(0, [4])
        _native_tests.begin(replays.loops[0])
        assert replays.loops[0].missing == 1
        assert _native_tests.next_pass(replays.loops[0])
        assert replays.loops[0].missing == 0
        assert not _native_tests.next_pass(replays.loops[0])


def test_counts_wrap_around(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (9,), slots=9)
    counts = replays.rows[0, 1].view(np.uint32)
    with replays.store:
        counts[:3] = 2**32 - 2
        replays.replay([0, 1, 2])  # chosen very often, and now once more
        counts[3] = 0
        assert counts[0] == 2**32 - 1
        assert replays.replay([0, 0, 3])[0][0] == {0}
        assert counts[0] == 1
        assert replays.replay([0])[0] == [{0}]
        assert replays.store.stats()[0]["requests"] == 3 + 2 + 1


def test_counters(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=12, split=4096)
    with replays.store as store:
        replays.replay([0, 1, 1, 6], [2])
        replays.replay([1, 1, 1, 5], [2])
        first, second = store.stats()
        assert first.pop("read_seconds") > 0
        assert first.pop("wait_seconds") > 0
        counts = {"requests": 5, "hits": 1, "misses": 4, "guessed": 0, "bytes": 4 * STRIDE, "reads": 12}
        assert first == counts
        assert (second["requests"], second["hits"], second["misses"]) == (2, 1, 1)
        store.reset_stats()
        assert all(value == 0 for layer in store.stats() for value in layer.values())


def test_reads_are_timed(tmp_path: Path) -> None:
    replays = Replays(tmp_path, slots=12, threads=1)
    with replays.store as store:
        replays.replay([0], [])
        assert store.trace() == []
        store.reset_stats()
        _native_tests.fail_reads("slow", 20)
        begun = time.perf_counter()
        replays.replay([0, 1, 3], [2])
        ended = time.perf_counter()
        reads = store.trace(False)
        assert [read[:3] for read in reads] == [(0, 1, False), (0, 3, False), (1, 2, False)]
        times = [time for read in reads for time in read[3:]]
        assert times == sorted(times)  # one thread reads one after the other
        assert begun <= times[0]
        assert times[-1] <= ended
        assert all(end - begin >= 0.02 for *_, begin, end in reads)
        busy = sum(end - begin for *_, begin, end in reads)
        counted = sum(layer["read_seconds"] for layer in store.stats())
        assert busy - 1e-9 <= counted <= busy + 0.02  # seconds since the start of the machine are rounded
        replays.replay([4], [])
        assert store.trace() == []


class Policy:
    """The contract of replacement, as plainly as possible."""

    def __init__(self, experts: list[int], slots: int, staging: int, half_life: float, top_k: int) -> None:
        self.now = [0.0] * len(experts)  # tokens of each layer
        self.uses: dict[tuple[int, int], list[tuple[float, int]]] = {}
        self.slots: list[tuple[int, int] | None] = [None] * (slots - staging)
        self.staging, self.half_life, self.top_k = staging, half_life, top_k

    def score(self, expert: tuple[int, int]) -> float:
        now = self.now[expert[0]]
        return sum(count * 2 ** ((then - now) / self.half_life) for then, count in self.uses.get(expert, ()))

    def replay(self, layer: int, ids: list[int]) -> None:
        self.now[layer] += len(ids) / self.top_k
        for expert in set(ids):
            self.uses.setdefault((layer, expert), []).append((self.now[layer], ids.count(expert)))
        needed = {(layer, expert) for expert in ids}
        for expert in sorted(needed - set(self.slots)):
            victims = [slot for slot, content in enumerate(self.slots) if content not in needed]
            slot = min(victims, key=lambda slot: (self.value(slot), slot))
            if not self.staging or self.score(expert) >= self.value(slot):
                self.slots[slot] = expert

    def value(self, slot: int) -> float:
        content = self.slots[slot]
        return -1 if content is None else self.score(content)


@pytest.mark.parametrize(("half_life", "staging"), [(2.3, 0), (7.7, 0), (7.7, 6), (1e9, 0), (1e9, 6)])
def test_replacement_follows_the_policy(tmp_path: Path, half_life: float, staging: int) -> None:
    rng = np.random.default_rng(3)
    top_k, experts, slots = 3, [13, 9], 10 + staging
    options = {"half_life": half_life, "top_k": top_k, "staging": staging}
    replays = Replays(tmp_path, experts, slots, **options)
    policy = Policy(experts, slots, staging, half_life, top_k)
    popular = rng.permutation(13) ** 2 + 1
    with replays.store:
        for step in range(150):
            for layer, count in enumerate(experts):
                share = np.roll(popular[:count], step // 40)
                ids = [*rng.choice(count, top_k, replace=False, p=share / share.sum())]
                replays.replay(*[[]] * layer, ids)
                policy.replay(layer, [int(expert) for expert in ids])
            expected = {content: slot for slot, content in enumerate(policy.slots) if content is not None}
            assert replays.cached() == expected, step


def test_staged_experts_do_not_replace_better_ones(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (40,), slots=6, staging=2, half_life=100)
    with replays.store:
        for _ in range(5):
            replays.replay([0, 1, 2, 3])
        cached = replays.cached()
        replays.replay(range(4, 40))  # a sweep
        assert replays.cached() == cached
        for _ in range(5):
            replays.replay([30, 31])
        assert {(0, 30), (0, 31)} < set(replays.cached())


@pytest.mark.parametrize("staging", [0, 2])
def test_resize(tmp_path: Path, staging: int) -> None:
    replays = Replays(tmp_path, (30, 20), slots=24, staging=staging)
    rng = np.random.default_rng(staging)
    with replays.store as store:
        for slots in [24, 7, 16, 1, 24, 100]:
            before = replays.cached()
            store.resize(slots, staging)
            assert store.slots == min(slots, 24)
            kept = replays.cached()
            assert kept == {expert: slot for expert, slot in before.items() if slot in kept.values()}
            if slots >= 24 and staging == 0:
                assert kept == before
            for _ in range(3):
                replays.replay(rng.integers(0, 30, 20), rng.integers(0, 20, 20))
                used = min(slots, 24)
                assert max(replays.cached().values()) < used - min(staging, used - 1)
    assert store.slots == 0


def test_resize_to_other_staging_slots(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (30,), slots=6, staging=0)
    with replays.store as store:
        replays.replay(range(6))
        assert sorted(replays.cached().values()) == [0, 1, 2, 3, 4, 5]
        store.resize(6, 2)
        assert store.slots == 6
        assert sorted(replays.cached().values()) == [0, 1, 2, 3]


def test_resize_gives_memory_back(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (30,), slots=24, staging=0)
    with replays.store as store:
        replays.replay(range(24))
        store.resize(4)
        assert store.filled == 4
        assert replays.memory[0][:4].any(axis=1).all()
        if sys.platform == "linux":
            assert not replays.memory[0][4:].any()  # new pages, which are zero


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer has an mlock that does nothing"
)
def test_memory_that_the_system_keeps_stays_counted(tmp_path: Path) -> None:
    replays = Replays(tmp_path, (30,), slots=24, staging=0)
    memory, library = replays.memory[0], ctypes.CDLL(None)
    with replays.store as store:
        replays.replay(range(24))
        locked = ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes)
        if library.mlock(*locked) != 0:
            pytest.skip("this process may not lock memory")
        store.resize(4)
        assert store.filled == 24
        library.munlock(*locked)
        store.resize(4)
        assert store.filled == 4
        store.resize(24)
        replays.replay(range(30))
        assert store.filled == 24


def test_one_replay_at_a_time(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    with replays.store:
        replays.find_slots(0, [1])
        replays.find_slots(1, [2])
        _native_tests.begin(replays.loops[0])
        with pytest.raises(StateError, match="one replay at a time, got layer 1 while layer 0 is under way"):
            _native_tests.begin(replays.loops[1])


def test_a_replay_has_the_slots_of_all_layers(tmp_path: Path) -> None:
    """Between its loops nothing else may use or move them: neither a replay of another layer nor a resize."""
    replays = Replays(tmp_path, slots=3)
    log, store = Log(replays.device), replays.store

    class Between(Work):
        def next(self) -> bool:
            with pytest.raises(StateError, match="expected one replay of a host loop at a time, got two"):
                second.run()
            with pytest.raises(StateError, match="expert store: expected no replay under way"):
                store.resize(2)
            return super().next()

    first, second = (pyturbo.Program(replays.device) for _ in range(2))
    for program, loop in zip((first, second), replays.loops):
        program.ask(loop)
        program.begin_passes()
        program.end_passes()
    between = Between(log)
    record_loop(first, log, between, 1)
    between.miss(1)
    with store:
        first.run()
        assert between.calls == ["begin", "next", "next", "finish"]
        assert store.slots == 3
        second.run()
        store.resize(2)
        first.run()
        assert store.slots == 2


def test_counts_that_do_not_explain_the_misses_are_refused(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    with replays.store:
        replays.rows[1, 3, 0] = 2
        with pytest.raises(StateError, match="layer 1: expected choices of 2 missing experts .* got 0"):
            _native_tests.begin(replays.loops[1])
        _native_tests.cancel(replays.loops[1])
        replays.replay([1], [2])


def test_an_expert_that_lost_its_slot_before_its_loop(tmp_path: Path) -> None:
    """Both layers look for their experts before the first loop, which takes the only slot."""
    device = pyturbo.Device("cpu", threads=1)
    files = write_files(tmp_path, [4, 4], 4096)
    slab, tables = device.shared(4096, "uint8"), device.shared((2, 5, 4), "int32")
    ids = [device.shared(2, "int32") for _ in files]
    find = device.kernel("find_slots")

    def row(layer: int, number: int, dtype: str = "int32", count: int = 4) -> pyturbo.Buffer:
        return tables.view(count, dtype, offset=(layer * 5 + number) * 16)

    with ExpertStore(files, 4096, slab, tables, threads=1) as store:

        def program(layers: list[int]) -> pyturbo.Program:
            recorded = pyturbo.Program(device)
            for i in layers:
                rows = row(i, 0), row(i, 1, "uint32"), row(i, 2), row(i, 3, "uint32", 1)
                recorded.add(find, ids[i], *rows, 2, 4)
            for i in layers:
                recorded.ask(store.loop(i))
                recorded.begin_passes()
                recorded.end_passes()
            return recorded

        program([1]).run()
        ids[1].write([0, 1])
        with pytest.raises(
            StateError, match="layer 1: expected its find_slots after the loop of the layer before"
        ):
            program([0, 1]).run()
        program([1]).run()


WRONG = {
    "expected a stride in bytes that is a multiple of 4096, got 5000": {"stride": 5000},
    "a split in bytes that is a multiple of 4096, got 512": {"split": 512},
    "expected 1 to 256 threads, got 257": {"threads": 257},
    "threads: expected an integer from 1 on, got 0": {"threads": 0},
    "half_life: expected a number above 0, got -1": {"half_life": -1},
    "half_life: expected a number above 0, got nan": {"half_life": math.nan},
    "half_life: expected a number, got '1'": {"half_life": "1"},
    "half_life: expected a number in range, got": {"half_life": 10**400},
    "top_k: expected an integer from 1 on, got 0": {"top_k": 0},
    "pass_experts: expected an integer from 1 on, got 0": {"pass_experts": 0},
    "expected fewer staging slots than slots (3), got 3": {"staging": 3},
    "expected 1 to 8 experts in a layer, got 9": {"files": 9},
    "expected files of 1 layers, as the tables have, got 0": {"files": 0},
    "direct: expected True or False, got 1": {"direct": 1},
    "slab: expected a writable uint8 buffer of one or more records": {"slab": "float32"},
    "tables: expected writable int32 [layers, 5, padded], got Buffer([1, 5, 8], u": {"tables": "uint32"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(tmp_path: Path, message: str) -> None:
    given = dict(WRONG[message])
    device = pyturbo.Device("cpu")
    stride = given.pop("stride", 4096)
    experts = given.pop("files", 5)
    files = write_files(tmp_path, [experts], stride) if experts else []
    slab = device.empty(3 * stride, given.pop("slab", "uint8"))
    tables = device.empty((1, 5, 8), given.pop("tables", "int32"))
    with pytest.raises(ArgumentError) as raised:
        ExpertStore(files, stride, slab, tables, **given)
    assert message in str(raised.value)


def test_arguments_of_other_types(tmp_path: Path) -> None:
    device = pyturbo.Device("cpu")
    slab, tables = device.empty(4096, "uint8"), device.empty((1, 5, 8), "int32")
    (file,) = write_files(tmp_path, [1], 4096)
    with pytest.raises(ArgumentError, match=r"files: expected pairs, got \('x',\)"):
        ExpertStore([("x",)], 4096, slab, tables)
    with pytest.raises(ArgumentError, match="files: expected the name of a file, got 5"):
        ExpertStore([(5, 1)], 4096, slab, tables)
    with pytest.raises(ArgumentError, match="records: expected a sequence, got 5"):
        ExpertStore.mapped(5, 4096, tables)
    with pytest.raises(ArgumentError, match="seconds: expected a number, got 'x'"):
        time_reads([file], 4096, slab, [(0, 0)], seconds="x")


def test_files_of_another_size(tmp_path: Path) -> None:
    device = pyturbo.Device("cpu")
    slab, tables = device.empty(STRIDE, "uint8"), device.empty((1, 5, 8), "int32")
    files = write_files(tmp_path, [5])
    with pytest.raises(FormatError, match=r"expected 6 records of 12288 bytes .* got 61440 bytes"):
        ExpertStore([(files[0][0], 6)], STRIDE, slab, tables)
    with pytest.raises(FileError, match="none.bin: cannot be opened: No such file"):
        ExpertStore([(tmp_path / "none.bin", 6)], STRIDE, slab, tables)
    with pytest.raises(FileError, match="expected a regular file"):
        ExpertStore([(tmp_path, 6)], STRIDE, slab, tables)


def test_a_layer_that_is_not_there(tmp_path: Path) -> None:
    with Replays(tmp_path).store as store, pytest.raises(ArgumentError, match="layer below 2, got 2"):
        store.loop(2)


def test_records_differ() -> None:
    assert not np.array_equal(record(0, 1), record(1, 0))
