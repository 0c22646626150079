"""Programs: recorded once, replayed with other symbols and other memory."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyturbo
from pyturbo._program import Cursor
from pyturbo.errors import ArgumentError, DeviceError, StateError
from pyturbo.symbols import Linear, Place, symbol


def test_linear_arithmetic() -> None:
    a, b = symbol("a"), symbol("b")
    value = 3 * (a + 2) + b * 4 - a - 5
    assert value.at({"a": 7, "b": 11}) == 3 * 9 + 44 - 7 - 5
    assert str(value) == "2 * a + 4 * b + 1"
    assert value - 4 * b - 2 * a == Linear(1)
    assert str(Linear()) == "0"
    assert a * 0 == Linear(0)


def chain(
    device: pyturbo.Device, count: int | Linear, capacity: int
) -> tuple[pyturbo.Program, pyturbo.Buffer]:
    """state += x, then y = state * sigmoid(state): two launches, the second after the first."""
    x, y = device.empty(capacity), device.empty(capacity)
    x.write(np.arange(capacity))
    state = Place("state", 64 + 4 * symbol("row") * capacity, 4 * capacity)
    program = pyturbo.Program(device, symbols=("count", "row"), blocks=("state",))
    program.add(device.kernel("add"), state, x, state, count, label="first")
    program.add(device.kernel("sigmoid_gate"), state, state, y, count, label="second")
    return program, y


def test_replays_follow_symbols_and_blocks(device: pyturbo.Device) -> None:
    program, y = chain(device, symbol("count"), 40)
    for _ in range(2):
        block = device.empty(16 + 3 * 40)
        for count, row in ((40, 0), (7, 2), (3, 2)):
            program.run([block], count=count, row=row)
        rows = block.numpy()[16:].reshape(3, 40)
        ramp = np.arange(40, dtype=np.float32)
        want = np.stack([ramp, 0 * ramp, np.where(ramp < 3, 2 * ramp, np.where(ramp < 7, ramp, 0))])
        np.testing.assert_array_equal(rows, want)
        np.testing.assert_allclose(y.numpy()[:3], rows[2, :3] / (1 + np.exp(-rows[2, :3])), rtol=1e-6)


def test_replays_in_any_order(device: pyturbo.Device) -> None:
    """Launches that follow a symbol, a block, both or neither; some replays are prepared, rightly or not."""
    rows, width = 5, 8
    one, fixed = device.empty(width), device.empty(width)
    one.write(np.ones(width))
    add = device.kernel("add")
    row = Place("block", 4 * width * symbol("row"), 4 * width)
    last = Place("block", 4 * width * rows, 4 * width)
    program = pyturbo.Program(device, symbols=("row", "count"), blocks=("block",))
    program.add(add, fixed, one, fixed, symbol("count"))
    program.add(add, last, one, last, width)
    program.add(add, row, one, row, symbol("count"))
    program.add(add, row, one, row, width)
    blocks = [device.empty((rows + 1, width)) for _ in range(2)]
    want, want_fixed = np.zeros((2, rows + 1, width)), np.zeros(width)
    rng = np.random.default_rng(3)
    cursor = Cursor()
    for _ in range(80):
        block, at, count = rng.integers((0, 0, 1), (2, rows, width + 1))
        if rng.random() < 0.3:
            program.prepare([blocks[rng.integers(2)]], row=int(rng.integers(rows)), count=int(count))
        for _ in range(rng.integers(1, 4)):
            cursor.position = at
            options = {"wait": bool(rng.integers(2)), "ahead": bool(rng.integers(2))}
            program.run([blocks[block]], advance=1, row=cursor, count=int(count), **options)
            assert cursor.position == at + 1
            want[block, rows] += 1
            want[block, at] += 1
            want[block, at, :count] += 1
            want_fixed[:count] += 1
            at = min(at + 1, rows - 1)
    device.synchronize()
    np.testing.assert_array_equal(fixed.read(), want_fixed)
    for buffer, expected in zip(blocks, want):
        np.testing.assert_array_equal(buffer.read(), expected)


def test_marks_in_the_work_of_a_device(device: pyturbo.Device) -> None:
    one, total = device.empty(8), device.shared(8)
    one.write(np.ones(8, np.float32))
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), total, one, total, 8)
    seen, marks = total.numpy(), []
    for _ in range(10):
        program.run(wait=False)
        marks.append(device.mark())
    for i in (9, 0, 5, 8, 2):  # few devices keep all marks, and all wait for what a mark stands for
        program.run(wait=False)
        mark = device.mark()
        device.wait(marks[i])
        assert seen[0] >= i + 1
        device.wait(mark)
    assert seen[0] == 15
    for wrong in (-1, 1.5, "0"):
        with pytest.raises(ArgumentError, match="wait: mark: expected an integer from 0 on"):
            device.wait(wrong)


def test_launches_that_some_replays_leave_out(device: pyturbo.Device) -> None:
    add, one = device.kernel("add"), device.buffer(np.ones(8, np.float32))
    total = device.empty(8)
    total.clear()
    program = pyturbo.Program(device, symbols=("a", "b"), blocks=("first", "second"))
    for name, block in (("a", "first"), ("b", "second")):
        place = Place(block, 0, 32)
        program.add(add, place, one, place, 8, when=name)
        program.add(add, total, place, total, 8, when=name)
    program.add(add, total, one, total, 8)
    blocks = [device.empty(8) for _ in range(2)]
    want, want_total = [0.0, 0.0], 0.0
    for block in blocks:
        block.clear()
    for a, b, ahead in ((1, 1, False), (0, 2, True), (3, 0, False), (0, 0, True), (1, 1, True)):
        given = [blocks[i] if reads else None for i, reads in enumerate((a, b))]
        program.run(given, a=a, b=b, ahead=ahead)
        for i, reads in enumerate((a, b)):
            want[i] += reads > 0
            want_total += want[i] * (reads > 0)
        want_total += 1
    assert [float(block.read()[0]) for block in blocks] == want
    assert total.read().tolist() == [want_total] * 8
    with pytest.raises(ArgumentError, match="expected bytes 0 to 32, got memory of 0 bytes"):
        program.run([None, blocks[1]], a=1, b=1)
    with pytest.raises(ArgumentError, match=r"add: when: expected a symbol among \['a', 'b'\], got 'c'"):
        program.add(add, total, one, total, 8, when="c")


def test_launches_of_a_group_do_not_wait_for_each_other(device: pyturbo.Device) -> None:
    add, memory = device.kernel("add"), device.buffer(np.ones((4, 8), np.float32))
    program = pyturbo.Program(device, symbols=("row",))
    places = [Place(memory, row * 32, 32) for row in (symbol("row"), symbol("row") + 1)]
    for group in (1, 2, 0):
        for place in places:
            program.add(add, place, place, place, 8, group=group)
    assert [launch.waits for launch in program.listing()] == [False, False, True, False, True, True]
    program.run(row=1)
    assert memory.read()[:, 0].tolist() == [1, 8, 8, 1]


@pytest.mark.parametrize("groups", [(1,), (1, 2), (1, 2, 1), (1, 0, 1)])
def test_launches_of_a_group_wait_for_those_before_it(
    device: pyturbo.Device, groups: tuple[int, ...]
) -> None:
    """Each of them does: what one of them overwrites is not ordered before the others by that."""
    add, memory, seen, twice = device.kernel("add"), *(device.empty(16) for _ in range(3))
    memory.write(np.ones(16))
    program = pyturbo.Program(device, symbols=("s", "t"))
    places = [Place(memory, symbol(name) * 32, 32) for name in ("s", "t")]
    program.add(add, memory, memory, seen, 16)
    for group in groups:
        for place in places:
            program.add(add, place, place, place, 8, group=group)
    program.add(add, memory, memory, twice, 16)
    for replay in range(3):
        program.run(s=replay % 2, t=1 - replay % 2)
        before = 2.0 ** (len(groups) * replay)
        assert seen.read().tolist() == [2 * before] * 16
        assert twice.read().tolist() == [2 * before * 2 ** len(groups)] * 16


def test_cursors_that_advance_by_different_counts(device: pyturbo.Device) -> None:
    program, _ = chain(device, symbol("count"), 8)
    block = device.empty(16 + 3 * 8)
    row, count = Cursor(), Cursor()
    count.position = 8
    program.run([block], advance={"row": 3}, count=count, row=row)
    assert (row.position, count.position) == (3, 8)
    with pytest.raises(ArgumentError, match="run: advance: expected an integer from 0 on, got 'x'"):
        program.run([block], advance={"row": "x"}, count=8, row=row)  # type: ignore[dict-item]
    for name in ("rwo", "count"):
        expected = rf"run: advance: expected cursors among \['row'\], got '{name}'"
        with pytest.raises(ArgumentError, match=expected):
            program.run([block], advance={name: 3}, count=8, row=row)
    assert row.position == 3


def test_cursors(device: pyturbo.Device) -> None:
    program, _ = chain(device, symbol("count"), 8)
    block = device.empty(16 + 3 * 8)
    cursor = Cursor()
    cursor.position = 2
    program.run([block], advance=3, count=cursor, row=cursor)  # one position for both
    assert cursor.position == 5
    for method in (program.profile, program.timeline):
        cursor.position = 0
        method([block], advance=1, count=8, row=cursor)
        assert cursor.position == 1
    program.prepare([block], count=8, row=cursor)
    assert cursor.position == 1
    for position, message in (
        (-1, "run: row: expected an integer from 0 on, got -1"),
        (2**63 - 2, "run: row: expected a position below 2^63, got 9223372036854775808"),
        (3, "first: add: a: expected bytes 160 to 192, got memory of 160"),
    ):
        cursor.position = position
        with pytest.raises(ArgumentError, match=re.escape(message)):
            program.run([block], advance=2, count=8, row=cursor)
        assert cursor.position == position
    with pytest.raises(ArgumentError, match="prepare: expected symbols"):
        program.prepare([block], count=8)
    with pytest.raises(ArgumentError, match="prepare: expected symbols"):
        program.prepare(count=8, row=0)


def test_dependencies_come_from_access(device: pyturbo.Device) -> None:
    a, b, c, d = (device.empty(8) for _ in range(4))
    add = device.kernel("add")
    program = pyturbo.Program(device)
    program.add(add, a, b, c, 8)  # writes c
    program.add(add, a, b, d, 8)  # reads what the first reads: no wait
    program.add(add, c, d, a, 8)  # reads c, d and writes a
    program.add(add, b, b, b.view(4), 4)  # b was read since the last wait? only before it
    program.add(add, b.view(4, offset=16), c.view(4), c.view(4, offset=16), 4)  # another half of b, reads c
    assert [launch.waits for launch in program.listing()] == [False, False, True, False, True]


def test_listing_and_profile(device: pyturbo.Device) -> None:
    program, _ = chain(device, 5, 8)
    assert len(program) == 2
    first, second = program.listing()
    assert (first.label, first.kernel, first.waits) == ("first", "add", False)
    assert (second.label, second.kernel, second.waits) == ("second", "sigmoid_gate", True)
    assert "b=float32[" in first.arguments
    assert str(program).splitlines()[1].startswith("| second")
    rows = program.profile([device.empty(64)], count=0, row=0)
    assert [row[:2] for row in rows] == [("first", "add"), ("second", "sigmoid_gate")]
    assert all(0 < seconds < 1 for _, _, seconds in rows)


def test_a_program_keeps_its_memory_alive(device: pyturbo.Device) -> None:
    program, y = chain(device, 8, 8)
    block = device.empty(64)
    gc.collect()
    program.run([block], count=0, row=0)
    assert block.numpy()[16 + 7] == 7
    assert y.numpy()[7] > 6.9


def test_other_symbols_are_expected_of_the_next_replay(device: pyturbo.Device) -> None:
    program, _ = chain(device, symbol("count"), 8)
    block = device.empty(64)
    for count in (8, 3, 8):
        program.run([block], ahead={"count": 11 - count}, count=count, row=0)
    assert block.read()[16:].tolist() == [0, 3, 6, *(2.0 * i for i in range(3, 8)), *[0] * 40]
    for wrong, message in (
        ({"rows": 1}, r"ahead: expected symbols among \['count', 'row'\], got 'rows'"),
        ({"row": -1}, "ahead: row: expected an integer from 0 on, got -1"),
        (1, "ahead: expected True or False, got 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            program.run([block], ahead=wrong, count=8, row=0)


@pytest.mark.parametrize("name", ["blocks", "wait", "advance", "ahead"])
def test_names_that_run_has_itself(device: pyturbo.Device, name: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"symbols: expected other names than those of run.s options, got '{name}'"
    ):
        pyturbo.Program(device, symbols=("n", name))


def test_wrong_recordings(device: pyturbo.Device) -> None:
    program = pyturbo.Program(device, symbols=("n",), blocks=("state",))
    add, x = device.kernel("add"), device.empty(8)
    for args, message in (
        ((x, x, x), "add: count: expected uint32, got None"),
        ((x, x, x, 8, 8), "add: expected 4 arguments, got 5"),
        ((x, x, x, 9), "add: a: expected at least 9 elements of 4 bytes, got 8"),
        ((x, x, np.zeros(8, np.float32), 8), "add: y: expected a Buffer or a Place, got ndarray"),
        ((x, x, device.empty(8, "int32"), 8), "add: y: expected float32 elements, got int32"),
        ((x, x, x, symbol("m")), r"add: count: expected symbols among \['n'\], got 'm'"),
        ((x, x, Place("heap", 0, 32), 8), r"add: y: expected a block among \['state'\], got 'heap'"),
        ((x, x, x, -1), "add: count: expected uint32, got -1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            program.add(add, *args)
    for group, message in ((2**32, "below 2\\^32, got 4294967296"), (-1, "from 0 on, got -1")):
        with pytest.raises(ArgumentError, match=f"add: group: expected an integer {message}"):
            program.add(add, x, x, x, 8, group=group)
    assert len(program) == 0


def test_wrong_replays(device: pyturbo.Device) -> None:
    program, _ = chain(device, symbol("count"), 8)
    block = device.empty(64)
    for blocks, symbols, message in (
        ([], {"count": 1, "row": 0}, "run: expected symbols .* and blocks .* got .* and 0 blocks"),
        ([block], {"count": 1}, r"got \['count'\] and 1 blocks"),
        ([block], {"count": -1, "row": 0}, "run: count: expected an integer from 0 on, got -1"),
        (
            [block],
            {"count": 9, "row": 0},
            "add: a: expected at least 9 elements",
        ),
        ([block], {"count": 2**40, "row": 0}, "expected a value of its type, got 1099511627776"),
        (
            [block],
            {"count": 1, "row": 6},
            "first: add: a: expected bytes 256 to 288, got memory of 256",
        ),
        ([np.zeros(64, np.float32)], {"count": 1, "row": 0}, "state: expected a writable Buffer"),
    ):
        with pytest.raises(ArgumentError, match=message):
            program.run(blocks, **symbols)  # type: ignore[arg-type]
    for method in (program.run, program.profile, program.timeline):
        with pytest.raises(ArgumentError, match=f"^{method.__name__}: advance: expected an integer"):
            method([block], advance="x", count=8, row=0)  # type: ignore[operator]
        with pytest.raises(ArgumentError, match=f"^{method.__name__}: expected symbols"):
            method([block])  # type: ignore[operator]
    program.run([block], count=8, row=0)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ({"offset": 0, "nbytes": 36}, "expected bytes 0 to 36, got memory of 32 bytes"),
        ({"offset": 28, "nbytes": 8}, "expected bytes 28 to 36, got memory of 32 bytes"),
        ({"offset": -4, "nbytes": 8}, "expected bytes -4 to 4, got memory of 32 bytes"),
        ({"offset": 1 << 40, "nbytes": 4}, ".* got memory of 32 bytes"),
        ({"offset": 2**63 - 4, "nbytes": 2**63 - 4}, ".* got memory of 32 bytes"),
        ({"offset": 8, "nbytes": 2**63}, "nbytes: expected an integer below 2"),
        ({"offset": 2**63, "nbytes": 8}, "offset: expected an integer below 2"),
        ({"offset": "start", "nbytes": 8}, "offset: expected an integer"),
        ({"offset": 0, "nbytes": -8}, "nbytes: expected an integer from 0 on, got -8"),
        ({"offset": 0, "nbytes": 10**5000}, "nbytes: expected an integer below 2"),
        ({"offset": 0, "nbytes": 0, "end": 36}, "expected bytes 0 to 36, got memory of 32 bytes"),
        ({"offset": 8, "nbytes": 0, "end": 4}, "expected bytes 8 to 4, got memory of 32 bytes"),
        ({"offset": 0, "nbytes": 0, "end": -4}, "end: expected an integer from 0 on, got -4"),
        ({"offset": Linear(0, (("n", 2**63),)), "nbytes": 8}, "offset: expected an integer below 2"),
    ],
)
def test_places_outside_of_their_buffer(device: pyturbo.Device, place: dict[str, Any], found: str) -> None:
    """A buffer that shows a part of larger memory gives no way to the rest of it."""
    whole = device.empty(24)
    part = whole.view(8, offset=32)
    program = pyturbo.Program(device, symbols=("n",))
    with pytest.raises(ArgumentError, match=f"add: y: {found}"):
        program.add(device.kernel("add"), part, part, Place(part, **place), 2)
    assert len(program) == 0


def test_places_inside_of_their_buffer(device: pyturbo.Device) -> None:
    whole = device.empty(24)
    whole.write(np.arange(24))
    part = whole.view(8, offset=32)
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), Place(part, 0, 8), Place(part, 24, 0, end=32), Place(part, 8, 8), 2)
    program.run()
    assert whole.numpy()[8:16].tolist() == [8, 9, 8 + 14, 9 + 15, 12, 13, 14, 15]


def test_places_that_symbols_move_outside(device: pyturbo.Device) -> None:
    whole = device.empty(24)
    part = whole.view(8, offset=32)
    program = pyturbo.Program(device, symbols=("n",), blocks=("state",))
    program.add(device.kernel("add"), Place(part, symbol("n") * -4 + 24, 8), part, part, 2)
    program.add(device.kernel("add"), part, part, Place("state", 2**60 * symbol("n"), 8), 2)
    for n, found in (
        (7, "add: a: expected bytes -4 to 4, got memory of 32"),
        (2**62, "add: a: expected an offset below 2"),
        (1, "add: y: expected bytes 1152921504606846976 to"),
        (2**63, "run: n: expected an integer below 2"),
    ):
        with pytest.raises(ArgumentError, match=found):
            program.run([device.empty(2)], n=n)
    with pytest.raises(ArgumentError, match="add: y: expected bytes 0 to 8, got memory of 4 bytes"):
        program.run([device.empty(1)], n=0)
    program.run([device.empty(2)], n=0)


def test_refused_launches_leave_no_trace(device: pyturbo.Device) -> None:
    program = pyturbo.Program(device)
    add, x, short = device.kernel("add"), device.empty(8), device.empty(3)
    for args in ((short, x, x, 5), (x, x, Place(x, 32, 4), 1)):
        with pytest.raises(ArgumentError):
            program.add(add, *args, label="refused")
    program.add(add, x, x, x, 8, label="kept")
    assert [launch[:3] for launch in program.listing()] == [
        ("kept", "add", "a=float32[8], b=float32[8], y=float32[8], count=8")
    ]


def test_values_that_symbols_cannot_give(device: pyturbo.Device) -> None:
    program = pyturbo.Program(device, symbols=("n",))
    clamped, x = device.kernel("swiglu_clamped"), device.empty(4)
    with pytest.raises(
        ArgumentError, match="limit: expected a value of its type, got an integer that follows"
    ):
        program.add(clamped, x, x, x, 4, 1.0, symbol("n"))
    for wrong in (5, ("n", 5)):
        with pytest.raises(ArgumentError, match="symbols: expected"):
            pyturbo.Program(device, symbols=wrong)  # type: ignore[arg-type]


def test_blocks_are_those_at_the_call(device: pyturbo.Device) -> None:
    """A symbol whose conversion empties the list of blocks changes nothing."""
    program, _ = chain(device, 8, 8)
    block = device.empty(64)
    blocks = [block]

    class Clearing:
        def __index__(self) -> int:
            blocks.clear()
            return 0

    program.run(blocks, count=Clearing(), row=0)  # type: ignore[arg-type]
    assert block.numpy()[16 + 7] == 7
    with pytest.raises(ArgumentError, match="run: blocks: expected a sequence, got int"):
        program.run(5, count=0, row=0)  # type: ignore[arg-type]


def test_launches_are_added_while_others_replay(device: pyturbo.Device) -> None:
    program = pyturbo.Program(device)
    add, x = device.kernel("add"), device.empty(4)
    failures: list[BaseException] = []
    done = threading.Event()

    def replay(run: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                run()
        except BaseException as error:
            failures.append(error)

    runs = (program.run, program.profile, program.listing)
    threads = [threading.Thread(target=replay, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for i in range(200):
        program.add(add, x, x, x, 4, label=str(i))
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [launch.label for launch in program.listing()] == [str(i) for i in range(200)]


def test_a_failing_launch_leaves_the_program_usable() -> None:
    device = pyturbo.Device("cpu:reference", check=True)
    out = device.empty(32)
    program = pyturbo.Program(device)
    program.add(device.kernel("threadgroup_race"), out)
    for _ in range(2):
        with pytest.raises(DeviceError, match="threadgroup_race"):
            program.run()


def test_closed_device() -> None:
    device = pyturbo.Device("cpu")
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), *(device.empty(4) for _ in range(3)), 4)
    device.close()
    with pytest.raises(StateError, match="closed"):
        program.run()
