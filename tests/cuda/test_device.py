"""The CUDA device through soft CUDA: memory, graphs, compiled kernels, failures, time.

Speed, NVIDIA's driver and compiler, and the memory model of a real GPU cannot be seen here.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import cuda_in_tests
import pyturbo
from pyturbo import ops
from pyturbo.errors import AllocationError, ArgumentError, DeviceError, StateError
from pyturbo.symbols import Launch, Place, symbol

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from pyturbo import _soft_cuda_tests as soft_cuda


@pytest.fixture
def cuda() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("cuda") as device:
        yield device


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


@pytest.fixture(autouse=True)
def before() -> Counter[str]:
    """What other tests keep alive."""
    gc.collect()
    return Counter(soft_cuda.live_objects())


def made_since(before: Counter[str]) -> Counter[str]:
    """Objects by class that were made since then and are alive."""
    return Counter(soft_cuda.live_objects()) - before


def add(device: pyturbo.Device, n: int = 64) -> np.ndarray:
    y = np.zeros(n, np.float32)
    device.kernel("add")(np.arange(n, dtype=np.float32), np.ones(n, np.float32), y, n)
    return y


def full(device: pyturbo.Device, value: float, n: int = 64) -> pyturbo.Buffer:
    buffer = device.empty(n)
    buffer.write(np.full(n, value, np.float32))
    return buffer


def test_properties_say_what_it_is(cuda: pyturbo.Device) -> None:
    assert cuda.properties["compute capability"] == "9.0"
    assert cuda.properties["memory"] == "16384 MiB"
    assert cuda.properties["NVRTC"] == "13.0 for sm_90a"
    assert cuda.properties["kernels"].endswith("shaders")


# Memory --------------------------------------------------------------------------------------------


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
    soft_cuda.inject("slow", milliseconds=100)
    program.run(wait=False)
    values = np.full(64, 5, np.float32)
    begin = time.perf_counter()
    a.write(values)
    assert time.perf_counter() - begin < 0.09
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
    soft_cuda.inject("slow_copy", times=4, milliseconds=500)
    begin = time.perf_counter()
    program.run()
    assert time.perf_counter() - begin < 1.5
    assert y.read()[299_999] == sum(map(ord, "abcd"))
    assert soft_cuda.counters()["registered"] == 4


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


# Graphs --------------------------------------------------------------------------------------------


def test_a_program_is_one_graph_with_the_edges_it_needs(cuda: pyturbo.Device) -> None:
    a, b, c, d = (full(cuda, i) for i in range(1, 5))
    program = pyturbo.Program(cuda)
    kernel = cuda.kernel("add")
    for x, y in ((a, b), (a, c), (b, d), (c, a)):
        program.add(kernel, x, x, y, 64)
    soft_cuda.reset()
    for _ in range(2):
        program.run()
    counters = soft_cuda.counters()
    assert (counters["graphs"], counters["graph_launches"], counters["nodes"]) == (1, 2, 8)
    # d follows b; a is written after both b and c have been computed from it
    assert (counters["edges"], counters["needless_edges"]) == (2 * 3, 0)
    assert counters["node_updates"] == 0
    assert [x.read()[0] for x in (a, b, c, d)] == [16, 8, 8, 16]


def test_every_order_that_the_edges_allow_gives_the_same(cuda: pyturbo.Device) -> None:
    rng = np.random.default_rng(5)
    places = rng.integers(0, 6, (40, 3))

    def run(device: pyturbo.Device) -> list[float]:
        buffers = [full(device, i / 8) for i in range(6)]
        program = pyturbo.Program(device)
        for i, j, k in places:
            program.add(device.kernel("add"), buffers[i], buffers[j], buffers[k], 64)
        program.run()
        return [float(buffer.read()[9]) for buffer in buffers]

    want = run(pyturbo.Device("cpu", threads=1))
    for seed in range(5):
        soft_cuda.set_options(seed=seed)
        assert run(cuda) == want


def test_only_what_changed_is_updated(cuda: pyturbo.Device) -> None:
    a, b, c = full(cuda, 1), cuda.empty(64), cuda.empty(256)
    program = pyturbo.Program(cuda, symbols=("count",), blocks=("block",))
    kernel = cuda.kernel("add")
    program.add(kernel, a, a, b, 64)
    program.add(kernel, a, b, c.view(64, offset=0), symbol("count"))
    blocks = [full(cuda, 3), full(cuda, 5)]
    program.add(kernel, Place("block", 0, 256), a, c.view(64, offset=512), 64)
    updates = []
    for count, block in ((64, 0), (64, 0), (10, 0), (10, 1), (20, 1)):
        soft_cuda.reset()
        program.run([blocks[block]], count=count)
        updates.append(soft_cuda.counters()["node_updates"])
    assert updates == [0, 0, 1, 1, 1]
    assert c.read()[128] == 6


def test_a_decode_step_updates_few_nodes(cuda: pyturbo.Device) -> None:
    """Two for each layer with attention, and the embedding."""
    with pyturbo.load(device=cuda) as model:
        session = model.session(512)
        session.prefill([1, 2, 3])
        session.step(4)
        soft_cuda.reset()
        session.step(5)
        counters = soft_cuda.counters()
        attention = sum(launch.kernel == "rope_append_f16" for launch in launches(model))
    assert attention == 2
    assert counters["node_updates"] == 2 * attention + 1
    assert (counters["graph_launches"], counters["launches"]) == (1, 0)
    assert (counters["copies_in"], counters["copies_out"]) == (1, 1)


def launches(model: pyturbo.Model) -> Sequence[Launch]:
    """The launches of the program of a decode step."""
    with model.runner.program(512, 1, "last") as (_, graph):
        return graph.program.listing()


def test_a_launch_without_threadgroups_is_left_out(cuda: pyturbo.Device) -> None:
    a, b, c, d = full(cuda, 1), cuda.empty(64), cuda.empty(64), cuda.empty(64)
    program = pyturbo.Program(cuda, symbols=("count",))
    kernel = cuda.kernel("add")
    program.add(kernel, a, a, b, 64)
    program.add(cuda.kernel("threadgroup_argument"), b, c, symbol("count"))
    program.add(kernel, b, b, d, 64)
    for count, nodes in ((0, 2), (1, 3), (0, 2)):
        soft_cuda.reset()
        program.run(count=count)
        assert soft_cuda.counters()["nodes"] == nodes
    assert (c.read()[0], d.read()[63]) == (128, 4)


def test_memory_of_the_host_as_a_block_keeps_no_graph_away(cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda, blocks=("block",))
    program.add(cuda.kernel("add"), Place("block", 0, 256), a, b, 64)
    on_host = cuda.buffer(np.full(64, 3, np.float32))
    for block, graphs, value in (
        (on_host, 0, 4),
        (full(cuda, 5), 1, 6),
        (on_host, 0, 4),
        (full(cuda, 7), 1, 8),
    ):
        soft_cuda.reset()
        program.run([block])
        assert soft_cuda.counters()["graph_launches"] == graphs
        assert b.read()[0] == value


def test_a_longer_program_is_a_new_graph(before: Counter[str], cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for length in (1, 2, 3):
        program.add(cuda.kernel("add"), a, b, b, 64)
        program.run()
        assert b.read()[0] == length * (length + 1) / 2
    assert made_since(before)["graph"] == made_since(before)["graph exec"] == 1
    del program
    assert made_since(before)["graph"] == made_since(before)["graph exec"] == 0


def test_times_of_launches(cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for _ in range(5):
        program.add(cuda.kernel("add"), a, b, b, 64)
    begin = time.perf_counter()
    replay = program.timeline()
    wall = time.perf_counter() - begin
    moments = [moment for run in replay.runs for moment in (run.begin, run.end)]
    assert len(moments) == 10
    assert moments == sorted(moments)
    assert replay.begin <= moments[0]
    assert moments[-1] <= replay.end <= replay.begin + wall
    assert b.read()[0] == 5
    assert soft_cuda.counters()["launches"] == 5


# Threads -------------------------------------------------------------------------------------------


def running(work: Callable[[], object]) -> threading.Thread:
    """Start a thread and give it time to come to what is slow in it."""
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    return thread


@pytest.mark.parametrize("call", ["compile", "instantiate", "copy"])
def test_slow_work_of_a_thread_does_not_hold_up_others(
    cuda: pyturbo.Device, cache: Path, tmp_path: Path, call: str
) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    ready, other = pyturbo.Program(cuda), pyturbo.Program(cuda)
    ready.add(cuda.kernel("add"), a, a, b, 64)
    ready.run()
    other.add(cuda.kernel("geglu" if call == "compile" else "add"), a, a, cuda.empty(64), 64)
    np.ones(64, np.float32).tofile(tmp_path / "numbers")
    mapped = cuda.map(tmp_path / "numbers", dtype="float32")
    soft_cuda.inject("slow_" + call, milliseconds=1000)
    work = (lambda: cuda.kernel("add")(mapped, a, a, 64)) if call == "copy" else other.run
    thread = running(work)
    begin = time.perf_counter()
    ready.run(wait=False)
    assert time.perf_counter() - begin < 0.5
    thread.join()


# Kernels -------------------------------------------------------------------------------------------


def test_kernels_are_compiled_once_and_kept_on_disk(cache: Path) -> None:
    def compiled() -> tuple[int, int]:
        soft_cuda.reset()
        with pyturbo.Device("cuda") as device:
            for _ in range(3):
                add(device)
            ops.rms_norm(np.ones((1, 8), np.float32), np.ones(8, np.float32), 1e-6, device=device)
        return soft_cuda.counters()["compiled"], soft_cuda.counters()["loaded"]

    assert compiled() == (2, 2)
    images = sorted(cache.iterdir())
    assert len(images) == 2
    assert compiled() == (0, 2)
    whole = images[0].read_bytes()
    for damaged in (b"", b"damaged", whole[:-1], whole[:-1] + b"?"):
        images[0].write_bytes(damaged)
        assert compiled() == (1, 2)
        assert images[0].read_bytes() == whole
    images[0].unlink()
    images[0].mkdir()  # nothing can be written there
    assert compiled() == (1, 2)


def test_each_architecture_has_its_own_kernels(cache: Path) -> None:
    for capability, files in ((90, 1), (89, 2), (90, 2), (121, 3)):
        soft_cuda.set_options(capability=capability)
        with pyturbo.Device("cuda") as device:
            assert add(device)[3] == 4
            expected = {90: "sm_90a", 89: "sm_89", 121: "compute_120"}[capability]
            assert device.properties["NVRTC"] == f"13.0 for {expected}"
        assert len(list(cache.iterdir())) == files


def test_each_precision_has_its_own_kernels(cache: Path) -> None:
    for precision, files in (("default", 1), ("fast", 2), ("default", 2)):
        with pyturbo.Device("cuda", precision=precision) as device:
            assert add(device)[3] == 4
            assert device.properties["precision"] == precision
        assert len(list(cache.iterdir())) == files
    images = [path.read_bytes() for path in cache.iterdir()]
    assert [b"\nfast\n" in image for image in sorted(images, key=len)] == [True, False]


def test_a_gpu_without_matrix_units_has_one_precision(cache: Path) -> None:
    soft_cuda.set_options(capability=75)
    with pyturbo.Device("cuda", precision="fast") as device:
        assert add(device)[3] == 4
        assert device.properties["precision"] == "default"
    (image,) = cache.iterdir()
    assert b"\nfast\n" not in image.read_bytes()


def test_function_constants_make_kernels_of_their_own(cuda: pyturbo.Device) -> None:
    x, y, extra = np.ones(7, np.float32), np.zeros(7, np.float32), np.full(7, 4, np.float32)
    for doubled in (True, False, True):
        kernel = cuda.kernel("specialised", {"doubled": doubled})
        kernel(x, y, 7, extra if doubled else None, groups=1, threads=7)
    assert soft_cuda.counters()["loaded"] == 2


def test_a_program_compiles_all_of_its_kernels_at_once(cache: Path) -> None:
    with pyturbo.Device("cuda") as device:
        a, y = device.empty((1, 64)), device.empty((1, 64))
        program = pyturbo.Program(device)
        for name in ("add", "geglu", "swiglu"):
            program.add(device.kernel(name), a, a, y, 64)
        assert soft_cuda.counters()["compiled"] == 0
        program.run()
        assert soft_cuda.counters()["compiled"] == 3


def test_what_a_killed_process_left_in_the_cache_is_removed(cache: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    kept = [f"a.cubin.{os.getpid()}.0", f"a.cubin.{killed.pid}", f"a.{killed.pid}.0", "a.cubin"]
    cache.mkdir(parents=True)
    for name in (*kept, f"a.cubin.{killed.pid}.0"):
        (cache / name).touch()
    with pyturbo.Device("cuda"):
        assert sorted(path.name for path in cache.iterdir()) == sorted(kept)


def test_the_cache_can_be_off_or_unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "inside")):
        monkeypatch.setenv("PYTURBO_CACHE", folder)
        with pyturbo.Device("cuda") as device:
            assert add(device)[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# Failures ------------------------------------------------------------------------------------------


def test_a_kernel_that_cannot_be_compiled(cache: Path, cuda: pyturbo.Device) -> None:
    soft_cuda.inject("compile", text="elementwise_add.cu(3): error: expected a ;")
    with pytest.raises(DeviceError, match=r"add: NVRTC cannot compile it: elementwise_add.cu\(3\): error"):
        add(cuda)
    assert add(cuda)[0] == 1
    with pyturbo.Device("cuda") as device:
        soft_cuda.inject("load")
        with pytest.raises(DeviceError, match="add: the GPU cannot load it: CUDA_ERROR_INVALID_IMAGE"):
            add(device)
        assert add(device)[0] == 1


def test_a_failed_launch_stays_failed(cuda: pyturbo.Device) -> None:
    soft_cuda.inject("launch")
    message = "cuda: add: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal .*; the device must be opened again"
    with pytest.raises(DeviceError, match=message):
        add(cuda)
    for work in (lambda: add(cuda), cuda.synchronize):
        with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            work()
    cuda.close()
    soft_cuda.reset()  # other tests keep the context alive, which a process that gives it up opens anew
    with pyturbo.Device("cuda") as other:
        assert add(other)[0] == 1


def test_a_failure_behind_the_back_reaches_the_next_call(cuda: pyturbo.Device) -> None:
    a, b = cuda.empty(64), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for _ in range(2):
        program.add(cuda.kernel("add"), a, b, b, 64)
    cuda.synchronize()
    soft_cuda.inject("launch")
    program.run(wait=False)
    with pytest.raises(DeviceError, match="cuda: program of 2 launches: CUDA_ERROR_ILLEGAL_ADDRESS"):
        cuda.synchronize()
    with pytest.raises(DeviceError, match="program of 2 launches"):
        program.run()


def test_a_refused_launch_leaves_the_device_usable(cuda: pyturbo.Device) -> None:
    add(cuda)
    soft_cuda.inject("refused")
    with pytest.raises(DeviceError, match="cuda: add: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        add(cuda)
    assert add(cuda)[0] == 1


@pytest.mark.parametrize("fault", ["instantiate", "load_memory", "allocation"])
def test_too_little_memory_is_an_allocation_error_everywhere(before: Counter[str], fault: str) -> None:
    """It leaves nothing behind, and a device that works."""
    with pyturbo.Device("cuda") as cuda:
        a, b = full(cuda, 1), cuda.empty(64)
        program = pyturbo.Program(cuda)
        program.add(cuda.kernel("add"), a, a, b, 64)
        what = {
            "instantiate": "a graph of 1 launches",
            "load_memory": "add: the GPU cannot load it",
            "allocation": "cannot allocate a buffer of 16384 bytes in pinned memory",
        }[fault]
        soft_cuda.inject(fault)
        with pytest.raises(AllocationError, match=rf"cuda: {what}: too little memory: \d+ of \d+ bytes are"):
            cuda.shared(8) if fault == "allocation" else program.run()
        assert made_since(before)["graph"] == made_since(before)["module"] - (fault == "instantiate") == 0
        program.run()
        assert b.read()[0] == 2
    soft_cuda.inject("allocation")
    with pytest.raises(AllocationError, match="in pinned memory"):
        pyturbo.Device("cuda")
    del cuda, a, b, program
    gc.collect()
    assert made_since(before) == Counter()


@pytest.mark.parametrize("call", ["allocation", "module", "graph"])
def test_a_failure_that_another_call_meets_stays(cuda: pyturbo.Device, call: str) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, b, 64)
    if call == "graph":
        add(cuda)
    work = (lambda: cuda.empty(8)) if call == "allocation" else program.run
    soft_cuda.inject("device_lost")
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE.*; the device must be opened again"):
        work()
    soft_cuda.reset()  # the driver answers again, but memory is in an unknown state
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE"):
        cuda.synchronize()
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE"):
        program.run()


def test_a_lost_device_leaves_the_process_alive(cuda: pyturbo.Device) -> None:
    soft_cuda.inject("device_lost")
    with pytest.raises(DeviceError, match="CUDA_ERROR_DEVICE_UNAVAILABLE"):
        add(cuda)
    assert add(pyturbo.Device("cpu"))[0] == 1


def test_geometry_that_the_gpu_cannot_run(cuda: pyturbo.Device) -> None:
    soft_cuda.set_options(max_threads=512)
    with pyturbo.Device("cuda") as device:
        with pytest.raises(DeviceError, match="argmax: expected at most 512 threads in a threadgroup"):
            ops.argmax(np.ones((1, 4), np.float32), device=device)
        assert add(device)[0] == 1
    x, y = np.ones(7, np.float32), np.zeros(7, np.float32)
    kernel = cuda.kernel("specialised", {"doubled": False})
    with pytest.raises(DeviceError, match="specialised: expected at most 65535 threadgroups along y and z"):
        kernel(x, y, 7, None, groups=(1, 65536), threads=7)


def test_a_form_divides_the_work_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threadgroups of the contract are taken together, with more shared memory than others have."""
    monkeypatch.setenv("PYTURBO_CACHE", "")  # images have forms or not
    n = 1 << 14
    with pyturbo.Device("cuda") as device:
        groups = soft_cuda.counters()["groups"]
        add(device, n)
        groups = soft_cuda.counters()["groups"] - groups
    assert groups > 3
    soft_cuda.set_options(form_span=3, form_bytes=60_000)
    with pyturbo.Device("cuda") as device:
        before = soft_cuda.counters()["groups"]
        device.kernel("add")(full(device, 1, n), full(device, 2, n), y := device.empty(n), n)
        assert soft_cuda.counters()["groups"] - before == -(-groups // 3)
        assert (y.numpy() == 3).all()
        program = pyturbo.Program(device)
        program.add(device.kernel("add"), y, y, z := device.empty(n), n)
        program.run()
        assert (z.numpy() == 6).all()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"form_size": 8}, "expected 16 bytes, got 8"),
        ({"form_size": 20}, "expected 16 bytes, got 20"),
        ({"form_span": 0}, "expected a span of at least 1, got 0"),
        ({"form_parts": 0}, "expected parts of at least 1, got 0"),
        ({"form_threads": 2048}, "expected at most 1024 threads, got 2048"),
    ],
)
def test_a_form_that_cannot_be_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, int], message: str
) -> None:
    monkeypatch.setenv("PYTURBO_CACHE", "")
    soft_cuda.set_options(form_bytes=60_000, **form)
    with pyturbo.Device("cuda") as device:
        with pytest.raises(DeviceError, match=f"^add_form: {message}"):
            add(device)
        soft_cuda.set_options(form_bytes=0, form_size=16, form_span=1, form_parts=1, form_threads=0)
        assert add(device)[3] == 4  # the device is as usable as before


def test_a_form_divides_threadgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the contract becomes several."""
    monkeypatch.setenv("PYTURBO_CACHE", "")
    n = 1 << 14
    with pyturbo.Device("cuda") as device:
        groups = soft_cuda.counters()["groups"]
        add(device, n)
        groups = soft_cuda.counters()["groups"] - groups
    soft_cuda.set_options(form_parts=2, form_bytes=60_000)
    with pyturbo.Device("cuda") as device:
        before = soft_cuda.counters()["groups"]
        device.kernel("add")(full(device, 1, n), full(device, 2, n), y := device.empty(n), n)
        assert soft_cuda.counters()["groups"] - before == 2 * groups
        assert (y.numpy() == 3).all()


def test_the_checker_is_for_the_cpu() -> None:
    with pytest.raises(ArgumentError, match="cuda: expected no checker, which is part of cpu:reference"):
        pyturbo.Device("cuda", check=True)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks, in Python 3.12 and newer
@pytest.mark.parametrize("opens", [False, True])
def test_a_child_process_is_told(cuda: pyturbo.Device, opens: bool) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, b, 64)
    program.run()
    expected = "cuda: CUDA cannot be used in a child of fork()" if opens else "made before fork()"
    child = os.fork()
    if child == 0:
        try:
            pyturbo.Device("cuda") if opens else add(cuda)
        except StateError as error:
            del program, a, b  # no call of the driver: soft CUDA would report it
            gc.collect()
            os._exit(7 if expected in str(error) and not soft_cuda.violations() else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    program.run()
    assert b.read()[0] == 2
