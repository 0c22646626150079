"""Replays that are encoded while the one before them runs: only their commit is left, and no result differs.

Soft Metal counts command buffers that are made, committed and dropped, and runs work on a thread of its own,
so that values that are set too early would show. How much time this saves on a Mac cannot be seen here.
"""

from __future__ import annotations

import gc
import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from expected_rows import (
    ROWS,
    WIDTH,
    block_of,
    check,
    check_forks_rewinds_and_turns,
    check_wrong_guesses,
    cursor_at,
    row_adder,
)
from host_loops import Log, Work, record
from pyturbo.engine.together import step_together
from pyturbo.errors import ArgumentError, DeviceError, StateError
from pyturbo.symbols import Place, symbol
from text.tiny_chat import write_model

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

MOST = 16  # command buffers that are encoded and not committed


@pytest.fixture
def metal() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("metal") as device:
        yield device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("ahead") / "model", layers=2)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, "metal") as model:
        yield model


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, "cpu") as model:
        yield model


def since(made: int, committed: int, dropped: int = 0) -> None:
    """Check how many command buffers there were since the last call."""
    counters = soft_metal.counters()
    found = counters["made"], counters["command_buffers"], counters["dropped"]
    assert found == (made, committed, dropped)
    soft_metal.reset()


def alive() -> int:
    gc.collect()
    return soft_metal.live_objects().get("MTLCommandBuffer", 0)


def test_a_replay_that_was_expected_is_only_committed(metal: pyturbo.Device) -> None:
    program, block = row_adder(metal), block_of(metal)
    soft_metal.reset()
    program.prepare([block], row=0, count=8)
    since(made=1, committed=0)
    assert block.read().sum() == 0
    program.run([block], row=0, count=8)
    since(made=0, committed=1)
    for _ in range(2):
        program.prepare([block], row=1, count=3)
    since(made=1, committed=0)
    for wait in (False, True):  # the second of them was not expected
        program.run([block], wait=wait, row=1, count=3)
    since(made=1, committed=2)
    rows = block.read()
    np.testing.assert_array_equal(rows[0], np.ones(WIDTH))
    np.testing.assert_array_equal(rows[1], [2] * 3 + [0] * 5)
    np.testing.assert_array_equal(rows[ROWS], [4] * 3 + [1] * 5)


def test_the_next_row_is_encoded_while_this_one_runs(metal: pyturbo.Device) -> None:
    program, block, cursor = row_adder(metal), block_of(metal), cursor_at(0)
    soft_metal.reset()
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    since(made=2, committed=1)
    for _ in range(3):
        soft_metal.inject("slow", milliseconds=20)
        program.run([block], advance=1, ahead=True, row=cursor, count=8)
        since(made=1, committed=1)
    program.run([block], wait=False, advance=1, ahead={"count": 3}, row=cursor, count=8)
    since(made=1, committed=1)
    program.run([block], row=cursor, count=3)
    since(made=0, committed=1)
    np.testing.assert_array_equal(block.read()[:, 0], [1, 1, 1, 1, 1, 1, 6])


def test_replays_under_way_are_not_affected(metal: pyturbo.Device) -> None:
    """However many others were expected meanwhile, their values are where nobody reads them."""
    program, block = row_adder(metal), block_of(metal)
    soft_metal.inject("slow", times=3, milliseconds=100)
    for row in range(3):
        program.run([block], wait=False, row=row, count=8 - row)
    soft_metal.reset()
    for i in range(20):
        program.prepare([block], row=5, count=1 + i % 7)
    since(made=20, committed=0, dropped=19)
    metal.synchronize()
    rows = block.read()
    np.testing.assert_array_equal(rows[:, 0], [1, 1, 1, 0, 0, 0, 3])
    np.testing.assert_array_equal(rows.sum(axis=1), [8, 7, 6, 0, 0, 0, 21])


def test_a_wrong_guess_changes_nothing(metal: pyturbo.Device) -> None:
    soft_metal.reset()
    check_wrong_guesses(metal)
    since(made=9, committed=6, dropped=3)


def test_a_row_behind_the_last_is_refused_when_it_is_asked_for(metal: pyturbo.Device) -> None:
    program, block, cursor = row_adder(metal), block_of(metal), cursor_at(ROWS)
    soft_metal.reset()
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    since(made=1, committed=1)
    with pytest.raises(ArgumentError, match="add: a: expected bytes 224 to 256, got memory of 224 bytes"):
        program.run([block], row=cursor, count=8)
    program.run([block], row=0, count=8)
    np.testing.assert_array_equal(block.read()[:, 0], [1, 0, 0, 0, 0, 0, 1 + 2 * 1])


def test_a_profile_leaves_what_is_expected(metal: pyturbo.Device) -> None:
    program, block = row_adder(metal), block_of(metal)
    program.prepare([block], row=2, count=8)
    program.profile([block], row=2, count=8)
    soft_metal.reset()
    program.run([block], row=2, count=8)
    since(made=0, committed=1)
    program.prepare([block], row=3, count=8)
    program.profile([block], row=4, count=8)
    program.run([block], row=3, count=8)
    np.testing.assert_array_equal(block.read()[:, 0], [0, 0, 2, 1, 1, 0, 1 + 2 + 1 + 1])


def test_launches_that_are_added_count(metal: pyturbo.Device) -> None:
    program, block, cursor = row_adder(metal), block_of(metal), cursor_at(0)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    total = Place("block", 4 * WIDTH * ROWS, 4 * WIDTH)
    program.add(metal.kernel("add"), total, total, total, WIDTH)
    assert alive() == 0
    program.run([block], row=cursor, count=8)
    assert block.read()[ROWS, 0] == 2 * (1 + 1)


def test_memory_of_the_host_is_never_expected(metal: pyturbo.Device) -> None:
    """It is copied for every replay."""
    program, block = row_adder(metal), block_of(metal)
    host = metal.buffer(np.zeros((ROWS + 1, WIDTH), np.float32))
    for each, made in ((block, 1), (host, 0), (host, 0), (block, 1), (host, 0)):
        soft_metal.reset()
        program.prepare([each], row=2, count=8)
        assert soft_metal.counters()["made"] == made
        program.run([each], row=2, count=8)
    np.testing.assert_array_equal(block.read()[:, 0], [0, 0, 2, 0, 0, 0, 3])
    np.testing.assert_array_equal(host.read()[:, 0], [0, 0, 3, 0, 0, 0, 6])


def test_the_empty_replay(metal: pyturbo.Device) -> None:
    program = pyturbo.Program(metal, symbols=("row",))
    program.prepare(row=1)
    program.run(ahead=True, row=2)
    assert alive() == 0


# What they use ------------------------------------------------------------------------------------


def test_memory_that_goes_takes_them_along(metal: pyturbo.Device) -> None:
    program, block, other = row_adder(metal), block_of(metal), metal.empty(1 << 12)
    program.prepare([block], row=0, count=8)
    assert alive() == 1
    del other
    assert alive() == 0
    program.prepare([block], row=0, count=8)  # with the same symbols
    assert alive() == 1
    for _ in range(4):  # the next block may have the address of the last
        del block
        assert alive() == 0
        block = block_of(metal)
        program.run([block], row=0, count=8)
        assert block.read()[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 1]
        program.prepare([block], row=1, count=8)


def test_programs_that_go_take_theirs_along(metal: pyturbo.Device) -> None:
    block, program = block_of(metal), row_adder(metal)
    program.prepare([block], row=0, count=8)
    assert alive() == 1
    del program
    assert alive() == 0


def test_close_drops_them() -> None:
    gc.collect()
    before = soft_metal.live_objects()
    device = pyturbo.Device("metal")
    program, block = row_adder(device), block_of(device)
    program.run([block], advance=1, ahead=True, row=cursor_at(0), count=8)
    assert alive() == 1
    device.close()
    gc.collect()
    assert soft_metal.live_objects() == before
    for call in (program.run, program.prepare):
        with pytest.raises(StateError, match="the device is closed"):
            call([block], row=1, count=8)
    assert block.read()[0, 0] == 1


def test_many_programs(metal: pyturbo.Device) -> None:
    """At most 16 encoded command buffers are kept, since Metal limits a queue; the oldest go first."""
    programs, blocks = [row_adder(metal) for _ in range(80)], [block_of(metal) for _ in range(80)]
    for program, block in zip(programs, blocks):
        program.run([block], advance=1, ahead=True, row=cursor_at(0), count=8)
    assert alive() == MOST
    soft_metal.reset()
    for program, block in zip(programs[-MOST:], blocks[-MOST:]):
        program.run([block], row=1, count=8)
    since(made=0, committed=MOST)
    for program, block in zip(programs[:-MOST], blocks[:-MOST]):
        program.run([block], row=1, count=8)
    for block in blocks:
        assert block.read()[:, 0].tolist() == [1, 1, 0, 0, 0, 0, 2]


def long_adder(device: pyturbo.Device, launches: int) -> tuple[pyturbo.Program, pyturbo.Buffer]:
    """Launches that take a command buffer each: of what they are given, they use only the beginning."""
    long = device.empty(1 << 28)
    program = pyturbo.Program(device, symbols=("count",))
    for _ in range(launches):
        program.add(device.kernel("add"), long, long, long, symbol("count"))  # 3 GiB: 54 ms
    return program, long


@pytest.mark.parametrize("launches", [3, MOST, MOST + 1])
def test_replays_of_several_command_buffers(metal: pyturbo.Device, launches: int) -> None:
    program, long = long_adder(metal, launches)
    assert len(program.parts(count=2)) == launches
    ahead = launches if launches <= MOST else 0
    for count in (3, 2):
        long.numpy()[:4] = 1
        soft_metal.reset()
        program.prepare(count=count)
        since(made=ahead, committed=0)
        program.run(count=count)
        since(made=launches - ahead, committed=launches)
        assert long.numpy()[:4].tolist() == [2.0**launches] * count + [1] * (4 - count)


def test_older_replays_make_room_for_longer_ones(metal: pyturbo.Device) -> None:
    short, block = row_adder(metal), block_of(metal)
    long, _ = long_adder(metal, MOST)
    short.prepare([block], row=0, count=8)
    long.prepare(count=2)
    assert alive() == MOST
    soft_metal.reset()
    long.run(count=2)
    since(made=0, committed=MOST)
    short.run([block], row=0, count=8)
    since(made=1, committed=1)


def test_windows_over_the_same_memory() -> None:
    """Metal cannot order command buffers through buffers that overlap, before or after they are encoded."""
    soft_metal.set_options(max_buffer_length=4 * 16384)
    with pyturbo.Device("metal") as device:
        program, block, long = row_adder(device), block_of(device), device.empty(10 * 4096)
        program.prepare([block], row=0, count=8)
        assert alive() == 1
        for first in (0, 30_000):
            part = long.view(100, offset=4 * first)
            device.kernel("add")(part, part, part, 100)
        program.run([block], row=0, count=8)
        program.prepare([block], row=1, count=8)
        assert alive() == 0
        program.run([block], row=1, count=8)
        assert block.read()[:, 0].tolist() == [1, 1, 0, 0, 0, 0, 2]


def test_programs_with_host_loops_expect_nothing(metal: pyturbo.Device) -> None:
    """They begin without knowing which launches will run."""
    log = Log(metal)
    work, program = Work(log), pyturbo.Program(metal)
    record(program, log, work, 1)
    for passes in (0, 2, 0):
        work.miss(passes) if passes else work.hit()
        log.clear()
        program.prepare()
        program.run(ahead=True)
        assert alive() == 0
        assert log.read() == [1, 2, *[3] * (1 + passes), 4]


# Failures and threads -----------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["command_buffer", "device_lost"])
def test_a_replay_that_fails_says_so_itself(fails: str) -> None:
    with pyturbo.Device("metal") as device:
        program, block, cursor = row_adder(device), block_of(device), cursor_at(0)
        program.run([block], advance=1, ahead=True, row=cursor, count=8)
        soft_metal.inject(fails, text="GPU Hang")
        with pytest.raises(DeviceError, match="program of 2 launches: GPU Hang"):
            program.run([block], advance=1, ahead=True, row=cursor, count=8)
        assert cursor.position == 1
        for call in (program.run, program.prepare):
            with pytest.raises(DeviceError, match="GPU Hang"):
                call([block], row=cursor, count=8)
        assert soft_metal.counters()["command_buffers"] == 2
    assert alive() == 0


def test_several_threads(metal: pyturbo.Device) -> None:
    """Programs and blocks of their own, while memory of the same device comes and goes."""
    failures: list[BaseException] = []
    done = threading.Event()

    def count_rows(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            program, blocks = row_adder(metal), [block_of(metal) for _ in range(2)]
            want = np.zeros((2, ROWS + 1))
            cursor = cursor_at(0)
            for _ in range(150):
                which = int(rng.random() < 0.2)
                if cursor.position == ROWS or rng.random() < 0.1:
                    cursor.position = int(rng.integers(ROWS))
                row = cursor.position
                program.run([blocks[which]], advance=1, ahead=True, row=cursor, count=8)
                want[which, row] += 1
                want[which, ROWS] += want[which, row]
            for block, expected in zip(blocks, want):
                np.testing.assert_array_equal(block.read()[:, 0], expected)
        except BaseException as error:
            failures.append(error)

    def come_and_go() -> None:
        while not done.wait(0.002):
            metal.empty(64)

    threads = [threading.Thread(target=count_rows, args=(i,)) for i in range(3)]
    background = threading.Thread(target=come_and_go)
    for thread in (*threads, background):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    background.join()
    assert failures == []


# Conversations ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_is_only_committed(model: pyturbo.Model) -> None:
    with model.session(64) as session, model.session(64) as other:
        session.prefill([1, 2, 3])
        other.prefill([4, 5])
        session.step(4)
        soft_metal.reset()
        for token in range(5, 9):
            session.step(token)
            since(made=1, committed=1)  # which is that of the next step
        other.step(6)
        since(made=2, committed=1, dropped=1)
        session.step(9)
        since(made=2, committed=1, dropped=1)
    assert alive() == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1, "top_k": 20, "seed": 3}])
def test_a_reply_commits_what_was_expected(
    model: pyturbo.Model, oracle: pyturbo.Model, options: dict[str, float]
) -> None:
    want = oracle.generate([5, 9, 3], max_tokens=12, ignore_eos=True, **options).tokens
    tokens = []
    for chunk in model.stream([5, 9, 3], max_tokens=12, ignore_eos=True, **options):
        tokens.append(chunk.token)
        if 2 < len(tokens) < 12:  # before the last one nothing is left to begin
            since(made=1, committed=1)
        soft_metal.reset()
    assert tokens == want


@pytest.mark.slow
def test_forks_rewinds_and_turns(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    check_forks_rewinds_and_turns(model, oracle)


@pytest.mark.slow
def test_conversations_together_are_only_committed(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    sessions = [model.session(64) for _ in range(3)]
    for i, session in enumerate(sessions):
        session.prefill(list(range(1, 3 + 2 * i)))
    step_together(sessions, [7, 8, 9])
    soft_metal.reset()
    step_together(sessions, [10, 11, 12])
    since(made=1, committed=1)
    sessions[1].rewind(3)
    sessions[2].step(40)
    step_together(sessions, [13, 14, 15])
    step_together(sessions[::-1], [16, 17, 18])
    check(oracle, *sessions)
    for session in sessions:
        session.close()
