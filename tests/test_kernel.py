"""Launching kernels from Python: what works, and a clear exception for everything that cannot."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from pyturbo.errors import ArgumentError, StateError


@pytest.fixture
def tile(device: pyturbo.Device) -> pyturbo.Kernel:
    return device.kernel("transpose_f32_8")


SOURCE = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_arrays_and_buffers_mix(device: pyturbo.Device, tile: pyturbo.Kernel) -> None:
    out = device.empty((3, 2))
    tile(SOURCE, out, 2, 3)
    np.testing.assert_array_equal(out.numpy(), SOURCE.T)


def test_explicit_geometry_may_leave_threadgroups_out(device: pyturbo.Device) -> None:
    out = np.zeros(32, np.uint32)
    device.kernel("groups_race")(out, groups=1, threads=(32, 1, 1))
    assert out.tolist() == list(range(32))


@pytest.mark.parametrize(("groups", "threads"), [(3, 32), ((1, 2), 32), (2, 31), (1, (16, 2))])
def test_explicit_geometry_beyond_the_contract(
    device: pyturbo.Device, groups: int | tuple[int, int], threads: int | tuple[int, int]
) -> None:
    """Kernels take their rows from the numbers of threadgroups: further ones would write past the last."""
    expected = r"groups_race: expected at most \(2, 1, 1\) threadgroups of \(32, 1, 1\) threads, got"
    with pytest.raises(ArgumentError, match=expected):
        device.kernel("groups_race")(np.zeros(32, np.uint32), groups=groups, threads=threads)


def test_zero_groups_do_nothing(device: pyturbo.Device, tile: pyturbo.Kernel) -> None:
    tile(np.zeros((0, 3), np.float32), np.zeros((3, 0), np.float32), 0, 3)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((SOURCE,), r"expected 4 arguments \(in, out, rows, columns\), got 1"),
        ((SOURCE, SOURCE.copy(), 2, 3, 4), "expected 4 arguments .* got 5"),
        ((SOURCE.astype(np.float64), SOURCE.copy(), 2, 3), "in: .*expected one of float32.*float64"),
        ((SOURCE.astype(np.float16), SOURCE.copy(), 2, 3), "in: expected float32 elements, got float16"),
        ((SOURCE, SOURCE.copy(), 2, "3"), "columns: expected int32, got '3'"),
        ((SOURCE, SOURCE.copy(), 2, 2**40), "columns: expected int32"),
        ((SOURCE, SOURCE.copy(), 2, 2.5), "columns: expected int32, got 2.5"),
        ((SOURCE, SOURCE.copy(), 4, 3), "in: expected at least 12 elements of 4 bytes, got 6"),
        ((SOURCE, np.zeros(5, np.float32), 2, 3), "out: expected at least 6 elements of 4 bytes, got 5"),
        ((SOURCE.T, SOURCE.copy(), 2, 3), "in: .*expected row-major contiguous"),
        ((None, SOURCE.copy(), 2, 3), "in: expected a buffer, got None"),
        ((SOURCE, SOURCE.copy(), 2, None), "columns: expected int32, got None"),
        ((3, SOURCE.copy(), 2, 3), "in: .*expected an array"),
        ((SOURCE, bytes(24), 2, 3), "out: expected float32 elements, got uint8"),
    ],
)
def test_wrong_arguments(tile: pyturbo.Kernel, args: tuple[object, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^transpose_f32_8: {message}"):
        tile(*args)


def test_read_only_output(tile: pyturbo.Kernel) -> None:
    out = np.zeros(6, np.float32)
    out.setflags(write=False)
    with pytest.raises(ArgumentError, match="out: expected a writable buffer"):
        tile(SOURCE, out, 2, 3)


def test_misaligned_memory(device: pyturbo.Device, tile: pyturbo.Kernel) -> None:
    raw = np.zeros(64, np.uint8)
    with pytest.raises(ArgumentError, match="in: .*aligned to 16 bytes, got an address 4 bytes past"):
        tile(raw[4:28].view(np.float32), SOURCE.copy(), 2, 3)
    halves = device.buffer(np.zeros(64, np.float16)).view(8, offset=6)
    with pytest.raises(
        ArgumentError, match="h: expected memory aligned to 8 bytes, got an address 6 bytes past"
    ):
        device.kernel("element_types")(halves, np.zeros(2, ml_dtypes.bfloat16), SOURCE, SOURCE)


def test_geometry_limits(device: pyturbo.Device) -> None:
    kernel, out = device.kernel("groups_race"), np.zeros(32, np.uint32)
    for threads in ((1025,), (33, 32), (0,), (2**31, 2, 1)):
        with pytest.raises(ArgumentError, match="expected 1 to 1024 threads in a threadgroup"):
            kernel(out, groups=1, threads=threads)
    with pytest.raises(ArgumentError, match="expected 1 to 64 threads in a threadgroup, got .65, 1, 1."):
        device.kernel("bounded_threads")(out, groups=1, threads=65)
    with pytest.raises(ArgumentError, match="bounded_threads: expected groups and threads"):
        device.kernel("bounded_threads")(out)
    for groups, threads in (((2**31, 1, 1), 32), ((2**31, 2**31, 4), 1)):
        with pytest.raises(ArgumentError, match="expected a grid of fewer than 2\\^32 threads"):
            kernel(out, groups=groups, threads=threads)
    for wrong in (1.5, (1, 1.5), "ab", (1, 1, 1, 1)):
        with pytest.raises(ArgumentError, match="groups: expected one to three counts"):
            kernel(out, groups=wrong, threads=32)
    with pytest.raises(ArgumentError, match="groups: expected counts below 2\\^32, got -1"):
        kernel(out, groups=-1, threads=32)
    with pytest.raises(ArgumentError, match="threads: expected one to three counts, got None"):
        kernel(out, groups=1)


def test_contract_is_enforced(device: pyturbo.Device) -> None:
    params = np.zeros((), np.dtype([("scale", "f4"), ("count", "i4"), ("offset", "f4", 2)]))
    params["count"] = 5000
    kernel = device.kernel("struct_argument")
    with pytest.raises(ArgumentError, match="struct_argument: requires params.count <= 4096"):
        kernel(params, np.zeros(5000, np.float32), np.zeros(5000, np.float32))
    with pytest.raises(ArgumentError, match="params: expected 16 bytes, got 12"):
        kernel(bytes(12), SOURCE, SOURCE)


def test_function_constants(device: pyturbo.Device) -> None:
    with pytest.raises(ArgumentError, match="expected a value for function constant doubled"):
        device.kernel("specialised")
    with pytest.raises(ArgumentError, match="constants: expected .*doubled.*, got tripled"):
        device.kernel("specialised", {"doubled": True, "tripled": True})
    kernel = device.kernel("specialised", {"doubled": True})
    with pytest.raises(ArgumentError, match="extra: expected a buffer, got none"):
        kernel(SOURCE, SOURCE.copy(), 6, None)


@pytest.mark.parametrize("wrong", ["no", 2, -1, None, [], {}, 0.5, "1", 2**70])
def test_function_constants_of_the_wrong_type(device: pyturbo.Device, wrong: object) -> None:
    with pytest.raises(ArgumentError, match="specialised: doubled: expected bool, got"):
        device.kernel("specialised", {"doubled": wrong})


def test_function_constants_are_a_dict(device: pyturbo.Device) -> None:
    for wrong in ([], ["doubled"], "doubled", 5, [("doubled", True)]):
        with pytest.raises(ArgumentError, match="specialised: constants: expected a dict of values by name"):
            device.kernel("specialised", wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="constants: expected .*, got 3"):
        device.kernel("specialised", {"doubled": True, 3: True})  # type: ignore[dict-item]
    for equal in (np.bool_(True), 1, np.uint8(1)):
        assert device.kernel("specialised", {"doubled": equal}) is device.kernel(
            "specialised", {"doubled": True}
        )
    with pytest.raises(ArgumentError, match="bias_count: expected u?int32, got 3.0"):
        device.kernel("specialised", {"doubled": True, "bias_count": 3.0})


def test_values_of_the_wrong_type(device: pyturbo.Device) -> None:
    x = device.empty(4)
    for wrong in ("1.5", b"1", None, [1.0]):
        with pytest.raises(ArgumentError, match="swiglu_clamped: limit: expected float32, got"):
            device.kernel("swiglu_clamped")(x, x, x, 4, 1.0, wrong)


def test_names_that_are_no_text(device: pyturbo.Device) -> None:
    with pytest.raises(ArgumentError, match="expected the name of a kernel"):
        device.kernel("\ud800")
    with pytest.raises(ArgumentError, match="device: expected one of"):
        pyturbo.Device("\ud800")


def test_kernels_are_made_once(device: pyturbo.Device) -> None:
    assert device.kernel("empty") is device.kernel("empty")
    one = device.kernel("specialised", {"doubled": True, "bias_count": 3})
    assert device.kernel("specialised", {"bias_count": 3, "doubled": True}) is one
    assert device.kernel("specialised", {"doubled": True, "bias_count": 4}) is not one


def test_unknown_kernel(device: pyturbo.Device) -> None:
    with pytest.raises(
        ArgumentError, match="got transpose_f64_8; there are transpose_f16_4, transpose_f32_8"
    ):
        device.kernel("transpose_f64_8")


def test_closed_device() -> None:
    with pyturbo.Device("cpu") as device:
        kernel, out = device.kernel("transpose_f32_8"), device.empty((3, 2))
    assert device.closed
    with pytest.raises(StateError, match="cpu: the device is closed"):
        kernel(SOURCE, out, 2, 3)
    for call in (
        lambda: device.kernel("empty"),
        lambda: device.empty(3),
        lambda: device.buffer(SOURCE),
        lambda: device.map(__file__),
    ):
        with pytest.raises(StateError, match="closed"):
            call()
    assert out.numpy().shape == (3, 2)


def test_the_longest_argument(device: pyturbo.Device) -> None:
    assert device.longest_argument >= 1 << 30
    with pyturbo.Device(device.name, threads=1, check=False) as other:
        assert other.longest_argument == device.longest_argument
    with pytest.raises(StateError, match=f"{device.name}: the device is closed"):
        other.longest_argument  # noqa: B018


def test_devices() -> None:
    assert pyturbo.devices()[:2] == ["cpu", "cpu:reference"]
    with pytest.raises(ArgumentError, match="device: expected one of cpu, cpu:reference.*, got 'gpu'"):
        pyturbo.Device("gpu")
    for threads in ("many", 2.7, -1):
        with pytest.raises(ArgumentError, match="threads: expected an integer from 0 on"):
            pyturbo.Device("cpu", threads=threads)  # type: ignore[arg-type]


def test_handles_are_not_made_by_hand() -> None:
    for handle in (pyturbo.Kernel, pyturbo.Buffer):
        for make in (handle, lambda handle=handle: handle.__new__(handle)):
            with pytest.raises(TypeError, match="comes from Device"):
                make()

    class Careless(pyturbo.Device):
        def __init__(self) -> None:
            pass

    assert Careless().kernel("empty").name == "empty"


def test_objects_that_are_being_made_refuse_to_work() -> None:
    """A conversion of an argument can find the object that waits for it, through the garbage collector."""

    class Device(pyturbo.Device):
        pass

    class Program(pyturbo.Program):
        pass

    class Sampler(pyturbo.Sampler):
        pass

    class Finder:
        def __init__(self, kind: type, calls: list[Callable[[Any], object]]) -> None:
            self.kind, self.calls, self.refused = kind, calls, 0

        def __index__(self) -> int:
            (found,) = [thing for thing in gc.get_objects() if type(thing) is self.kind]
            for call in self.calls:
                with pytest.raises(StateError, match="not (open|made) yet"):
                    call(found)
                self.refused += 1
            return 1

        def __iter__(self) -> Iterator[str]:
            self.__index__()
            return iter(())

    logits = np.zeros(3, np.float32)
    for kind, make, calls in (
        (Device, lambda finder: Device(threads=finder), [repr, Device.close, lambda d: d.empty(3)]),
        (Device, lambda finder: Device(threads=finder), [lambda d: d.kernel("add"), pyturbo.Program]),
        (Program, lambda finder: Program(pyturbo.Device(), finder), [len, repr, lambda p: p.listing()]),
        (Sampler, lambda finder: Sampler(seed=finder), [repr, lambda s: s.sample(logits)]),
    ):
        finder = Finder(kind, calls)  # type: ignore[arg-type]
        make(finder)  # type: ignore[no-untyped-call]
        assert finder.refused == len(calls)


def test_launches_run_beside_each_other_without_the_gil(device: pyturbo.Device) -> None:
    """Several Python threads share a device; each gets its own result."""
    failures: list[int] = []

    def work(seed: int) -> None:
        source = np.random.default_rng(seed).random((33, 17), np.float32)
        for _ in range(20):
            out = np.zeros((17, 33), np.float32)
            device.kernel("transpose_f32_8")(source, out, 33, 17)
            if not (out == source.T).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_manifest_and_table_agree(device: pyturbo.Device) -> None:
    for name, kernel in pyturbo.kernels().items():
        assert kernel["name"] == name
        assert device.kernel(name, {c["name"]: 0 for c in kernel["constants"]}).name == name


def test_contract_arithmetic_does_not_wrap(device: pyturbo.Device) -> None:
    """(matrices - 1) * stride is 0 modulo 2^64 here; the launch must still be refused."""
    x, ids, y = np.zeros((1, 64), np.float32), np.zeros((1, 1), np.int32), np.zeros(8, np.float32)
    packed, scales = np.zeros(64, np.uint32), np.zeros(8, np.float32)
    kernel = device.kernel("affine_experts_matvec_b4_f32", {"by_slot": False})
    with pytest.raises(ArgumentError, match="packed: expected at least 9223372036854775807 elements"):
        kernel(x, ids, packed, scales, scales, None, y, 1, 1, 1, 64, 8, 64, *[2**16 + 1] * 2, *[2**48] * 3)


def test_vector_values(device: pyturbo.Device) -> None:
    out = np.zeros(12, np.float32)
    kernel = device.kernel("vector_values")
    kernel(out, (1, 2, 3), np.array([4, 5, 6, 7], np.uint32), [0.5, -2], 255)
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 0.5, -2, 255, 0, 0]
    for args, message in (
        ((7, (1, 2, 3, 4), (1, 2), 0), "a: expected 3 values of int32, got 7"),
        (((1, 2), (1, 2, 3, 4), (1, 2), 0), "a: expected 3 values of int32"),
        (((1, 2, 3), (1, 2, 3, -4), (1, 2), 0), "b: expected 4 values of uint32"),
        (((1, 2, 3), (1, 2, 3, 4), (1, "x"), 0), "c: expected 2 values of float16"),
        (((1, 2, 3), (1, 2, 3, 4), (1, 2), 256), "d: expected uint8, got 256"),
        (((1, 2, 3), (1, 2, 3, 4), (1, 2), 3.7), "d: expected uint8, got 3.7"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernel(out, *args)
