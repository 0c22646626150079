"""Buffers: zero-copy over arrays and files, views that keep their memory alive, and refusals."""

from __future__ import annotations

import ctypes
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from pyturbo._buffer import host_span
from pyturbo.errors import ArgumentError, FileError, FormatError

NUMPY_2 = int(np.__version__.split(".")[0]) >= 2


def test_wraps_an_array_without_copying(device: pyturbo.Device) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    buffer = device.buffer(array)
    assert (buffer.shape, buffer.dtype, buffer.nbytes, buffer.readonly) == ((3, 4), np.float32, 48, False)
    array[1, 2] = 77
    assert buffer.numpy()[1, 2] == 77
    buffer.numpy()[0, 0] = -5
    assert array[0, 0] == -5
    assert device.buffer(buffer) is buffer


@pytest.mark.parametrize(
    "dtype",
    ["f4", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ml_dtypes.bfloat16],
)
def test_element_types(device: pyturbo.Device, dtype: object) -> None:
    array = np.arange(10).reshape(2, 5).astype(dtype)
    view = device.buffer(array).numpy()
    assert view.dtype == array.dtype
    np.testing.assert_array_equal(view, array)
    fresh = device.empty((2, 5), dtype)
    assert fresh.numpy().dtype == array.dtype
    assert not fresh.numpy().any()


def test_arrays_of_bfloats_have_their_values(device: pyturbo.Device) -> None:
    """The buffer protocol would show their bits as integers."""
    buffer = device.shared(2, "bfloat16")
    buffer.write(np.array([1, 2], ml_dtypes.bfloat16))
    assert np.array(buffer, "float32").tolist() == [1, 2]
    assert np.asarray(buffer).dtype == ml_dtypes.bfloat16
    with pytest.raises(BufferError, match="the buffer protocol has no bfloat16"):
        memoryview(buffer)


def test_buffer_protocol(device: pyturbo.Device) -> None:
    buffer = device.shared((2, 3), "int32")
    view = memoryview(buffer)
    assert (view.format, view.shape, view.strides, view.readonly) == ("i", (2, 3), (12, 4), False)
    view[1, 2] = 9
    assert buffer.numpy()[1, 2] == 9
    assert device.buffer(bytearray(32)).dtype == np.uint8
    assert device.buffer(memoryview(np.zeros(4, "l"))).dtype == np.dtype("l")
    assert device.buffer(memoryview(np.zeros(4, np.uint16))).dtype == np.uint16
    assert device.buffer((ctypes.c_float * 4)()).dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "int64", "bool"])
def test_dlpack(device: pyturbo.Device, dtype: str) -> None:
    buffer = device.shared((3, 2), dtype)
    array = np.from_dlpack(buffer)
    array[2, 1] = 1
    assert buffer.numpy()[2, 1] == 1
    assert buffer.__dlpack_device__() == (1, 0)
    assert device.buffer(_OnlyDlpack(buffer)).shape == (3, 2)


class _OnlyDlpack:
    """What other array libraries look like to us."""

    def __init__(self, buffer: pyturbo.Buffer) -> None:
        self._buffer = buffer

    def __dlpack__(self, **options: object) -> object:
        return self._buffer.__dlpack__(**options)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._buffer.__dlpack_device__()


def test_dlpack_of_read_only_memory(device: pyturbo.Device, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(64))
    buffer = device.map(tmp_path / "data")
    with pytest.raises(BufferError, match="DLPack 1.0"):
        buffer.__dlpack__()
    assert not np.from_dlpack(buffer).flags.writeable
    with pytest.raises(BufferError, match="without copying"):
        buffer.__dlpack__(copy=True)


def test_an_unconsumed_capsule_drops_its_buffer(device: pyturbo.Device) -> None:
    array = _Tracked(np.zeros(16, np.float32))
    gone = weakref.ref(array)
    capsule = device.buffer(array).__dlpack__()
    del array
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


class _Tracked(np.ndarray):
    """An array that can be watched by a weak reference."""

    def __new__(cls, array: np.ndarray) -> _Tracked:
        return array.view(cls)


def test_views_keep_their_memory_alive(device: pyturbo.Device) -> None:
    array = _Tracked(np.arange(16, dtype=np.float32))
    gone = weakref.ref(array)
    view = device.buffer(array).view((2, 4), offset=16).numpy()
    del array
    gc.collect()
    assert gone() is not None
    assert view[1, 3] == 11
    del view
    gc.collect()
    assert gone() is None


def test_a_view_outlives_its_file(device: pyturbo.Device, tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    np.arange(1000, dtype=np.float32).tofile(path)
    view = device.map(path, dtype="float32", shape=(10, 20), offset=16).numpy()
    path.unlink()
    gc.collect()
    assert view[9, 19] == 4 + 199


@pytest.mark.parametrize("offset", [0, 16, 3 << 20])
def test_a_file_lies_in_memory_as_huge_pages_need_it(tmp_path: Path, offset: int) -> None:
    """Otherwise the system cannot map those of its cache."""
    huge, path = 2 << 20, tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(3 * huge)
    view = pyturbo.Device("cpu").map(path, offset=offset).numpy()
    assert (view.ctypes.data - offset) % huge == 0


def test_mapping_is_not_a_copy(device: pyturbo.Device, tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(1 << 36)
    buffer = device.map(path, dtype="uint32")
    assert buffer.shape == (1 << 34,)
    assert buffer.readonly
    assert buffer.numpy()[-1] == 0


def test_wrong_mappings(device: pyturbo.Device, tmp_path: Path) -> None:
    path = tmp_path / "small.bin"
    path.write_bytes(bytes(100))
    with pytest.raises(FormatError, match=r"small.bin: expected bytes 0 to 400, got a file of 100 bytes"):
        device.map(path, dtype="float32", shape=100)
    with pytest.raises(FormatError, match="expected bytes 112 to the end, got a file of 100"):
        device.map(path, offset=112)
    with pytest.raises(FormatError, match="expected an offset that is a multiple of 16, got 3"):
        device.map(path, offset=3)
    with pytest.raises(FileError, match="absent.bin: cannot be opened: No such file"):
        device.map(tmp_path / "absent.bin")
    with pytest.raises(FormatError, match="expected whole elements of 8 bytes, got 4 bytes more"):
        device.map(path, dtype="int64")
    with pytest.raises(ArgumentError, match="offset: expected an integer from 0 on, got -16"):
        device.map(path, offset=-16)
    with pytest.raises(ArgumentError, match="path: expected no zero byte"):
        device.map("small.bin\0")
    with pytest.raises(ArgumentError, match="offset: expected an integer below 2\\^63"):
        device.map(path, offset=2**64)
    for wrong in (3.5, "\ud800"):
        with pytest.raises(ArgumentError, match="path: expected the name of a file"):
            device.map(wrong)  # type: ignore[arg-type]
    with pytest.raises(FileError, match="cannot be opened"):
        device.map(b"/no/such/\xff")  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="expected a regular file"):
        device.map(tmp_path / "pipe")
    with pytest.raises(FileError, match="expected a regular file"):
        device.map(tmp_path)
    assert device.map(path, offset=96).shape == (4,)
    (tmp_path / "empty.bin").touch()
    assert device.map(tmp_path / "empty.bin").shape == (0,)


def test_wrong_views(device: pyturbo.Device) -> None:
    buffer = device.empty((4, 4))
    with pytest.raises(ArgumentError, match="view: expected at most 64 bytes, got 64 at offset 4"):
        buffer.view(16, offset=4)
    with pytest.raises(ArgumentError, match="whole elements, got 2"):
        buffer.view(1, offset=2)
    with pytest.raises(ArgumentError, match="not negative"):
        buffer.view((-1, 4))


def test_wrong_sources(device: pyturbo.Device) -> None:
    with pytest.raises(
        ArgumentError, match="expected an array or an object with the buffer protocol, got list"
    ):
        device.buffer([1, 2, 3])
    with pytest.raises(ArgumentError, match="dtype: expected one of float32.* got dtype\\('complex64'\\)"):
        device.buffer(np.zeros(4, np.complex64))
    with pytest.raises(ArgumentError, match="dtype: expected one of"):
        device.empty(4, "float3")


def nested_array(axes: int) -> Any:
    """Return one float32 in a ctypes array of `axes` axes."""
    kind: Any = ctypes.c_float
    for _ in range(axes):
        kind = kind * 1
    return kind()


def test_too_many_axes(device: pyturbo.Device) -> None:
    most = 32  # of a Buffer, and of arrays before NumPy 2
    buffer = device.buffer(nested_array(most))
    assert buffer.shape == memoryview(buffer).shape == (1,) * most
    for axes in (33, 34, 40, 64):
        for source in (nested_array(axes), *([np.zeros((1,) * axes, np.float32)] if NUMPY_2 else [])):
            with pytest.raises(ArgumentError, match=f"expected at most 32 axes, got {axes}"):
                device.buffer(source)
            with pytest.raises(ArgumentError, match=f"add: a: .*at most 32 axes, got {axes}"):
                device.kernel("add")(source, buffer, buffer, 1)
        for make in (device.empty, device.empty(1).view):
            with pytest.raises(ArgumentError, match=f"expected at most 32 axes, got {axes}"):
                make((1,) * axes)
    with pytest.raises(ArgumentError, match="expected memory that can be viewed"):
        device.buffer(nested_array(65))


def test_arrays_that_misreport_themselves(device: pyturbo.Device) -> None:
    """What a subclass says of its type and its owner does not reach memory that is not there."""
    other = device.empty(4)

    class WrongType(np.ndarray):
        @property
        def dtype(self) -> Any:
            return np.dtype(np.int64)

    class WrongOwner(np.ndarray):
        @property
        def base(self) -> Any:
            return other

    with pytest.raises(ArgumentError, match="expected elements of 8 bytes, got 1"):
        device.buffer(np.zeros(16, np.uint8).view(WrongType))
    array: np.ndarray | None = np.full(4, 7, np.float32)
    assert array is not None
    alive = weakref.ref(array)
    buffer = device.buffer(array.view(WrongOwner))
    del array
    gc.collect()
    assert alive() is not None
    assert buffer.numpy().tolist() == [7, 7, 7, 7]


def test_views_of_read_only_arrays_are_read_only(device: pyturbo.Device) -> None:
    array = device.empty(4).numpy()
    array.flags.writeable = False
    assert device.buffer(array).view(2).readonly


def test_too_large(device: pyturbo.Device) -> None:
    with pytest.raises(MemoryError, match="cannot allocate a buffer of 4611686018427387904 bytes"):
        device.empty(1 << 60, "float32")
    for shape in ((1 << 40, 1 << 40), (1 << 64, 0), (1 << 62, 1 << 62, 0)):
        with pytest.raises(ArgumentError, match="shape: expected fewer than 2\\^63 bytes"):
            device.empty(shape)
    for wrong in (3.0, "ab", None, (2, 2.5), -(10**5000)):
        with pytest.raises(ArgumentError, match="shape: expected counts"):
            device.empty(wrong)  # type: ignore[arg-type]
    assert device.empty(np.int64(3)).shape == (3,)


def test_allocations_are_aligned(device: pyturbo.Device) -> None:
    for count in (0, 1, 3, 1000, 1_000_003):
        assert device.empty(count, "uint8").numpy().ctypes.data % 16 == 0


def test_the_span_of_a_strided_array_is_its_own_memory(device: pyturbo.Device) -> None:
    """From the first value to the last, and nothing of the memory around them."""
    memory = device.shared((5, 64), np.uint8)
    memory.write(np.arange(320).reshape(5, 64) % 251)
    part = np.ndarray((5, 3), np.uint16, memory.numpy(), 16, (64, 2))
    span = host_span(part)
    assert span.shape == ((4 * 64 + 6) // 2,)
    assert span.numpy().ctypes.data == part.ctypes.data
    span.numpy()[32] = 7
    assert part[1, 0] == 7
    assert device.constant(span).numpy().ctypes.data == part.ctypes.data
    del memory, part
    assert span.numpy()[32] == 7


def test_a_span_needs_increasing_addresses_and_alignment() -> None:
    rows = np.zeros((6, 32), np.float32)
    for wrong in (rows[::-1], rows[:, ::-1], rows[:0], rows.view(np.uint8)[:, 1:]):
        with pytest.raises(ArgumentError, match="buffer: expected"):
            host_span(wrong)
    assert host_span(rows[::2, ::2]).shape == (4 * 32 + 31,)


def test_copies_follow_the_work_of_the_device(device: pyturbo.Device) -> None:
    a, y = device.shared(5000), device.shared(5000)
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), a, a, y, 5000)
    for value in (1, 2, 3):
        a.write(np.full(5000, value, np.float32))
        program.run(wait=False)
        a.clear()
        assert y.read().tolist() == [2 * value] * 5000
        y.clear()
