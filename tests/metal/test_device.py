"""The Metal device through soft Metal: memory, caches, failures, time.

Speed, drivers and the memory model of a real GPU cannot be seen here.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo.cli import main
from pyturbo.errors import AllocationError, ArgumentError, DeviceError, StateError
from pyturbo.ops.attention import key_blocks
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import Place, symbol
from text.tiny_chat import write_model

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

PACKAGE = Path(pyturbo.__file__).parent


@pytest.fixture
def metal() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("metal") as device:
        yield device


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def before() -> Counter[str]:
    """What other tests keep alive."""
    gc.collect()
    return Counter(soft_metal.live_objects())


def made_since(before: Counter[str]) -> Counter[str]:
    """Objects by class that were made since then and are alive."""
    return Counter(soft_metal.live_objects()) - before


def add(device: pyturbo.Device, n: int = 64) -> np.ndarray:
    return ops.add(np.arange(n, dtype=np.float32), np.ones(n, np.float32), device=device)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 60
    while not holds():
        assert time.perf_counter() < deadline
        time.sleep(0.02)


def test_properties_say_what_it_is(metal: pyturbo.Device) -> None:
    assert metal.properties["family"] == "Apple8"
    assert metal.properties["working set"] == "16384 MiB"
    assert metal.properties["kernels"].endswith("pyturbo.metallib")


@pytest.mark.parametrize(
    ("cores", "shown", "groups", "parts"), [(8, "8", 32, 16), (40, "40", 160, 80), (0, "unknown", 40, 20)]
)
def test_attention_fills_the_cores(cores: int, shown: str, groups: int, parts: int) -> None:
    """Four threadgroups for each core that the registry tells of, over two key heads of 256 values."""
    soft_metal.set_options(gpu_cores=cores)
    with pyturbo.Device("metal") as device:
        assert device.properties["cores"] == shown
        assert device.traits.attention_groups == groups
        assert device.traits.product_groups == 2 * groups
        assert key_blocks(device, heads=2, dim=256) == parts
        q, k, v = (np.random.default_rng(n).standard_normal((1 if n == 0 else 3000, 2, 64)) for n in range(3))
        q, k, v = (array.astype(np.float32) for array in (q, k, v))
        got = ops.attention(q, k, v, 0.125, device=device)
    np.testing.assert_allclose(got, ops.attention(q, k, v, 0.125, device="cpu:reference"), rtol=0, atol=1e-6)


# Memory --------------------------------------------------------------------------------------------


def test_memory_of_the_device_and_mapped_files_are_used_in_place(
    before: Counter[str], metal: pyturbo.Device, tmp_path: Path
) -> None:
    np.arange(40_000, dtype=np.float32).tofile(tmp_path / "numbers")
    mapped = metal.map(tmp_path / "numbers", dtype="float32", offset=64)
    ones, y = metal.empty(100), metal.empty(100)
    ones.numpy()[:] = 1
    metal.kernel("add")(mapped.view(100, offset=4096), ones, y, 100)
    assert y.numpy().tolist() == list(range(1041, 1141))
    assert made_since(before)["MTLBuffer"] == 3


def test_other_memory_is_copied_in_and_out(before: Counter[str], metal: pyturbo.Device) -> None:
    memory = np.zeros(1000, np.float32)  # two arguments that overlap share one copy
    memory[:200] = np.arange(200)
    metal.kernel("add")(memory[:60], memory[20:80], memory[100:160], 60)
    want = np.arange(200, dtype=np.float32)
    np.testing.assert_array_equal(memory[100:160], want[:60] + want[20:80])
    np.testing.assert_array_equal(memory[:100], want[:100])
    assert made_since(before)["MTLBuffer"] == 0


def test_a_mapping_longer_than_a_buffer_has_windows(before: Counter[str], tmp_path: Path) -> None:
    soft_metal.set_options(max_buffer_length=4 * 16384)
    values = np.arange(10 * 4096, dtype=np.float32)  # ten pages
    values.tofile(tmp_path / "numbers")
    with pyturbo.Device("metal") as device:
        mapped = device.map(tmp_path / "numbers", dtype="float32")
        assert device.longest_argument == 49152
        y = device.empty(8192)
        for first in (32_768, 20_000, 6000, 4095, 0):
            part = mapped.view(8192, offset=4 * first)
            device.kernel("add")(part, part, y, 8192)
            np.testing.assert_array_equal(y.numpy(), 2 * values[first : first + 8192])
        assert made_since(before)["MTLBuffer"] <= 5
        with pytest.raises(DeviceError, match="add: a: expected at most 49152 bytes, .* got 163840"):
            device.kernel("add")(mapped, mapped, y, 8192)
        assert add(device)[3] == 4  # and it goes on


def test_an_allocation_that_metal_refuses(metal: pyturbo.Device) -> None:
    soft_metal.inject("allocation")
    with pytest.raises(AllocationError, match=r"Metal cannot make a buffer of 16384 bytes, \d+ are in use"):
        metal.empty(100)
    assert metal.empty(100).numpy().sum() == 0


def test_nothing_is_left_after_close(before: Counter[str]) -> None:
    device = pyturbo.Device("metal")
    buffer = device.empty(100)
    add(device)
    device.close()
    assert made_since(before) == Counter()
    assert buffer.numpy().tolist() == [0] * 100
    for work in (lambda: add(device), lambda: device.empty(3), lambda: device.kernel("add")):
        with pytest.raises(StateError, match="the device is closed"):
            work()
    assert device.properties == {}


def test_memory_goes_only_when_the_gpu_is_done(metal: pyturbo.Device) -> None:
    soft_metal.inject("slow", milliseconds=200)
    source, target = metal.empty(64), metal.empty(64)
    source.numpy()[:] = 2
    with Recorder(metal, {}) as recorder:
        x = Tensor(source, (64,), np.float32)
        recorder.launch("add", (x, x, target, 64), None)
    recorder.program.run(wait=False)
    assert target.numpy()[0] == 0  # it is still at work
    view = target.numpy()
    del source, x, recorder  # the storage waits for the GPU
    assert view[0] == 4
    metal.synchronize()


@pytest.mark.slow
def test_a_model_that_exceeds_the_working_set(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model")
    with pyturbo.Device("metal") as device:
        assert device.working_set == 1 << 34
    with pyturbo.Device("cpu") as device:
        assert device.working_set is None
    with pyturbo.load(path, "metal") as model:
        layout = model.runner.layout(512)
    soft_metal.set_options(recommended_working_set=100_000)
    message = r"device: expected a working set of at least .* for weights and a conversation, got 100.0 kB"
    with pytest.raises(AllocationError, match=message):
        pyturbo.load(path, "metal")
    with (
        pyturbo.Device("metal") as device,
        pytest.raises(AllocationError, match="at most 100000 bytes, the working set of the device, got "),
    ):
        layout.allocate(device)


@pytest.mark.slow
def test_a_benchmark_that_exceeds_the_working_set(capsys: pytest.CaptureFixture[str]) -> None:
    soft_metal.set_options(recommended_working_set=20 << 30)
    assert main(["bench", "gpu", "--device", "metal", "--only", "model", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["model"]["rows"]
    message = "device: expected a working set of at least 2[2-4].* GB for weights and a conversation, got 2.*"
    assert re.fullmatch(message, row["error"])


# Programs ------------------------------------------------------------------------------------------


def test_a_program_is_one_command_buffer_with_the_barriers_it_needs(metal: pyturbo.Device) -> None:
    a, b, c, d = (metal.empty(64) for _ in range(4))
    program = pyturbo.Program(metal)
    kernel = metal.kernel("add")
    for x, y in ((a, b), (a, c), (b, d), (c, a)):
        program.add(kernel, x, x, y, 64)
    program.run()
    counters = soft_metal.counters()
    assert (counters["command_buffers"], counters["encoders"], counters["dispatches"]) == (1, 1, 4)
    assert (counters["barriers"], counters["needless_barriers"]) == (1, 0)


def test_a_launch_without_threadgroups_leaves_its_barrier(metal: pyturbo.Device) -> None:
    a, b, c, d = (metal.empty(64) for _ in range(4))
    a.numpy()[:] = 1
    program = pyturbo.Program(metal, symbols=("count",))
    kernel = metal.kernel("add")
    program.add(kernel, a, a, b, 64)
    program.add(metal.kernel("threadgroup_argument"), b, c, symbol("count"))
    program.add(kernel, b, b, d, 64)
    assert [launch.waits for launch in program.listing()] == [False, True, False]
    program.run(count=0)
    assert (c.numpy()[0], d.numpy()[63]) == (0, 4)
    assert soft_metal.counters()["dispatches"] == 2


def test_replays_under_way_keep_their_values(metal: pyturbo.Device) -> None:
    x, ones = metal.empty(40), metal.empty(40)
    ones.numpy()[:] = 1
    program = pyturbo.Program(metal, symbols=("count",))
    program.add(metal.kernel("add"), x, ones, x, symbol("count"))
    program.add(metal.kernel("add"), x, ones, x, 40)
    soft_metal.inject("slow", times=100, milliseconds=5)
    for count in range(1, 41):
        program.run(wait=False, count=count)
    metal.synchronize()
    np.testing.assert_array_equal(x.numpy(), 40 + np.arange(40, 0, -1))


def test_replays_with_other_blocks(metal: pyturbo.Device) -> None:
    ones = metal.empty(4096)
    ones.numpy()[:] = 1
    program = pyturbo.Program(metal, blocks=("block",))
    target = Place("block", 0, 16384, np.float32)
    program.add(metal.kernel("add"), ones, ones, target, 4096)
    for size in (4096, 8192, 4096):  # blocks that are gone give their addresses to others
        block = metal.empty(size)
        for _ in range(2):
            block.numpy()[:] = 0
            program.run([block])
            assert block.numpy()[:4096].tolist() == [2] * 4096
        del block


def test_a_replay_over_memory_of_the_host_and_one_of_the_device(metal: pyturbo.Device) -> None:
    ones = metal.empty(64)
    ones.numpy()[:] = 1
    program = pyturbo.Program(metal, blocks=("block",))
    program.add(metal.kernel("add"), ones, ones, Place("block", 0, 256, np.float32), 64)
    array, own = np.zeros(64, np.float32), metal.empty(64)
    for block in (own, metal.buffer(array), own):
        block.numpy()[:] = 0
        program.run([block])
        assert block.numpy().tolist() == [2] * 64


def test_a_plan_is_made_once_the_gpu_can_use_all_memory(metal: pyturbo.Device, before: Counter[str]) -> None:
    ones, own = metal.empty(64), metal.empty(64)
    program = pyturbo.Program(metal, blocks=("block",))
    program.add(metal.kernel("add"), ones, ones, Place("block", 0, 256, np.float32), 64)
    blocks = [metal.buffer(np.zeros(64, np.float32)), own, own]
    buffers = []
    for block in blocks:
        program.run([block])
        buffers.append(made_since(before)["MTLBuffer"])
    assert buffers == [2, 3, 3]  # those of `ones` and `own`, and the values of the plan


def test_two_handles_over_one_memory_depend_on_each_other(metal: pyturbo.Device) -> None:
    memory = np.zeros(4096, np.float32)
    first, second = metal.buffer(memory), metal.buffer(memory[1024:])
    y = metal.empty(64)
    program = pyturbo.Program(metal, blocks=("block",))
    program.add(metal.kernel("add"), y, y, first.view(64, offset=4096), 64)
    program.add(metal.kernel("add"), second.view(64), y, second.view(64, offset=512), 64)
    assert [launch.waits for launch in program.listing()] == [False, True]
    program.run([metal.empty(16)])
    for block in (first, y.view(16)):
        with pytest.raises(
            ArgumentError, match="expected blocks apart from each other and from bound memory"
        ):
            program.run([block])


def test_constants_that_come_and_go(metal: pyturbo.Device) -> None:
    source, target = metal.empty(16), metal.empty((20, 16))
    with Recorder(metal, {}) as recorder:
        x = Tensor(source, (1, 16), np.float32)
        for i in range(20):
            row = Tensor(target.view((1, 16), offset=64 * i), (1, 16), np.float32)
            recorder.launch("add", (x, np.full(16, i, np.float32), row, 16), None)
    recorder.program.run()
    assert target.numpy()[:, 0].tolist() == list(range(20))


@pytest.mark.slow
def test_a_reader_that_stops_leaves_nothing_at_work(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model")
    model = pyturbo.load(path, "metal", kv="f32")
    model.runner.traits = model.runner.traits._replace(chunk=8)
    session = model.session(512)
    soft_metal.inject("slow", times=100, milliseconds=50)
    begin = time.perf_counter()
    reader = session.read(range(40))
    assert next(reader) == 8
    assert time.perf_counter() - begin < 0.05 or session.logits[0] == 0  # it did not wait
    reader.close()
    want = pyturbo.load(path, "cpu", kv="f32").session(512).prefill(range(8))
    assert np.abs(session.logits - want).max() < 1e-5 * want.std()


@pytest.mark.slow
def test_chunks_of_a_prompt_follow_each_other(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model")
    want = pyturbo.load(path, "cpu", kv="f32").session(512).prefill(range(40)).copy()
    model = pyturbo.load(path, "metal", kv="f32")
    model.runner.traits = model.runner.traits._replace(chunk=8)
    session = model.session(512)
    soft_metal.inject("slow", times=100, milliseconds=10)
    logits = session.prefill(range(40))
    assert soft_metal.counters()["command_buffers"] == 5
    assert np.abs(logits - want).max() < 1e-5 * want.std()


@pytest.mark.slow
def test_profile_has_a_time_for_each_launch(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model")
    for sampling in (True, False):
        soft_metal.set_options(counter_sampling=sampling)
        with pyturbo.Device("metal") as device:
            session = pyturbo.load(path, device).session(16)
            session.prefill([1, 2])
            soft_metal.reset()
            soft_metal.set_options(counter_sampling=sampling)
            begin = time.perf_counter()
            profile = session.profile()
            wall = time.perf_counter() - begin
            assert profile.seconds < wall < 100 * profile.seconds
            replay, *events = profile.timeline
            moments = [moment for event in events for moment in (event.begin, event.end)]
            assert moments == sorted(moments)
            assert replay.begin <= moments[0]
            assert moments[-1] <= replay.end <= wall
            launches = sum(row.launches for row in profile.rows())
            assert all(row.seconds > 0 for row in profile.rows())
            assert soft_metal.counters()["encoders"] == launches
            assert soft_metal.counters()["command_buffers"] == (1 if sampling else launches)


def test_residency_sets_where_the_system_has_them(metal: pyturbo.Device) -> None:
    assert metal.properties["residency sets"] == "yes"
    buffers = [metal.empty(100) for _ in range(3)]
    wait_until(lambda: soft_metal.counters()["resident"] == 3)
    result = add(metal)  # stays, unlike the copies of what goes in
    wait_until(lambda: soft_metal.counters()["resident"] == 4)
    del result, buffers[0]
    assert soft_metal.counters()["resident"] == 2
    soft_metal.set_options(residency_sets=False)
    with pyturbo.Device("metal") as older:
        assert older.properties["residency sets"] == "no"
        assert add(older)[0] == 1


def test_residency_is_kept_alive_after_use(metal: pyturbo.Device) -> None:
    add(metal)
    before = soft_metal.counters()["residency_requests"]
    wait_until(lambda: soft_metal.counters()["residency_requests"] >= before + 2)


def test_nobody_waits_for_a_slow_request(metal: pyturbo.Device) -> None:
    """But memory that goes away does: the request may be about it."""
    x = metal.empty(64)
    add = metal.kernel("add")
    add(x, x, x, 64)
    wait_until(lambda: soft_metal.counters()["resident"] == 1)
    soft_metal.inject("slow_residency", milliseconds=3000)
    begin = time.perf_counter()
    late = metal.empty(64)  # asks for residency
    time.sleep(0.5)
    for _ in range(20):
        add(x, late, x, 64)
    more = metal.empty(64)
    add(x, more, x, 64)
    assert time.perf_counter() - begin < 2.5
    del late
    assert time.perf_counter() - begin >= 3
    wait_until(lambda: soft_metal.counters()["resident"] == 2)  # `more` has joined after the request


# Failures ------------------------------------------------------------------------------------------


def test_a_failed_command_buffer_stays_failed(metal: pyturbo.Device) -> None:
    soft_metal.inject("command_buffer", text="page fault at 0x10")
    with pytest.raises(DeviceError, match="metal: add: page fault at 0x10; the device must be opened again"):
        add(metal)
    with pytest.raises(DeviceError, match="page fault at 0x10"):
        add(metal)
    with pytest.raises(DeviceError, match="page fault at 0x10"):
        metal.synchronize()
    with pyturbo.Device("metal") as other:
        assert add(other)[0] == 1


def test_a_failure_behind_the_back_reaches_the_next_call(metal: pyturbo.Device) -> None:
    soft_metal.inject("command_buffer", text="out of luck")
    a, b = metal.empty(64), metal.empty(64)
    program = pyturbo.Program(metal)
    program.add(metal.kernel("add"), a, a, b, 64)
    program.run(wait=False)
    with pytest.raises(DeviceError, match="add: out of luck"):
        metal.synchronize()


def test_a_lost_device_leaves_the_process_alive(metal: pyturbo.Device) -> None:
    soft_metal.inject("device_lost")
    with pytest.raises(DeviceError, match="metal: add: "):
        add(metal)
    assert add(pyturbo.Device("cpu"))[0] == 1


@pytest.mark.slow
def test_a_session_ends_with_the_failure(tmp_path: Path) -> None:
    session = pyturbo.load(write_model(tmp_path / "model"), "metal").session(16)
    session.prefill([1, 2])
    soft_metal.inject("command_buffer", text="page fault")
    with pytest.raises(DeviceError, match="program of [0-9]+ launches: page fault"):
        session.step(3)
    with pytest.raises(StateError, match="cannot go on after: .*page fault"):
        session.step(3)


def test_a_pipeline_that_cannot_be_made(metal: pyturbo.Device, cache: Path) -> None:
    soft_metal.inject("pipeline", times=2, text="too many registers")
    with pyturbo.Device("metal") as device:
        with pytest.raises(DeviceError, match="add: Metal cannot make a pipeline: too many registers"):
            add(device)
        assert soft_metal.counters()["dropped"] == 1
        assert add(device)[0] == 1
    soft_metal.reset()


def test_a_kernel_with_more_threads_than_the_device_has() -> None:
    soft_metal.set_options(max_threads=512)
    with pyturbo.Device("metal") as device:
        with pytest.raises(DeviceError, match="argmax: expected at most 512 threads in a threadgroup"):
            ops.argmax(np.ones((1, 4), np.float32), device=device)
        assert add(device)[0] == 1
    soft_metal.reset()


def test_the_checker_is_for_the_cpu() -> None:
    with pytest.raises(ArgumentError, match="metal: expected no checker, which is part of cpu:reference"):
        pyturbo.Device("metal", check=True)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks, in Python 3.12 and newer
@pytest.mark.parametrize("opens", [False, True])
def test_a_child_process_is_told(metal: pyturbo.Device, opens: bool) -> None:
    expected = "metal: Metal cannot be used in a child of fork()" if opens else "made before fork()"
    child = os.fork()
    if child == 0:
        try:
            pyturbo.Device("metal") if opens else add(metal)
        except StateError as error:
            os._exit(7 if expected in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert add(metal)[0] == 1


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    soft_metal.set_options(present=False)
    with pytest.raises(DeviceError, match="metal: this machine has no Metal device"):
        pyturbo.Device("metal")


# Libraries and pipelines ---------------------------------------------------------------------------


def test_pipelines_are_made_once_and_kept_on_disk(cache: Path) -> None:
    def compiled() -> tuple[int, int]:
        soft_metal.reset()
        with pyturbo.Device("metal") as device:
            for _ in range(3):
                add(device)
            ops.rms_norm(np.ones((1, 8), np.float32), np.ones(8, np.float32), 1e-6, device=device)
        counters = soft_metal.counters()
        return counters["pipelines_compiled"], counters["pipelines_from_archive"]

    assert compiled() == (2, 0)
    (archive,) = cache.iterdir()
    assert compiled() == (0, 2)
    whole = archive.read_bytes()
    archive.write_bytes(b"damaged")
    assert compiled() == (2, 0)
    assert archive.read_bytes() == whole
    archive.unlink()
    archive.mkdir()  # nothing can be written there
    assert compiled() == (2, 0)


def test_pipelines_of_a_program_are_made_at_once_and_saved(cache: Path) -> None:
    kernels = ("add", "geglu", "swiglu", "sigmoid_gate")
    calls = []
    with pyturbo.Device("metal") as device:
        x = device.empty(64)
        program = pyturbo.Program(device, symbols=("count",))
        for name in (*kernels, *kernels):
            program.add(device.kernel(name), x, x, x, symbol("count"))
        device.progress = lambda *call: calls.append(call)
        soft_metal.inject("slow_pipeline", times=100, milliseconds=200)
        begin = time.perf_counter()
        program.prepare()
        assert time.perf_counter() - begin < 8 * 0.2  # two calls each, of which one looks into the archive
        assert calls == [("kernels", n, 4) for n in (1, 2, 3, 4)]
        assert len(list(cache.iterdir())) == 1
        program.run(count=64)
        assert len(calls) == soft_metal.counters()["pipelines_compiled"] == 4


def test_the_first_replay_makes_the_pipelines(cache: Path) -> None:
    calls = []
    with pyturbo.Device("metal") as device:
        x = device.empty(64)
        program = pyturbo.Program(device)
        program.add(device.kernel("add"), x, x, x, 64)
        device.progress = lambda *call: calls.append(call)
        for _ in range(2):
            program.run()
        assert calls == [("kernels", 1, 1)]
        program.add(device.kernel("geglu"), x, x, x, 64)
        program.run()
        assert calls == [("kernels", 1, 1)] * 2


def test_what_a_killed_process_left_in_the_cache_is_removed(cache: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    kept = [
        f"a.metalarchive.{os.getpid()}.0",  # of a process that may still write it
        f"a.metalarchive.{killed.pid}",
        f"a.metalarchive.{killed.pid}.0.txt",
        f"a.metalarchive.-{killed.pid}.0",
        f"a.{killed.pid}.0",
        "a.metalarchive",
    ]
    cache.mkdir()
    for name in (*kept, f"a.metalarchive.{killed.pid}.0", f"b.metalarchive.{killed.pid}.13"):
        (cache / name).touch()
    with pyturbo.Device("metal") as device:
        add(device)
    (archive,) = {path.name for path in cache.iterdir()} - set(kept)
    assert archive.endswith(".metalarchive")
    assert len(list(cache.iterdir())) == len(kept) + 1


def test_the_cache_can_be_off_or_unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "inside")):
        monkeypatch.setenv("PYTURBO_CACHE", folder)
        with pyturbo.Device("metal") as device:
            assert add(device)[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_that_are_not_utf8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTURBO_CACHE", os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pytest.raises(ArgumentError, match="PYTURBO_CACHE: expected UTF-8, got .*\udcff"):
        pyturbo.Device("metal")
    for cache in (b"/\xed\xa0\x80", b"/\xc0\xaf", b"/\xf4\x90\x80\x80", b"/\xe2\x82"):
        monkeypatch.setenv("PYTURBO_CACHE", os.fsdecode(bytes(tmp_path) + cache))
        with pytest.raises(ArgumentError, match="PYTURBO_CACHE: expected UTF-8"):
            pyturbo.Device("metal")
    monkeypatch.delenv("PYTURBO_CACHE")
    for name in ("HOME", "XDG_CACHE_HOME"):  # such a folder is no cache
        monkeypatch.setenv(name, os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pyturbo.Device("metal") as device:
        assert add(device)[0] == 1
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "\u00e9\u20ac\U0001f600"))
    with pyturbo.Device("metal") as device:
        add(device)
    assert len(list((tmp_path / "\u00e9\u20ac\U0001f600").iterdir())) == 1


@pytest.mark.slow
def test_several_processes_share_an_archive(cache: Path) -> None:
    script = (
        "import numpy as np, pyturbo\n"
        "from pyturbo import ops, _soft_metal_tests as soft\n"
        "with pyturbo.Device('metal') as d:\n"
        "    for n in (1, 2): ops.add(np.ones(n, np.float32), np.ones(n, np.float32), device=d)\n"
        "    ops.softmax(np.ones((2, 8), np.float32), device=d)\n"
        "assert not soft.violations()\n"
    )
    environment = os.environ | {"PYTURBO_CACHE": str(cache)}
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, env=environment, cwd=cache.parent) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert len(list(cache.iterdir())) == 1
    soft_metal.reset()
    with pyturbo.Device("metal") as device:
        add(device)
    assert soft_metal.counters()["pipelines_from_archive"] == 1


def package_copy(folder: Path) -> Path:
    """The package without its metallib, for a process of its own."""
    copy = folder / "pyturbo"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.metallib"))
    return copy


def run_in(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTURBO_CACHE": ""}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_without_a_metallib_the_sources_are_compiled(tmp_path: Path) -> None:
    copy = package_copy(tmp_path)
    script = (
        "import numpy as np, pyturbo\n"
        "from pyturbo import ops, _native_tests, _soft_metal_tests as soft\n"
        "d = pyturbo.Device('metal')\n"
        "assert d.properties['kernels'].endswith('shaders'), d.properties\n"
        "x = np.arange(64, dtype=np.float32).reshape(1, 64)\n"
        "w = ops.affine_quantize(np.ones((3, 64), np.float32), bits=4, group_size=64)\n"
        "y = ops.affine_matmul(x, *w, bits=4, group_size=64, device=d)\n"
        "print(y[0, 0], ops.add(x, x, device=d)[0, 1])\n"
        "d.kernel('threadgroup_argument')(x, y[0, :1], 1)  # of tests/shaders\n"
        "assert y[0, 0] == x.sum()\n"
        "assert not soft.violations()\n"
        "assert soft.counters()['libraries_from_source'] == 3\n"
    )
    done = run_in(tmp_path, script)
    assert (done.stdout, done.stderr, done.returncode) == ("2016.0 2.0\n", "", 0)
    (copy / "shaders" / "elementwise_add.metal").unlink()
    done = run_in(tmp_path, script)
    assert "elementwise_add.metal: expected the source of a shader, found none" in done.stderr
    shutil.rmtree(copy / "shaders")
    done = run_in(tmp_path, script)
    assert "expected the kernels in " in done.stderr
    assert "pyturbo.metallib or their sources in " in done.stderr


def test_a_metallib_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTURBO_METALLIB", str(tmp_path / "other.metallib"))
    with pytest.raises(
        DeviceError, match="PYTURBO_METALLIB: expected a file, found none at .*other.metallib"
    ):
        pyturbo.Device("metal")
    (tmp_path / "other.metallib").write_text("something else")
    with pytest.raises(DeviceError, match="other.metallib: cannot be loaded: "):
        pyturbo.Device("metal")
    (tmp_path / "other.metallib").write_text("soft metallib 1\nadd\n")
    with pyturbo.Device("metal") as device:
        assert add(device)[0] == 1
        with pytest.raises(DeviceError, match="softmax.*: not in .*other.metallib"):
            ops.softmax(np.ones((1, 4), np.float32), device=device)
    soft_metal.reset()
