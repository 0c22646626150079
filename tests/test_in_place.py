"""Operations that work in place change the operand that they are given, at once and when they are recorded.

Does not catch: wrong values, which tests/kernels compares with float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo.errors import ArgumentError
from pyturbo.recording import Recorder, Tensor

Arrays = tuple[Any, ...]


class Case(NamedTuple):
    """An operation with the operands that it changes, and a call that returns these."""

    changed: dict[str, tuple[tuple[int, ...], Any]]  # shape and dtype by the name in messages
    run: Callable[..., Arrays]  # of the changed operands and device=


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def delta_net(method: str) -> Callable[..., Arrays]:
    q, k, v = normal(3, 2, 64), normal(3, 2, 64) / 8, normal(3, 4, 16)
    g, beta = (np.full((3, 4), 0.5, np.float32) for _ in range(2))
    return lambda state, **device: ops.delta_net(q, k, v, g, beta, state, method, **device)[1:]


def turbo_append(packed: Any, scales: Any, *others: Any, **device: Any) -> Arrays:
    rows = ops.TurboRows(packed, scales, 4, 64, *others)
    rows = ops.turbo_append(rows, normal(3, 2, 64), 4, **device)
    return rows.packed, rows.scales, rows.means, rows.recent, rows.recent_keys


def delta_step(state: Any, **device: Any) -> Arrays:
    heads = normal(1, 2 * 2 * 64 + 4 * 16), normal(1, 4, 16), normal(1, 4), normal(1, 4), normal(4), normal(4)
    return ops.delta_step(*heads, normal(16), state, 1e-6, **device)[1:]


def rope_append(*caches: Any, **device: Any) -> Arrays:
    q, k, v, inv_freq = normal(3, 4, 64), normal(3, 2, 64), normal(3, 2, 64), np.ones(8, np.float32)
    return ops.rope_append(q, k, v, *caches, 5, inv_freq, **device)[1:]


def affine_conv_project(history: Any, **device: Any) -> Arrays:
    weight = (*ops.affine_quantize(normal(20, 64).astype(np.float16), 4, 32), 4, 32)
    taps = normal(20, 4).astype(np.float16)
    return ops.affine_conv_project(normal(1, 64), [weight], history, taps, **device)[1:]


CASES = {
    "kv_append": Case(
        {"cache": ((9, 2, 64), np.float16)},
        lambda cache, **device: (ops.kv_append(cache, normal(3, 2, 64), 5, **device),),
    ),
    "mla_append": Case(
        {"latents": ((9, 32), np.float16), "rope_keys": ((9, 8), np.float16)},
        lambda *cache, **device: ops.mla_append(cache, normal(3, 32), normal(3, 8), 5, **device),
    ),
    "turbo_append": Case(
        {
            "rows.packed": ((2, 9, 8), np.uint32),
            "rows.scales": ((2, 9), np.float16),
            "rows.means": ((2, 9), np.float16),
            "rows.recent": ((2, 5, 64), np.float16),
            "rows.recent_keys": ((5,), np.uint32),
        },
        turbo_append,
    ),
    "conv1d": Case(
        {"history": ((3, 20), np.float32)},
        lambda history, **device: ops.conv1d(normal(5, 20), history, normal(20, 4), **device)[1:],
    ),
    "delta_net recurrent": Case({"state": ((4, 16, 64), np.float32)}, delta_net("recurrent")),
    "delta_net chunkwise": Case({"state": ((4, 16, 64), np.float32)}, delta_net("chunkwise")),
    "delta_step": Case({"state": ((4, 16, 64), np.float32)}, delta_step),
    "rope_append": Case(
        {"k_cache": ((9, 2, 64), np.float16), "v_cache": ((9, 2, 64), np.float16)}, rope_append
    ),
    "affine_conv_project": Case({"history": ((3, 20), np.float32)}, affine_conv_project),
    "find_slots": Case(
        {"counts": ((4,), np.uint32), "slots": ((4,), np.int32), "missing": ((1,), np.uint32)},
        lambda *changed, **device: ops.find_slots(
            np.array([[0, 3], [1, 3]], np.int32), np.array([2, -1, -1, 0], np.int32), *changed, **device
        ),
    ),
    "bucket_accumulate": Case(
        {"out": ((4, 20), np.float32)},
        lambda out, **device: (
            ops.bucket_accumulate(
                out, normal(3, 20), np.array([0, 3, 0], np.int32), np.ones(3, np.float32), **device
            ),
        ),
    ),
}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def zeros(case: Case) -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape, dtype in case.changed.values()]


def expected(case: Case, device: pyturbo.Device) -> list[bytes]:
    arrays = zeros(case)
    case.run(*arrays, device=device)
    assert all(array.any() for array in arrays)
    return [array.tobytes() for array in arrays]


@each_case
def test_the_array_is_changed_and_returned(device: pyturbo.Device, case: Case) -> None:
    arrays = zeros(case)
    returned = case.run(*arrays, device=device)
    assert all(array.any() for array in arrays)
    assert all(one is other for one, other in zip(returned, arrays, strict=True))


@each_case
def test_the_memory_of_a_buffer_is_changed(device: pyturbo.Device, case: Case) -> None:
    buffers = [device.empty(shape, dtype) for shape, dtype in case.changed.values()]
    returned = case.run(*buffers, device=device)
    assert [buffer.numpy().tobytes() for buffer in buffers] == expected(case, device)
    for array, buffer in zip(returned, buffers, strict=True):
        assert array.tobytes() == buffer.numpy().tobytes()
        assert np.shares_memory(array, buffer.numpy()) == buffer.on_host


@each_case
def test_an_array_that_kernels_cannot_use_is_changed_too(device: pyturbo.Device, case: Case) -> None:
    """Every other column of a larger array, whose other columns stay as they are."""
    wide = [np.zeros((*shape[:-1], 2 * shape[-1]), dtype) for shape, dtype in case.changed.values()]
    parts = [array[..., ::2] for array in wide]
    returned = case.run(*parts, device=device)
    assert [array[..., ::2].tobytes() for array in wide] == expected(case, device)
    assert not any(array[..., 1::2].any() for array in wide)
    assert all(one is other for one, other in zip(returned, parts, strict=True))


@each_case
@pytest.mark.parametrize("wrap", [True, False], ids=["Tensor", "Buffer"])
def test_a_replay_changes_what_was_given(device: pyturbo.Device, case: Case, wrap: bool) -> None:
    buffers = [device.empty(shape, dtype) for shape, dtype in case.changed.values()]
    given = [Tensor(buffer, buffer.shape, buffer.dtype) if wrap else buffer for buffer in buffers]
    with Recorder(device, {}) as recorder:
        returned = case.run(*given, device=device)
    assert not any(buffer.numpy().any() for buffer in buffers)
    assert [one.memory for one in returned] == buffers
    recorder.program.run()
    assert [buffer.numpy().tobytes() for buffer in buffers] == expected(case, device)


@each_case
def test_what_cannot_be_changed_is_refused(device: pyturbo.Device, case: Case) -> None:
    name = next(iter(case.changed))
    arrays = zeros(case)
    arrays[0].flags.writeable = False
    message = f"{name}: expected an array or a Buffer that can be changed in place, got a read-only ndarray"
    with pytest.raises(ArgumentError, match=message):
        case.run(*arrays, device=device)
    with pytest.raises(ArgumentError, match=f"{name}: .* changed in place, got list"):
        case.run(arrays[0].tolist(), *arrays[1:], device=device)
    arrays = zeros(case)
    with Recorder(device, {}) as recorder, pytest.raises(ArgumentError, match=f"{name}: expected a Tensor"):
        case.run(*arrays, device=device)
    assert len(recorder.program) == 0
    assert not any(array.any() for array in arrays)


def norms(x: Any, z: Any, device: pyturbo.Device) -> Arrays:
    head = ops.head_rms_norm(x, np.ones(20, np.float32), 1e-6, device=device)
    return head, *ops.qk_norm(x, z, device=device)


def test_norms_leave_their_inputs_alone(device: pyturbo.Device) -> None:
    arrays = normal(3, 2, 20), normal(3, 2, 21)[..., :20].copy()
    before = [array.tobytes() for array in arrays]
    want = norms(*arrays, device)
    buffers = [device.empty(array.shape) for array in arrays]
    for buffer, array in zip(buffers, arrays):
        buffer.write(array)
    with Recorder(device, {}) as recorder:
        got = norms(*(Tensor(buffer, buffer.shape, buffer.dtype) for buffer in buffers), device)
    recorder.program.run()
    assert [array.tobytes() for array in arrays] == before
    assert [buffer.numpy().tobytes() for buffer in buffers] == before
    for one, other in zip(got, want):
        np.testing.assert_array_equal(one.memory.numpy()[: one.size], other.ravel())


def test_a_recorder_refuses_another_device(device: pyturbo.Device) -> None:
    x = np.ones(4, np.float32)
    others: list[Any] = [pyturbo.Device("cpu", threads=1), "cpu" if device.name != "cpu" else "cpu:reference"]
    with Recorder(device, {}) as recorder:
        for own in (None, device, device.name, recorder):
            ops.add(x, x, device=own)  # type: ignore[arg-type]
        for other in (*others, Recorder(device, {})):
            with pytest.raises(
                ArgumentError, match="device: expected Device.* of the active Recorder or None"
            ):
                ops.add(x, x, device=other)
    assert len(recorder.program) == 4
    with pytest.raises(ArgumentError, match="device: expected an active Recorder"):
        ops.add(x, x, device=recorder)  # type: ignore[arg-type]


def test_what_is_no_device_is_refused() -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(ArgumentError, match="device: expected a name, a Device or None, got 0"):
        ops.add(x, x, device=0)  # type: ignore[arg-type]


def test_a_tensor_outside_of_its_recorder_is_refused(device: pyturbo.Device) -> None:
    x = np.ones(4, np.float32)
    with Recorder(device, {}):
        y = ops.add(x, x)
    with pytest.raises(
        ArgumentError, match="add: a: expected an array, got a Tensor outside of its Recorder"
    ):
        ops.add(y, y, device=device)
