"""Host loops: what runs when, how often, and what becomes of failures.

The launches write a log, so its contents show the order in which they ran.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyturbo
from host_loops import Log, Work, record
from pyturbo import _native_tests, ops, recording
from pyturbo._host_loop import HostLoop
from pyturbo.errors import ArgumentError, FileError, StateError, TurboError
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import Loop


@pytest.fixture
def log(device: pyturbo.Device) -> Log:
    return Log(device)


def test_without_a_miss_the_host_is_not_asked(device: pyturbo.Device, log: Log) -> None:
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    for _ in range(2):
        program.run()
    assert work.calls == ["finish", "finish"]
    assert log.read() == [1, 2, 3, 4] * 2


@pytest.mark.parametrize("knows_last", [False, True])
@pytest.mark.parametrize("passes", [0, 1, 2, 5])
def test_passes(device: pyturbo.Device, log: Log, passes: int, knows_last: bool) -> None:
    """The host is called between passes. A loop that marks its last pass is not asked for another."""
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    work.miss(passes, knows_last=knows_last)
    program.run()
    marked = knows_last and passes > 0
    assert work.calls == ["begin", *["next"] * (passes + (not marked)), "finish"]
    assert log.read() == [1, 2, *[3] * (1 + passes), 4]
    assert work.logs[0][:1] == [1]
    assert 4 not in work.logs[0]
    for i, seen in enumerate(work.logs[1:-1]):
        assert seen == [1, 2, *[3] * (i + 1)]
    assert work.logs[-1] == log.read()


def test_several_loops_finish_in_order(device: pyturbo.Device, log: Log) -> None:
    calls: list[str] = []
    first, second, third = (Work(log, name, calls) for name in ("a ", "b ", "c "))
    program = pyturbo.Program(device)
    for i, work in enumerate((first, second, third)):
        record(program, log, work, 10 * i)
    first.miss(1)
    third.miss(2, knows_last=True)
    program.run(wait=False)
    ends = ["a finish", "b finish", "c finish"]
    assert calls == ["a begin", "a next", "a next", "c begin", "c next", "c next", *ends]
    assert log.read() == [0, 1, 2, 2, 3, 10, 11, 12, 13, 20, 21, 22, 22, 22, 23]
    calls.clear()
    log.clear()
    first.hit(), second.miss(1), third.hit()
    program.run()
    assert calls == ["b begin", "b next", "b next", *ends]
    assert log.read() == [0, 1, 2, 3, 10, 11, 12, 12, 13, 20, 21, 22, 23]


def test_neighbouring_and_empty_parts(device: pyturbo.Device, log: Log) -> None:
    """A loop may begin a program, end it, follow another one directly, and have no launches."""
    first, empty, last = Work(log), Work(log), Work(log)
    program = pyturbo.Program(device)
    program.ask(first.loop)
    program.begin_passes()
    log.add(program, 1)
    program.end_passes()
    program.ask(empty.loop)
    program.begin_passes()
    program.end_passes()
    program.ask(last.loop)
    log.add(program, 2)
    program.begin_passes()
    log.add(program, 3)
    program.end_passes()
    for work in (first, empty, last):
        work.missing.numpy()[0] = 5
        work.passes = 2
    program.run()
    assert log.read() == [1, 1, 1, 2, 3, 3, 3]
    assert empty.calls == ["begin", "next", "next", "next", "finish"]


@pytest.mark.parametrize("fails", ["begin", "next"])
def test_a_failure_of_the_host(device: pyturbo.Device, log: Log, fails: str) -> None:
    calls: list[str] = []
    first, second = Work(log, "a ", calls), Work(log, "b ", calls)
    program = pyturbo.Program(device)
    record(program, log, first, 1)
    record(program, log, second, 11)
    first.miss(1, fails=fails)
    with pytest.raises(FileError, match=f"cannot {fails}"):
        program.run()
    begun = {"begin": ["a begin"], "next": ["a begin", "a next"]}[fails]
    assert calls == [*begun, "a cancel", "b cancel"]
    assert 4 not in log.read()
    calls.clear()
    log.clear()
    first.miss(1)
    program.run()
    assert log.read() == [1, 2, 3, 3, 4, 11, 12, 13, 14]
    assert calls == ["a begin", "a next", "a next", "a finish", "b finish"]
    assert ops.add(np.ones(3, np.float32), np.ones(3, np.float32), device=device).tolist() == [2, 2, 2]


def test_a_failure_of_an_end(device: pyturbo.Device, log: Log) -> None:
    """Of several failures the first one is reported, and every loop is ended once."""
    calls: list[str] = []
    first, second, third = (Work(log, name, calls) for name in ("a ", "b ", "c "))
    program = pyturbo.Program(device)
    for i, work in enumerate((first, second, third)):
        record(program, log, work, 10 * i)
    second.fails, third.fails = "finish", "cancel"
    with pytest.raises(FileError, match="cannot finish"):
        program.run()
    assert calls == ["a finish", "b finish", "c cancel"]


def test_a_failing_launch_cancels() -> None:
    device = pyturbo.Device("cpu:reference", check=True)
    log = Log(device)
    work, program, out = Work(log), pyturbo.Program(device), device.empty(32)
    record(program, log, work, 1)
    program.add(device.kernel("threadgroup_race"), out)
    work.miss(1)
    for _ in range(2):
        work.calls.clear()
        with pytest.raises(TurboError, match="threadgroup_race"):
            program.run()
        assert work.calls == ["begin", "next", "next", "cancel"]


def test_wrong_order(device: pyturbo.Device, log: Log) -> None:
    work, program = Work(log), pyturbo.Program(device)
    closed, asked, passes = "no open loop", "a loop after ask", "a loop after begin_passes"

    def refused(use: str, expected: str, got: str) -> None:
        call = {"ask": lambda: program.ask(work.loop)}.get(use) or getattr(program, use)
        with pytest.raises(StateError, match=f"{use}: expected {expected}, got {got}"):
            call()

    refused("begin_passes", asked, closed)
    refused("end_passes", passes, closed)
    program.ask(work.loop)
    refused("ask", closed, asked)
    refused("end_passes", passes, asked)
    refused("run", closed, asked)
    program.begin_passes()
    refused("ask", closed, passes)
    refused("begin_passes", asked, passes)
    refused("run", closed, passes)
    assert program.loops() == [Loop(0, 0, None)]
    program.end_passes()
    program.run()
    assert work.calls == ["finish"]


def test_wrong_loops(device: pyturbo.Device) -> None:
    program = pyturbo.Program(device)
    with pytest.raises(StateError, match="the host loop has no work"):
        program.ask(HostLoop())
    for wrong in (None, 5, object()):
        with pytest.raises(TypeError):
            program.ask(wrong)  # type: ignore[arg-type]
    assert program.loops() == []


def test_a_loop_is_asked_once_in_a_program(device: pyturbo.Device, log: Log) -> None:
    """A GPU runs ahead: launches before the second ask would overwrite the count of the first."""
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    for loop in (work.loop, _native_tests.CallbackLoop(work, work.missing)):
        with pytest.raises(ArgumentError, match="ask: expected a loop that the program has not asked yet"):
            program.ask(loop)
    program.run()
    assert log.read() == [1, 2, 3, 4]
    pyturbo.Program(device).ask(work.loop)


def test_a_loop_is_part_of_one_replay_at_a_time(device: pyturbo.Device, log: Log) -> None:
    """A second replay is refused before its first launch and ends nothing; the first one goes on."""

    class Nested(Work):
        def next(self) -> bool:
            message = "run: expected one replay of a host loop at a time, got two"
            if self.calls == ["begin"]:
                with pytest.raises(StateError, match=message):
                    other.run()
            return super().next()

    work, free = Nested(log), Work(log)
    program, other = pyturbo.Program(device), pyturbo.Program(device)
    record(program, log, work, 1)
    record(other, log, free, 11)
    record(other, log, work, 21)
    work.miss(2)
    program.run()
    assert work.calls == ["begin", "next", "next", "next", "finish"]
    assert free.calls == []
    assert log.read() == [1, 2, 3, 3, 3, 4]
    work.hit()
    other.run()
    assert log.read()[6:] == [11, 12, 13, 14, 21, 22, 23, 24]
    assert free.calls == ["finish"]


def test_loops_of_a_closed_device() -> None:
    device = pyturbo.Device("cpu")
    log = Log(device)
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    device.close()
    for use in (program.run, program.begin_passes, program.end_passes, lambda: program.ask(work.loop)):
        with pytest.raises(StateError, match="closed"):
            use()
    assert work.calls == []


def test_listing(device: pyturbo.Device, log: Log) -> None:
    program = pyturbo.Program(device)
    record(program, log, Work(log), 1)
    record(program, log, Work(log), 5)
    assert program.loops() == [Loop(2, 3, 4), Loop(7, 8, 9)]
    rows = program.listing()
    assert [launch.repeats for launch in rows] == [False, False, False, True, False] * 2
    lines = str(program).splitlines()
    marks = [2, 4, 6, 10, 12, 14]
    assert [lines[i] for i in marks] == ["? ask", "> passes", "< end of passes"] * 2
    words = ["before", "count", "meanwhile", "pass", "after"] * 2
    assert [line.replace("|", " ").split()[0] for i, line in enumerate(lines) if i not in marks] == words


def test_barriers_at_the_points(device: pyturbo.Device, log: Log) -> None:
    """Launches that touch nothing in common wait at the three points all the same."""
    program, add = pyturbo.Program(device), device.kernel("add")

    def launch() -> None:
        program.add(add, *(device.empty(4) for _ in range(3)), 4)

    for point in (lambda: program.ask(Work(log).loop), program.begin_passes, program.end_passes, launch):
        launch()
        launch()
        point()
    assert [row.waits for row in program.listing()] == [False, False, *[True, False] * 3, False]


def test_times_add_up_over_passes(device: pyturbo.Device, log: Log) -> None:
    work, program = Work(log), pyturbo.Program(device)
    record(program, log, work, 1)
    for passes in (0, 3):
        work.miss(passes)
        log.clear()
        rows = program.profile()
        assert log.read() == [1, 2, *[3] * (1 + passes), 4]
        assert [row[0] for row in rows] == ["before", "count", "meanwhile", "pass", "after"]
        assert all(0 < seconds < 1 for _, _, seconds in rows)


def test_times_of_all_passes_are_counted() -> None:
    """A launch of ten passes takes longer than the same launch of the same size after them."""
    device = pyturbo.Device("cpu:reference", threads=1, check=False)
    log = Log(device)
    work, program, spin = Work(log), pyturbo.Program(device), device.kernel("simdgroup_waits")
    program.ask(work.loop)
    program.begin_passes()
    program.add(spin, 5000)
    program.end_passes()
    program.add(spin, 5000)
    seconds = []
    for _ in range(5):
        work.missing.numpy()[0], work.passes = 5, 9
        seconds.append([row[2] for row in program.profile()])
    passes, once = np.min(seconds, axis=0)  # other load on the machine affects the shortest times least
    assert passes > 5 * once


def test_tensors_keep_their_memory_during_passes(device: pyturbo.Device, log: Log) -> None:
    """Each pass writes one row. Rows of earlier passes stay, whatever a pass writes before its last row."""
    rows, width = 5, 8
    row, result = device.shared(1, "uint32"), device.empty((rows, 2))
    source = np.arange(1, 1 + rows * width, dtype=np.float32).reshape(rows, width)

    class Rows(Work):
        """From the last row to the first, so that longer rows would overwrite shorter ones."""

        def next(self) -> bool:
            row.numpy()[0] -= min(1, row.numpy()[0])
            return super().next()

    work = Rows(log)

    def doubled(x: Tensor | np.ndarray, count: int) -> Tensor:
        y = recorder.empty((rows, count))
        recorder.launch("double_row", (x, row, y, rows, x.shape[1], count), None)
        return y

    with Recorder(device, {}) as recorder:
        recording.ask(work.loop)
        with recording.passes():
            x: Tensor | np.ndarray = source
            for count in (8, 7, 6, 5, 4, 3):
                x = doubled(x, count)
            recorder.launch("double_row", (x, row, Tensor(result, (rows, 2), np.float32), rows, 3, 2), None)
            last = doubled(x, 2)
    row.numpy()[0] = rows - 1
    work.missing.numpy()[0], work.passes = 5, rows - 1
    recorder.program.run()
    np.testing.assert_array_equal(result.numpy(), 2**7 * source[:, :2])
    np.testing.assert_array_equal(last.memory.numpy()[: rows * 2].reshape(rows, 2), 2**7 * source[:, :2])  # type: ignore[union-attr]


def test_a_tensor_dropped_during_passes_keeps_its_memory(device: pyturbo.Device, log: Log) -> None:
    """What the launches before the passes have made is the same in every pass."""
    one, work = np.ones(6, np.float32), Work(log)
    with Recorder(device, {}) as recorder:
        x = ops.add(one, one)
        recorder.ask(work.loop)
        with recorder.passes():
            for _ in range(6):
                x = ops.add(x, one)
        y = ops.add(x, one)
    for passes in (0, 3):
        work.missing.numpy()[0], work.passes = 5, passes
        recorder.program.run()
        assert y.memory.numpy()[:6].tolist() == [9] * 6  # type: ignore[attr-defined]


def test_memory_is_used_again_after_passes(device: pyturbo.Device, log: Log) -> None:
    def scratch(layers: int) -> int:
        with Recorder(device, {}) as recorder:
            x = ops.add(np.ones(6, np.float32), np.ones(6, np.float32))
            for _ in range(layers):
                recorder.ask(Work(log).loop)
                with recorder.passes():
                    for _ in range(5):
                        x = ops.add(x, x)
        return recorder.scratch_bytes

    assert scratch(2) == scratch(6) > 0


def test_host_loops_need_a_recorder(log: Log) -> None:
    with pytest.raises(StateError, match="ask: expected an active Recorder"):
        recording.ask(Work(log).loop)
    with pytest.raises(StateError, match="passes: expected an active Recorder"), recording.passes():
        pass
