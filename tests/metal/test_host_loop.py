"""Host loops on the Metal device: the GPU stops at a miss by itself and waits for the host nowhere else.

``round_trips`` counts how often the host waited for a command buffer with nothing committed behind it: then
the GPU has nothing to do until the host commits more. That a real GPU accepts indirect dispatches without
threadgroups cannot be seen here.
"""

from __future__ import annotations

import gc
import importlib.util
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import pyturbo
from host_loops import Log, Work, record
from pyturbo.errors import AllocationError, DeviceError, FileError

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

LOOPS = 7
ONCE = [value for i in range(LOOPS) for value in range(4 * i, 4 * i + 4)]


class Layers:
    """A program of several loops, each with four launches that append their number, and one that counts."""

    def __init__(self, device: pyturbo.Device) -> None:
        self.log, self.calls = Log(device), list[str]()
        self.works = [Work(self.log, f"{i} ", self.calls) for i in range(LOOPS)]
        self.program = pyturbo.Program(device)
        for i, work in enumerate(self.works):
            record(self.program, self.log, work, 4 * i)
        self.program.run()
        self.log.clear()
        for seen in (self.calls, *(work.logs for work in self.works)):
            seen.clear()

    def run(self) -> dict[str, int]:
        """Replay, and return what soft Metal has counted."""
        self.log.clear()
        soft_metal.reset()
        self.program.run()
        return soft_metal.counters()

    def want(self, passes: dict[int, int]) -> list[int]:
        """Return the log of a replay in which these loops have so many passes after the first one."""
        return [value for i in ONCE for value in [i] * (1 + (passes.get(i // 4, 0) if i % 4 == 2 else 0))]


@pytest.fixture
def metal() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("metal") as device:
        yield device


@pytest.fixture
def layers(metal: pyturbo.Device) -> Layers:
    return Layers(metal)


def test_without_a_miss_there_is_one_round_trip(layers: Layers) -> None:
    counters = layers.run()
    assert (counters["round_trips"], counters["empty_dispatches"]) == (1, 0)
    assert counters["command_buffers"] == 1 + LOOPS  # one more than there are asks
    assert counters["dispatches"] == 5 * LOOPS + LOOPS  # all launches, and a gate for each loop
    assert layers.log.read() == ONCE


@pytest.mark.parametrize("missed", [[0], [3], [6], [0, 1], [2, 5], list(range(LOOPS))])
def test_a_miss_costs_one_round_trip(layers: Layers, missed: list[int]) -> None:
    for i in missed:
        layers.works[i].miss(1, knows_last=True)
    counters = layers.run()
    assert counters["round_trips"] == 1 + len(missed)
    assert layers.log.read() == layers.want(dict.fromkeys(missed, 1))
    assert layers.calls == [f"{i} {call}" for i in missed for call in ("begin", "next")] + [
        f"{i} finish" for i in range(LOOPS)
    ]


@pytest.mark.parametrize("knows_last", [False, True])
@pytest.mark.parametrize("passes", [1, 2, 4])
def test_each_further_pass_costs_one_round_trip(layers: Layers, passes: int, knows_last: bool) -> None:
    layers.works[2].miss(passes, knows_last=knows_last)
    assert layers.run()["round_trips"] == 1 + passes + (not knows_last)
    assert layers.log.read() == layers.want({2: passes})


def test_nothing_runs_behind_a_miss(layers: Layers) -> None:
    """When the host is asked for the next pass, the log ends with the first one, whatever was committed."""
    layers.works[1].miss(1, knows_last=True)
    layers.works[2].miss(1, knows_last=True)  # its gate stays closed too
    counters = layers.run()
    assert layers.works[1].logs[1] == ONCE[:7]
    assert counters["empty_dispatches"] > 0
    assert layers.log.read() == layers.want({1: 1, 2: 1})


def test_the_first_pass_runs_while_the_host_begins(layers: Layers) -> None:
    """begin() is called when the launches before the ask are done; those behind it have not even begun."""
    for delay in (20, 100, 500, 2500):  # a busy machine needs a longer one
        layers.log.clear()
        layers.works[2].logs.clear()
        layers.works[2].miss(1, knows_last=True)
        soft_metal.reset()
        soft_metal.inject("slow", after=3, milliseconds=delay)
        layers.program.run()
        begun, first_pass = layers.works[2].logs[:2]
        assert first_pass == ONCE[:11]
        if begun == ONCE[:9]:
            return
    pytest.fail(f"begin() was called when the log was {begun}")


def test_replays_in_flight_go_first(metal: pyturbo.Device, layers: Layers) -> None:
    soft_metal.inject("slow", times=3, milliseconds=20)
    other = pyturbo.Program(metal)
    layers.log.add(other, 99)
    for _ in range(3):
        other.run(wait=False)
    layers.works[0].miss(2)
    layers.program.run()
    assert layers.log.read() == [99] * 3 + layers.want({0: 2})


def test_two_threads(metal: pyturbo.Device) -> None:
    """Replays of two programs, each with gates of its own, at the same time."""
    both = [Layers(metal), Layers(metal)]
    failures: list[BaseException] = []

    def work(layers: Layers, seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(30):
                passes = {i: int(rng.integers(1, 3)) for i in range(LOOPS) if rng.random() < 0.4}
                for i, each in enumerate(layers.works):
                    each.miss(passes[i], knows_last=bool(rng.random() < 0.5)) if i in passes else each.hit()
                layers.log.clear()
                layers.program.run()
                assert layers.log.read() == layers.want(passes)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(layers, i)) for i, layers in enumerate(both)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_memory_that_is_copied(metal: pyturbo.Device) -> None:
    """The GPU sees a copy of the count, so the device waits at every ask."""
    log = Log(metal)
    work, program = Work(log), pyturbo.Program(metal)
    missing = metal.buffer(np.zeros(3, np.uint32)).view(1, offset=4)
    work.missing, work.loop = missing, type(work.loop)(work, missing)
    record(program, log, work, 1)
    for passes in (0, 2):
        work.miss(passes)
        log.clear()
        program.run()
        assert log.read() == [1, 2, *[3] * (1 + passes), 4]
    work.hit()
    log.clear()
    soft_metal.reset()
    program.run()
    assert soft_metal.counters()["round_trips"] == 2
    assert log.read() == [1, 2, 3, 4]


def test_a_count_that_no_launch_writes(metal: pyturbo.Device) -> None:
    """The GPU does not know the memory of the count, so the device waits at every ask."""
    log = Log(metal)
    work, program = Work(log), pyturbo.Program(metal)
    work.missing = metal.buffer(np.full(1, 5, np.uint32))
    work.loop, work.passes = type(work.loop)(work, work.missing), 2
    program.ask(work.loop)
    program.begin_passes()
    log.add(program, 3)
    program.end_passes()
    program.run()
    assert log.read() == [3, 3, 3]


def test_windows_over_the_same_memory() -> None:
    """Metal cannot order launches through buffers that overlap, so the device waits at every ask."""
    soft_metal.set_options(max_buffer_length=4 * 16384)
    with pyturbo.Device("metal") as device:
        long, layers, add = device.empty(10 * 4096), Layers(device), device.kernel("add")
        for first in (0, 30_000):
            part = long.view(100, offset=4 * first)
            layers.program.add(add, part, part, part, 100)
        layers.works[3].miss(1, knows_last=True)
        for _ in range(2):
            layers.log.clear()
            layers.program.run()
            assert layers.log.read() == layers.want({3: 1})
        assert soft_metal.counters()["empty_dispatches"] == 0


@pytest.mark.parametrize("missed", [[], [2], [LOOPS]])
def test_long_segments_are_cut(metal: pyturbo.Device, missed: list[int]) -> None:
    layers = Layers(metal)
    long = metal.empty(1 << 28)  # of which only the beginning is used
    for i in (LOOPS, LOOPS + 1):
        for _ in range(4):
            layers.program.add(metal.kernel("add"), long, long, long, 64)  # 3 GiB: 54 ms
        layers.works.append(Work(layers.log, f"{i} ", layers.calls))
        record(layers.program, layers.log, layers.works[-1], 4 * i)
    for i in missed:
        layers.works[i].miss(1, knows_last=True)
    counters = layers.run()
    again = [4 * i + 2 for i in missed]
    assert layers.log.read() == [i for i in range(4 * (LOOPS + 2)) for _ in range(1 + (i in again))]
    if not missed:
        assert counters["command_buffers"] == LOOPS + 2 + 1 + 2 * 4


def test_the_host_looks_ahead_by_segments(metal: pyturbo.Device) -> None:
    """Two segments are committed while one runs, regardless of how many command buffers each has."""
    log, long = Log(metal), metal.empty(1 << 28)  # of which only the beginning is used
    program, works = pyturbo.Program(metal), [Work(log) for _ in range(3)]
    for i, work in enumerate(works):
        for _ in range(4):
            program.add(metal.kernel("add"), long, long, long, 64)  # 3 GiB: 54 ms
        record(program, log, work, 4 * i)
    program.run()
    for delay in (100, 500, 2500):  # a busy machine needs a longer one
        log.clear()
        soft_metal.reset()
        soft_metal.inject("slow", milliseconds=delay)
        replay = threading.Thread(target=program.run)
        replay.start()
        while replay.is_alive() and log.read() == [] and soft_metal.counters()["command_buffers"] < 3 * 4:
            time.sleep(0.001)
        ahead = log.read() == []
        replay.join()
        assert log.read() == list(range(4 * len(works)))
        if ahead:
            return
    pytest.fail("the host waited for launches of the first segment")


@pytest.mark.parametrize("after", range(1 + LOOPS))
def test_a_command_buffer_fails(after: int) -> None:
    """Whichever it is, the host is told once, and nothing of the device hangs."""
    with pyturbo.Device("metal") as device:
        layers = Layers(device)
        layers.works[0].miss(1, knows_last=True)
        soft_metal.reset()
        soft_metal.inject("command_buffer", after=after, text="GPU Hang")
        with pytest.raises(DeviceError, match="program of 35 launches: .*GPU Hang"):
            layers.program.run()
        assert layers.calls[-LOOPS:] == [f"{i} cancel" for i in range(LOOPS)]
        begun = [] if after == 0 else ["0 begin"] if after < 3 else ["0 begin", "0 next"]
        assert layers.calls[:-LOOPS] == begun
        with pytest.raises(DeviceError, match="GPU Hang"):
            layers.program.run()
        soft_metal.reset()


@pytest.mark.parametrize("fails", ["begin", "next"])
def test_a_host_that_fails_while_the_gpu_works(layers: Layers, fails: str) -> None:
    soft_metal.inject("slow", after=2, times=1, milliseconds=50)
    layers.works[1].miss(1, fails=fails)
    with pytest.raises(FileError, match=f"cannot {fails}"):
        layers.program.run()
    assert layers.works[1].logs[-1] == ONCE[:7]  # at cancel() the GPU was done, and had not gone on
    layers.works[1].miss(1)
    layers.log.clear()
    assert layers.run()["round_trips"] == 3
    assert layers.log.read() == layers.want({1: 1})


def test_profiles_wait_at_every_ask(layers: Layers) -> None:
    layers.works[4].miss(2)
    soft_metal.reset()
    rows = layers.program.profile()
    assert soft_metal.counters()["round_trips"] > LOOPS
    assert layers.log.read() == layers.want({4: 2})
    assert all(0 < seconds < 1 for _, _, seconds in rows)


def test_memory_of_gates_is_kept(metal: pyturbo.Device, layers: Layers) -> None:
    gc.collect()
    before = Counter(soft_metal.live_objects())
    for i in (1, 4, 6):
        layers.works[i].miss(1)
        layers.run()
    assert Counter(soft_metal.live_objects()) == before
    fresh = pyturbo.Device("metal")
    work = Layers(fresh)
    fresh.close()
    del work
    gc.collect()
    assert Counter(soft_metal.live_objects()) == before


def test_memory_of_gates_that_metal_refuses(metal: pyturbo.Device) -> None:
    log = Log(metal)
    work, program = Work(log), pyturbo.Program(metal)
    record(program, log, work, 1)
    soft_metal.inject("allocation")
    with pytest.raises(AllocationError, match="Metal cannot make a buffer"):
        program.run()
    assert (work.calls, log.read()) == (["cancel"], [])
    program.run()
    assert (work.calls, log.read()) == (["cancel", "finish"], [1, 2, 3, 4])


def test_long_programs(metal: pyturbo.Device) -> None:
    """The numbers of threadgroups take more than a page, and gates clear more than their threads at once."""
    log, x = Log(metal), metal.empty(4)
    add = metal.kernel("add")
    program, works = pyturbo.Program(metal), [Work(log) for _ in range(2)]
    for i, work in enumerate(works):
        record(program, log, work, 4 * i)
        for _ in range(800):
            program.add(add, x, x, x, 4)
    x.numpy()[:] = 0
    works[0].miss(1, knows_last=True)
    program.run()
    assert log.read() == [0, 1, 2, 2, 3, 4, 5, 6, 7]
