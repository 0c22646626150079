"""Memory of the CUDA device through soft CUDA: copies, mapped files, pinned memory, what is freed."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import cuda_in_tests
import pyturbo
from pyturbo import ops
from pyturbo.errors import AllocationError, ArgumentError, StateError
from pyturbo.symbols import symbol

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from cuda_calls import add, full, made_since
from pyturbo import _soft_cuda_tests as soft_cuda


def test_new_memory_is_zero_and_is_not_the_hosts(cuda: pyturbo.Device) -> None:
    buffer = cuda.empty((3, 5))
    assert not buffer.on_host
    assert buffer.read().tolist() == [[0] * 5] * 3


@pytest.mark.parametrize("n", [1, 1000, 17_000, 300_000])
def test_copies_of_every_length(cuda: pyturbo.Device, n: int) -> None:
    values = np.arange(n, dtype=np.float32)
    buffer = cuda.empty(n)
    for shift in range(4):  # more than the pinned memory of writes holds
        buffer.write(values + shift)
        np.testing.assert_array_equal(buffer.read(), values + shift)
    buffer.clear()
    assert not buffer.read().any()


def test_writes_do_not_wait_and_have_read_their_values(cuda: pyturbo.Device) -> None:
    a, y = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, y, 64)
    soft_cuda.inject("slow", milliseconds=1000)
    program.run(wait=False)
    values = np.full(64, 5, np.float32)
    begin = time.perf_counter()
    a.write(values)
    assert time.perf_counter() - begin < 0.9
    values[:] = 7
    assert y.read()[0] == 2
    assert a.read()[0] == 5


def numbers(folder: Path, n: int = 600_000) -> NDArray[np.float32]:
    values = np.arange(n, dtype=np.float32)
    values.tofile(folder / "numbers")
    return values


def test_a_mapped_file_is_copied_once(before: Counter[str], cuda: pyturbo.Device, tmp_path: Path) -> None:
    values = numbers(tmp_path)
    mapped, y = cuda.map(tmp_path / "numbers", dtype="float32", offset=64), cuda.empty(100)
    cuda.kernel("add")(mapped, mapped, cuda.empty(mapped.shape), len(values) - 16)
    soft_cuda.reset()
    for first in (0, 5000, 500_000):
        part = mapped.view(100, offset=4 * first)
        cuda.kernel("add")(part, part, y, 100)
        np.testing.assert_array_equal(y.read(), 2 * values[16 + first :][:100])
    assert soft_cuda.counters()["registered"] == soft_cuda.counters()["copies_in"] == 0
    assert made_since(before)["registered memory"] == 0
    copies = made_since(before)["memory"]
    del mapped, part
    assert made_since(before)["memory"] == copies - 1


def test_only_what_is_used_of_a_file_is_copied(cuda: pyturbo.Device, tmp_path: Path) -> None:
    values = numbers(tmp_path)
    mapped, y = cuda.map(tmp_path / "numbers", dtype="float32"), cuda.empty(100)
    program, kernel = pyturbo.Program(cuda), cuda.kernel("add")
    near, far = mapped.view(100, offset=1296), mapped.view(100, offset=2_000_000)
    program.add(kernel, mapped.view(100), near, y, 100)
    program.add(kernel, y, far, y, 100)
    memory = cuda.memory
    assert memory is not None
    soft_cuda.reset()
    program.run()
    np.testing.assert_array_equal(y.read(), values[:100] + values[324:424] + values[500_000:500_100])
    assert soft_cuda.counters()["copies_in"] == 2  # neighbours share one
    after = cuda.memory
    assert after is not None
    assert memory.free - 512 <= after.free <= memory.free  # what is wanted counted as taken
    kernel(mapped.view(1000), mapped.view(1000, offset=400), cuda.empty(1000), 1000)  # both overlap a copy
    part = mapped.view(100, offset=4 * 900)
    kernel(part, part, y, 100)
    np.testing.assert_array_equal(y.read(), 2 * values[900:1000])
    program.run()  # with the addresses that its graph has
    np.testing.assert_array_equal(y.read(), values[:100] + values[324:424] + values[500_000:500_100])


def test_files_without_room_are_still_wanted(cuda: pyturbo.Device, tmp_path: Path) -> None:
    values = numbers(tmp_path)
    mapped, y = cuda.map(tmp_path / "numbers", dtype="float32"), cuda.empty(100)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), mapped.view(100), mapped.view(100), y, 100)
    soft_cuda.inject("allocation")
    with pytest.raises(
        AllocationError, match="cannot allocate a buffer of 400 bytes in the memory of the GPU"
    ):
        program.run()
    program.run()
    np.testing.assert_array_equal(y.read(), 2 * values[:100])
    assert soft_cuda.counters()["graph_launches"] == 1


def test_files_are_copied_side_by_side(cuda: pyturbo.Device, tmp_path: Path) -> None:
    program, kernel, y = pyturbo.Program(cuda), cuda.kernel("add"), cuda.empty(300_000)
    for name in "abcd":
        np.full(300_000, ord(name), np.float32).tofile(tmp_path / name)
        mapped = cuda.map(tmp_path / name, dtype="float32")
        program.add(kernel, y, mapped, y, 300_000)
    soft_cuda.inject("slow_copy", times=4, milliseconds=1000)
    begin = time.perf_counter()
    program.run()
    assert time.perf_counter() - begin < 3.5
    assert y.read()[299_999] == sum(map(ord, "abcd"))
    assert soft_cuda.counters()["registered"] == 4


def test_a_file_of_one_piece_is_copied_whole(cuda: pyturbo.Device, tmp_path: Path) -> None:
    n = 15 << 20  # 60 MiB: wherever it lies, most likely across a multiple of 64 MiB
    with (tmp_path / "numbers").open("wb") as file:
        file.truncate(4 * n)
    mapped = cuda.map(tmp_path / "numbers", dtype="float32")
    soft_cuda.reset()
    cuda.kernel("add")(mapped, mapped, cuda.empty(n), 100)
    assert soft_cuda.counters()["registered"] == soft_cuda.counters()["copies_in"] == 1


def test_progress_of_preparations(cuda: pyturbo.Device, tmp_path: Path) -> None:
    values = numbers(tmp_path)
    mapped, y = cuda.map(tmp_path / "numbers", dtype="float32"), cuda.empty(len(values))
    program, calls = pyturbo.Program(cuda, symbols=("count",)), []
    for name in ("add", "geglu"):
        program.add(cuda.kernel(name), mapped, mapped, y, symbol("count"))
    assert cuda.progress is None
    cuda.progress = lambda *call: calls.append(call)
    program.prepare()
    assert calls == [("kernels", 1, 2), ("kernels", 2, 2), ("weights", 2_400_000, 2_400_000)]
    program.run(count=100)
    assert len(calls) == 3
    cuda.progress = None
    ops.rms_norm(np.ones((1, 8), np.float32), np.ones(8, np.float32), 1e-6, device=cuda)
    assert len(calls) == 3


def test_progress_cannot_end_the_work(cuda: pyturbo.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: raised.append(problem.exc_type))
    cuda.progress = lambda what, done, total: 1 // 0
    assert add(cuda)[3] == 4
    assert raised == [ZeroDivisionError]
    with pytest.raises(ArgumentError, match="progress: expected"):
        cuda.progress = 3  # type: ignore[assignment]


def test_files_are_copied_where_they_cannot_be_registered(cuda: pyturbo.Device, tmp_path: Path) -> None:
    soft_cuda.set_options(read_only_register=False)
    values = np.arange(600_000, dtype=np.float32)
    values.tofile(tmp_path / "numbers")
    mapped, y = cuda.map(tmp_path / "numbers", dtype="float32"), cuda.empty(100)
    cuda.kernel("add")(mapped.view(100), mapped.view(100, offset=2_000_000), y, 100)
    np.testing.assert_array_equal(y.read(), values[:100] + values[500_000:500_100])
    assert soft_cuda.counters()["registered"] == 0


def test_other_memory_is_copied_in_and_out(before: Counter[str], cuda: pyturbo.Device) -> None:
    memory = np.zeros(1000, np.float32)  # two arguments that overlap share one copy
    memory[:200] = np.arange(200)
    cuda.kernel("add")(memory[:60], memory[20:80], memory[100:160], 60)
    want = np.arange(200, dtype=np.float32)
    np.testing.assert_array_equal(memory[100:160], want[:60] + want[20:80])
    np.testing.assert_array_equal(memory[:100], want[:100])
    assert soft_cuda.counters()["copies_out"] == 1


def test_programs_may_use_memory_of_the_host(cuda: pyturbo.Device) -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    between = cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), cuda.buffer(x), cuda.buffer(x), between, 64)
    program.add(cuda.kernel("add"), between, cuda.buffer(x), cuda.buffer(y), 64)
    program.run()
    x[:] = 2
    program.run()
    assert y.tolist() == [6] * 64


def test_shared_memory_is_used_in_place(cuda: pyturbo.Device) -> None:
    x, y = cuda.shared(64), cuda.shared(64)
    x.numpy()[:] = 3
    soft_cuda.reset()
    cuda.kernel("add")(x, x, y, 64)
    assert y.numpy()[63] == 6
    assert soft_cuda.counters()["copies_in"] == soft_cuda.counters()["copies_out"] == 0


def test_shared_memory_is_read_and_written_in_order(cuda: pyturbo.Device) -> None:
    """Kernels see what was there when they were launched, and `read` what they have written."""
    a, x, y = full(cuda, 1), cuda.shared(64), cuda.shared(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, x, y, 64)

    def run() -> None:
        soft_cuda.inject("slow", milliseconds=50)
        program.run(wait=False)

    x.write(np.full(64, 3, np.float32))
    run()
    assert y.read()[5] == 4
    run()
    x.write(np.full(64, 5, np.float32))
    assert y.numpy()[5] == 4
    run()
    x.view(32).clear()
    assert y.numpy()[5] == 6
    program.run(wait=False)
    run()
    b = cuda.empty(64)
    b.write(y)
    assert b.read()[[5, 40]].tolist() == [1, 6]
    x.write(np.full(64, 7, np.float32))
    run()
    b.write(y.numpy())
    assert b.read()[5] == 8
    x.write(np.full(64, 9, np.float32))
    run()
    half = cuda.empty(64, "float16")
    half.write(y)
    assert half.read()[5] == 10


def test_memory_that_overlaps_is_copied_as_a_whole(cuda: pyturbo.Device) -> None:
    values = np.arange(1000, dtype=np.float32)
    for to, begin in ((0, 3), (3, 0), (0, 999), (999, 0), (5, 5)):
        buffer, count = cuda.empty(1000), 1000 - max(to, begin)
        buffer.write(values)
        buffer.view(count, offset=4 * to).write(buffer.view(count, offset=4 * begin))
        want = values.copy()
        want[to : to + count] = values[begin : begin + count]
        np.testing.assert_array_equal(buffer.read(), want)


def test_pinned_memory_is_used_again_once_the_gpu_has_read_it(cuda: pyturbo.Device) -> None:
    buffer, values = cuda.empty(15_000), np.ones(15_000, np.float32)
    cuda.synchronize()
    soft_cuda.reset()
    for _ in range(40):
        buffer.write(values)
        cuda.synchronize()
    assert soft_cuda.counters()["waits"] == 40


def test_an_array_that_is_a_constant_is_copied_once(before: Counter[str], cuda: pyturbo.Device) -> None:
    values, y = np.arange(100, dtype=np.float32), cuda.empty(64)
    programs = [pyturbo.Program(cuda) for _ in range(2)]
    memory = made_since(before)["memory"]
    for program in programs:
        program.add(cuda.kernel("add"), cuda.constant(values[:64]), cuda.constant(values[36:]), y, 64)
    assert made_since(before)["memory"] == memory + 2
    programs[1].run()
    np.testing.assert_array_equal(y.read(), values[:64] + values[36:])
    programs.clear()
    del program
    assert made_since(before)["memory"] == memory
    assert cuda.constant(values[:64]).read()[5] == 5
    kept = cuda.constant(values)
    del values  # another array may get its memory
    other = np.full(100, 3, np.float32)
    assert cuda.constant(other).read()[5] == 3
    assert kept.read()[5] == 5


def test_too_little_memory(cuda: pyturbo.Device) -> None:
    soft_cuda.set_options(memory=(64 << 20) + sum(soft_cuda.live_objects().values()) * (1 << 20))
    message = r"buffer of 4000000000 bytes in the memory of the GPU: too little memory: \d+ of \d+ bytes"
    with pytest.raises(AllocationError, match=message):
        cuda.empty(1_000_000_000)
    assert cuda.empty(100).read().sum() == 0
    soft_cuda.inject("allocation")
    with pytest.raises(
        AllocationError, match="cannot allocate a buffer of 400 bytes in the memory of the GPU"
    ):
        cuda.empty(100)
    assert add(cuda)[3] == 4


def test_nothing_is_left_after_close(before: Counter[str]) -> None:
    device = pyturbo.Device("cuda")
    buffer = device.empty(100)
    add(device)
    device.close()
    assert made_since(before)["module"] == 0
    with pytest.raises(StateError, match="the device is closed"):
        buffer.read()
    for work, *arguments in ((add, device), (device.empty, 3), (device.kernel, "add")):
        with pytest.raises(StateError, match="the device is closed"):
            work(*arguments)
    assert device.properties == {}
    del buffer, device, work, arguments
    gc.collect()
    assert made_since(before) == Counter()


def test_memory_goes_only_when_the_gpu_is_done(cuda: pyturbo.Device) -> None:
    soft_cuda.inject("slow", milliseconds=100)
    a, y = full(cuda, 2), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, y, 64)
    program.run(wait=False)
    del program, a, y  # soft CUDA reports memory that is freed in use
