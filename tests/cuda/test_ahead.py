"""Replays that are prepared while the one before them runs: fewer calls before a launch, no other results.

Soft CUDA cannot show how much time this saves. It counts the calls, and runs work on a thread of its own, so
that a node that is set too early would show.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cuda_in_tests
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
from pyturbo.engine.together import step_together
from pyturbo.errors import ArgumentError, DeviceError, StateError
from pyturbo.symbols import Place
from text.tiny_chat import write_model

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from pyturbo import _soft_cuda_tests as soft_cuda


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("ahead") / "model", layers=2)


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, "cuda") as model:
        yield model


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, "cpu") as model:
        yield model


def updates(expected: int) -> None:
    """Check how many nodes were set since the last call."""
    assert soft_cuda.counters()["node_updates"] == expected
    soft_cuda.reset()


def test_a_prepared_replay_sets_nothing(cuda: pyturbo.Device) -> None:
    program, block = row_adder(cuda), block_of(cuda)
    program.prepare([block], row=0, count=8)
    assert soft_cuda.counters()["graph_launches"] == 0
    soft_cuda.reset()
    program.run([block], row=0, count=8)
    updates(0)
    program.prepare([block], row=1, count=3)
    updates(2)
    program.prepare([block], row=1, count=3)
    program.run([block], row=1, count=3)
    updates(0)
    rows = block.read()
    np.testing.assert_array_equal(rows[0], np.ones(WIDTH))
    np.testing.assert_array_equal(rows[1], [1] * 3 + [0] * 5)
    np.testing.assert_array_equal(rows[ROWS], [2] * 3 + [1] * 5)


def test_the_next_row_is_prepared_while_this_one_runs(cuda: pyturbo.Device) -> None:
    program, block, cursor = row_adder(cuda), block_of(cuda), cursor_at(0)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    updates(2)  # which are those of the next replay
    for position in range(1, 4):
        assert cursor.position == position
        soft_cuda.inject("slow", milliseconds=20)
        program.run([block], advance=1, ahead=True, row=cursor, count=8)
        updates(2)
    program.run([block], wait=False, advance=1, ahead={"count": 3}, row=cursor, count=8)
    updates(2)
    program.run([block], row=cursor, count=3)
    updates(0)
    np.testing.assert_array_equal(block.read()[:, 0], [1, 1, 1, 1, 1, 1, 6])


def test_replays_under_way_are_not_affected(cuda: pyturbo.Device) -> None:
    program, block = row_adder(cuda), block_of(cuda)
    program.run([block], row=0, count=8)
    soft_cuda.inject("slow", milliseconds=100)
    program.run([block], wait=False, row=1, count=8)
    program.prepare([block], row=2, count=8)
    program.prepare([block], row=3, count=8)
    cuda.synchronize()
    np.testing.assert_array_equal(block.read()[:, 0], [1, 1, 0, 0, 0, 0, 2])


def test_the_driver_is_asked_once_about_a_mark(cuda: pyturbo.Device) -> None:
    program, block = row_adder(cuda), block_of(cuda)
    soft_cuda.inject("slow", milliseconds=20)
    program.run([block], wait=False, row=0, count=8)
    mark = cuda.mark()
    soft_cuda.reset()
    cuda.wait(mark)
    cuda.wait(mark)
    cuda.synchronize()
    assert soft_cuda.counters()["waits"] == 1


def test_a_wrong_guess_changes_nothing(cuda: pyturbo.Device) -> None:
    check_wrong_guesses(cuda)


def test_other_memory_at_the_same_time_changes_nothing(cuda: pyturbo.Device) -> None:
    program, block = row_adder(cuda), block_of(cuda)
    program.prepare([block], row=0, count=8)
    others = [cuda.empty(1 << i) for i in range(8)]
    soft_cuda.reset()
    program.run([block], row=0, count=8)
    updates(0)
    assert block.read()[0, 0] == 1
    del others


def test_memory_of_the_host_is_copied_after_memory_of_the_gpu(cuda: pyturbo.Device) -> None:
    """Such a block cannot be part of a graph, prepared or not."""
    program, block = row_adder(cuda), block_of(cuda)
    host = pyturbo.Device("cpu", threads=1).empty((ROWS + 1, WIDTH))
    for each in (block, host, block, host):
        program.prepare([each], row=2, count=8)
        program.run([each], row=2, count=8)
    for each in (block, host):
        np.testing.assert_array_equal(each.read()[:, 0], [0, 0, 2, 0, 0, 0, 3])


def test_launches_that_are_added_count(cuda: pyturbo.Device) -> None:
    program, block, cursor = row_adder(cuda), block_of(cuda), cursor_at(0)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    total = Place("block", 4 * WIDTH * ROWS, 4 * WIDTH)
    program.add(cuda.kernel("add"), total, total, total, WIDTH)
    program.run([block], row=cursor, count=8)
    assert block.read()[ROWS, 0] == 2 * (1 + 1)


def test_a_row_behind_the_last_is_refused_when_it_is_asked_for(cuda: pyturbo.Device) -> None:
    program, cursor = row_adder(cuda), cursor_at(ROWS)
    block = block_of(cuda)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    assert cursor.position == ROWS + 1
    for _ in range(2):
        with pytest.raises(ArgumentError, match="add: a: expected bytes 224 to 256, got memory of 224 bytes"):
            program.run([block], advance=1, ahead=True, row=cursor, count=8)
        with pytest.raises(ArgumentError, match="add: a: expected bytes 224 to 256, got memory of 224 bytes"):
            program.prepare([block], row=cursor, count=8)
    assert cursor.position == ROWS + 1
    program.run([block], row=0, count=8)
    np.testing.assert_array_equal(block.read()[:, 0], [1, 0, 0, 0, 0, 0, 1 + 2 * 1])


def test_a_replay_that_fails_says_so_itself(cuda: pyturbo.Device) -> None:
    program, block, cursor = row_adder(cuda), block_of(cuda), cursor_at(0)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    soft_cuda.inject("launch")
    with pytest.raises(DeviceError, match="program of 2 launches"):
        program.run([block], advance=1, ahead=True, row=cursor, count=8)
    assert cursor.position == 1


def test_a_refused_launch_leaves_the_next_one_usable(cuda: pyturbo.Device) -> None:
    program, block, cursor = row_adder(cuda), block_of(cuda), cursor_at(0)
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    soft_cuda.inject("refused")
    with pytest.raises(DeviceError):
        program.run([block], advance=1, ahead=True, row=cursor, count=8)
    assert cursor.position == 1
    program.run([block], advance=1, ahead=True, row=cursor, count=8)
    np.testing.assert_array_equal(block.read()[:, 0], [1, 1, 0, 0, 0, 0, 2])


# Conversations ------------------------------------------------------------------------------------


def is_ready(model: pyturbo.Model, session: pyturbo.Session) -> bool:
    """Whether the next step of a session finds all nodes set."""
    soft_cuda.reset()
    with model.runner.program(session.context, 1, "last") as (_, graph):
        symbols = graph.onward.symbols()
        graph.program.prepare([session._state.block], position=session.position, **symbols)
    return soft_cuda.counters()["node_updates"] == 0


def test_a_step_finds_its_nodes_set(model: pyturbo.Model) -> None:
    with model.session(64) as session, model.session(64) as other:
        session.prefill([1, 2, 3])
        other.prefill([4, 5])
        session.step(4)
        for token in range(5, 9):
            assert is_ready(model, session)
            session.step(token)
        assert not is_ready(model, other)  # which has set the nodes for itself now
        assert not is_ready(model, session)


def test_forks_rewinds_and_turns(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    check_forks_rewinds_and_turns(model, oracle)


def test_conversations_together_find_their_nodes_set(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    sessions = [model.session(64) for _ in range(3)]
    for i, session in enumerate(sessions):
        session.prefill(list(range(1, 3 + 2 * i)))
    step_together(sessions, [7, 8, 9])
    step_together(sessions, [10, 11, 12])
    with model.runner.batch((64,) * 3) as graph:
        positions = dict(zip(graph.program.symbols, (session.position for session in sessions)))
        soft_cuda.reset()
        graph.program.prepare([session._state.block for session in sessions], **positions)
        updates(0)
    check(oracle, *sessions)
    sessions[1].rewind(3)
    sessions[2].step(40)
    step_together(sessions, [13, 14, 15])
    step_together(sessions[::-1], [16, 17, 18])
    check(oracle, *sessions)
    for session in sessions:
        session.close()


def test_the_gpu_has_work_while_the_host_has_a_token(model: pyturbo.Model) -> None:
    for options in ({"temperature": 0}, {"temperature": 1, "top_k": 20, "seed": 3}):
        reply = model.stream([1, 2, 3], 12, ignore_eos=True, **options)
        next(reply)
        soft_cuda.reset()
        for tokens in range(1, 6):
            next(reply)
            assert soft_cuda.counters()["graph_launches"] == tokens + 1


def test_a_step_that_fails_ends_the_session(cuda: pyturbo.Device, folder: Path) -> None:
    with pyturbo.load(folder, cuda) as model, model.session(64) as session:
        reply = model.stream([1, 2, 3], 12, session=session, temperature=0, ignore_eos=True)
        for _ in range(3):
            next(reply)
        soft_cuda.inject("launch")
        with pytest.raises(DeviceError):
            for _ in reply:
                pass
        with pytest.raises(StateError, match="cannot go on"):
            session.step(3)


def test_the_last_token_of_a_context(model: pyturbo.Model, oracle: pyturbo.Model) -> None:
    with model.session(8) as session:
        session.prefill([1, 2, 3, 4, 5, 6])
        session.step(7)
        session.step(8)
        check(oracle, session)
        with pytest.raises(ArgumentError, match="expected at most 8 tokens"):
            session.step(9)
        session.rewind(5)
        session.step(30)
        check(oracle, session)
