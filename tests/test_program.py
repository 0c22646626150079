"""Programs: recorded once, replayed with other symbols and other memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import pyturbo
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
    x.numpy()[:] = np.arange(capacity)
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
    program.run([block], count=8, row=0)


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
