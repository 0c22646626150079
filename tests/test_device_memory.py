"""Memory that the host cannot touch: buffers, constants, conversations and models on such a device.

Any access of the host to memory of the device "cuda" ends the process, so every test that runs on it is
also a test that the host keeps away. What a real driver adds, such as copies that are still under way, is not
tested here.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from pyturbo import Recorder, Tensor, ops
from pyturbo._buffer import host_empty
from pyturbo._experts import ExpertStore
from pyturbo.errors import AllocationError, ArgumentError, StateError
from pyturbo.streaming import MappedExperts, Policy
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx


@pytest.fixture(scope="module")
def gpu() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("cuda", threads=2) as device:
        yield device


@pytest.mark.parametrize("dtype", ["float32", "uint8", ml_dtypes.bfloat16])
def test_values_are_copied(gpu: pyturbo.Device, dtype: object) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    buffer = gpu.empty((3, 4), dtype)
    assert not buffer.on_host
    assert not buffer.readonly
    assert not buffer.numpy().any()
    buffer.write(values)
    np.testing.assert_array_equal(buffer.numpy(), values)
    np.testing.assert_array_equal(np.asarray(buffer).astype(np.float32), values.astype(np.float32))
    out = np.empty((3, 4), dtype)
    assert buffer.read(out) is out
    np.testing.assert_array_equal(out, values)
    part = buffer.view((2, 2), offset=4 * values.itemsize)
    part.write(7)
    np.testing.assert_array_equal(part.read(), np.full((2, 2), 7, dtype))
    np.testing.assert_array_equal(buffer.read()[[0, 2]], values[[0, 2]])
    buffer.clear()
    assert not buffer.read().any()


def test_a_write_that_would_be_lost_is_an_error(gpu: pyturbo.Device) -> None:
    buffer = gpu.empty(4)
    with pytest.raises(ValueError, match="read-only"):
        buffer.numpy()[0] = 1
    with pytest.raises(BufferError, match=r"Buffer\.read copies it"):
        memoryview(buffer)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has to be copied"):
        np.array(buffer, copy=False) if np.__version__ >= "2" else buffer.__array__(copy=False)


def test_read_and_write_work_on_every_device(device: pyturbo.Device, tmp_path: Path) -> None:
    buffer = device.empty((2, 3), "int16")
    buffer.write([[1, 2, 3], [4, 5, 6]])
    buffer.view(2, offset=4).write(np.array([9.0, 8.0]))
    assert buffer.read().tolist() == [[1, 2, 9], [8, 5, 6]]
    other = device.empty((2, 3), "int16")
    other.write(buffer)
    buffer.clear()
    assert other.read().tolist() == [[1, 2, 9], [8, 5, 6]]
    assert not buffer.read().any()
    device.empty(0).write(np.zeros(0))
    assert device.empty((0, 3)).read().shape == (0, 3)
    for wrong in (np.empty((2, 3)), np.empty((3, 2), np.int16), np.empty((2, 6), np.int16)[:, ::2], [0] * 6):
        with pytest.raises(ArgumentError, match="read: out: expected a contiguous, writable array"):
            buffer.read(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="broadcast"):
        buffer.write(np.zeros(4))
    (tmp_path / "data").write_bytes(bytes(64))
    mapped = device.map(tmp_path / "data")
    for change in (mapped.clear, lambda: mapped.write(1)):
        with pytest.raises(ArgumentError, match="expected a buffer that can be written to"):
            change()
    assert not mapped.read().any()


def test_buffers_of_two_devices_are_copied_through_the_host(device: pyturbo.Device) -> None:
    with pyturbo.Device("cuda", threads=1) as other:
        here, there = device.empty(5), other.empty(5)
        here.write(np.arange(5))
        there.write(here)
        here.clear()
        here.write(there)
        assert here.read().tolist() == [0, 1, 2, 3, 4]


def test_memory_of_another_device_is_refused(device: pyturbo.Device) -> None:
    with pyturbo.Device("cuda", threads=1) as other:
        x, y = other.empty(4), device.empty(4)
        with pytest.raises(ArgumentError, match="expected memory of this device or of the host"):
            device.kernel("add")(x, x, y, 4)
        with pytest.raises(ArgumentError, match="expected memory of this device or of the host"):
            pyturbo.Program(device).add(device.kernel("add"), x, x, y, 4)
        with pytest.raises(ArgumentError, match="expected memory of this device or of the host"):
            device.constant(x)
        with pytest.raises(ArgumentError, match="expected memory of this device or of the host"):
            pyturbo.Program(device, blocks=("state",)).run([x])


def test_memory_of_a_closed_device_cannot_be_read() -> None:
    with pyturbo.Device("cuda", threads=1) as device:
        buffer = device.empty(4)
    for use in (buffer.numpy, buffer.read, buffer.clear, lambda: buffer.write(1)):
        with pytest.raises(StateError, match="cuda: the device is closed"):
            use()


def test_dlpack_names_the_device(gpu: pyturbo.Device) -> None:
    buffer = gpu.empty(4)
    assert buffer.__dlpack_device__() == (2, 0)
    assert buffer.__dlpack__(dl_device=(2, 0)) is not None
    with pytest.raises(BufferError, match="where it is, without copying"):
        buffer.__dlpack__(dl_device=(1, 0))


def test_shared_memory_is_seen_by_both(device: pyturbo.Device) -> None:
    buffer = device.shared(4)
    assert buffer.on_host
    view = buffer.numpy()
    view[:] = np.arange(4)
    device.kernel("add")(buffer, buffer, buffer, 4)
    assert view.tolist() == [0, 2, 4, 6]
    assert device.constant(buffer) is buffer


def test_a_constant_is_copied_once(gpu: pyturbo.Device) -> None:
    gc.collect()
    before = gpu.memory
    assert before is not None
    array = host_empty((1000,), np.float32).numpy()
    array[:] = np.arange(1000)
    whole, part = gpu.constant(array), gpu.constant(array[400:])
    assert not whole.on_host
    assert whole.readonly
    assert whole.read().tolist() == array.tolist()
    assert part.read().tolist() == array[400:].tolist()
    used = gpu.memory
    assert used is not None
    assert before.free - used.free == array.nbytes + array[400:].nbytes
    again = gpu.constant(array)
    assert gpu.memory == used
    with pytest.raises(ArgumentError, match="expected a writable buffer"):
        gpu.kernel("add")(array, array, again, 4)
    del array, whole, part, again
    gc.collect()
    assert gpu.memory == before


def test_a_closed_device_leaves_no_constants_to_the_next() -> None:
    array = host_empty((16,), np.float32).numpy()
    for value in range(20):
        with pyturbo.Device("cuda", threads=1) as device:
            array[:] = value
            assert device.constant(array).read()[0] == value


def test_results_of_operations_can_be_changed(gpu: pyturbo.Device) -> None:
    x = gpu.empty((2, 8))
    x.write(np.arange(16).reshape(2, 8))
    y = ops.add(x, np.ones((2, 8), np.float32), device=gpu)
    y += 1
    assert y.tolist() == (np.arange(16).reshape(2, 8) + 2).tolist()


def test_a_program_reads_weights_on_the_host(gpu: pyturbo.Device) -> None:
    weights, y = np.arange(8, dtype=np.float32), gpu.empty(8)
    with Recorder(gpu, {}) as recorder:
        x = Tensor(gpu.empty(8), (8,), np.float32)
        with recorder.into(Tensor(y, (8,), np.float32)):
            ops.add(x, weights)  # type: ignore[arg-type]
    recorder.program.run()
    assert y.read().tolist() == weights.tolist()


def test_memory_that_the_device_does_not_have(gpu: pyturbo.Device) -> None:
    memory = gpu.memory
    assert memory is not None
    assert 0 < memory.free <= memory.total
    with pytest.raises(AllocationError, match="cannot allocate a buffer"):
        gpu.empty(memory.free + 1, "uint8")
    assert pyturbo.Device("cpu", threads=1).memory is None


def test_a_model_or_a_conversation_that_does_not_fit(tmp_path: Path) -> None:
    path = write_mlx(MODELS["qwen3_5_moe"], tmp_path / "model")
    with pyturbo.Device("cuda", threads=1) as device:
        assert device.memory is not None
        filler = device.empty(device.memory.free - (1 << 16), "uint8")
        with pytest.raises(AllocationError, match=r"device: expected at least .* of free memory for weights"):
            pyturbo.load(path, device)
        del filler
        with pyturbo.load(path, device) as model:
            session = model.session(40)
            logits = session.prefill([1, 2, 3]).copy()
            filler = device.empty(device.memory.free - session.nbytes // 2, "uint8")
            with pytest.raises(AllocationError, match="context: expected a conversation .* device"):
                model.session(40)
            del filler
            assert model.session(40).prefill([1, 2, 3]).tobytes() == logits.tobytes()


def test_windows_of_another_size(tmp_path: Path) -> None:
    """Rows of a ring are moved one by one where a window has gone round, to grow or to load a session."""
    path = write_hf(MODELS["gpt_oss"], tmp_path / "model")
    ids = MODELS["gpt_oss"].tokens()[:60]
    with pyturbo.load(path, "cuda") as model:
        whole = model.session(90)
        whole.prefill(ids)
        want = whole.step(5).copy()
        small = model.session(60)
        small.prefill(ids)
        small.save(tmp_path / "chat.session")
        for session in (small, model.load_session(tmp_path / "chat.session", 90)):
            if session is small:
                session.grow(90)
            assert session.tokens.tolist() == ids.tolist()
            assert session.step(5).tobytes() == want.tobytes()


def test_a_closed_model_gives_back_its_memory(tmp_path: Path) -> None:
    with pyturbo.Device("cuda", threads=1) as device:
        before = device.memory
        with pyturbo.load(write_hf(MODELS["qwen3_5_moe"], tmp_path / "model"), device) as model:
            model.session(16).prefill([1, 2, 3])
            assert device.memory != before
        del model
        gc.collect()
        assert device.memory == before


def test_the_host_keeps_what_a_store_touches(gpu: pyturbo.Device, tmp_path: Path) -> None:
    (tmp_path / "0.bin").write_bytes(bytes(4096))
    files, memory = [(tmp_path / "0.bin", 1)], gpu.empty(4096, "uint8")
    slab, tables = gpu.shared(4096, "uint8"), gpu.shared((1, 5, 4), "int32")
    for given in ((memory, tables), (slab, gpu.empty((1, 5, 4), "int32"))):
        with pytest.raises(ArgumentError, match=r"expected memory of Device\.shared"):
            ExpertStore(files, 4096, *given)
    with pytest.raises(ArgumentError, match=r"records: expected memory of Device\.shared"):
        ExpertStore.mapped([memory], 4096, tables)


def test_the_state_is_shown_as_copies(tmp_path: Path) -> None:
    with pyturbo.load(write_hf(MODELS["qwen2"], tmp_path / "model"), "cuda") as model:
        session = model.session(16)
        logits = session.prefill([1, 2, 3])
        assert session.state["tokens"][:3].tolist() == [1, 2, 3]
        assert session.state["logits"][0].tobytes() == logits.tobytes()
        assert not any(array.flags.writeable for array in session.state.values())


def test_a_limit_of_memory_is_one_of_the_host(tmp_path: Path) -> None:
    """Slots for experts are in memory of the host; conversations and programs are not."""
    pyturbo.pack(write_mlx(MODELS["qwen3_5_moe"], tmp_path / "source"), tmp_path / "packed")
    with pyturbo.load(tmp_path / "packed", "cuda", policy=Policy(mode="stream")) as model:
        budget = model.runner.budget
        assert budget is not None
        before = budget._announced()
        session = model.session(500)
        session.prefill([1, 2, 3])
        assert budget._announced() == before
        assert model.runner.experts is not None
        assert model.runner.experts.nbytes > 0


def test_experts_of_a_packed_model_are_copied(tmp_path: Path) -> None:
    """The host is not asked for experts: they are on the device, as all other weights are."""
    pyturbo.pack(write_mlx(MODELS["qwen3_5_moe"], tmp_path / "source"), tmp_path / "packed")
    with pyturbo.load(tmp_path / "packed", "cuda", policy=Policy(mode="mapped")) as model:
        assert not any(isinstance(watch, MappedExperts) for watch in model.runner.origin._watches)
        with model.runner.program(16, 1, "last") as (_, graph):
            assert graph.program.loops() == []
        assert model.session(16).prefill([1, 2, 3]).shape == (model.network.vocab,)


def test_logits_are_seen_after_each_chunk(tmp_path: Path) -> None:
    with pyturbo.load(write_hf(MODELS["qwen2"], tmp_path / "model"), "cuda") as model:
        session = model.session(16)
        seen = [session.logits.copy() for _ in session.read([1, 2, 3])]
        assert seen[-1].any()
        assert seen[-1].tobytes() == session.logits.tobytes()
