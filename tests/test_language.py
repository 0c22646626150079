"""The Metal Shading Language as shaders use it, run on every device and under the checker.

What this cannot catch: a construct that Apple's compiler reads differently.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pyturbo

DEVICES = [(name, False) for name in pyturbo.devices()] + [("cpu:reference", True)]


@pytest.fixture(params=DEVICES, ids=[f"{name}{'+check' if check else ''}" for name, check in DEVICES])
def gpu(request: pytest.FixtureRequest) -> pyturbo.Device:
    name, check = request.param
    return pyturbo.Device(name, check=check, threads=2)


def test_positions(gpu: pyturbo.Device) -> None:
    out = np.zeros((2 * 3 * 2, 4 * 3 * 5, 20), np.uint32)
    gpu.kernel("positions")(out.reshape(-1))
    for group in range(12):
        gx, gy, gz = group % 2, group // 2 % 3, group // 6
        for index in range(60):
            x, y, z = index % 4, index // 4 % 3, index // 12
            want = [gx * 4 + x, gy * 3 + y, gz * 5 + z, x, y, z, gx, gy, gz, 4, 3, 5, 2, 3, 2]
            want += [8 * 10000 + 9 * 100 + 10, index % 32, index // 32, 32, 2]
            assert out[group, index].tolist() == want


def test_struct_argument(gpu: pyturbo.Device) -> None:
    source = np.arange(45, dtype=np.float32)
    out = np.zeros(45, np.float32)
    params = np.zeros((), np.dtype([("scale", "f4"), ("count", "i4"), ("offset", "f4", 2)]))
    params["scale"], params["count"], params["offset"] = 3, 45, (100, 7)
    gpu.kernel("struct_argument")(params, out, source)
    np.testing.assert_array_equal(out, source * 3 + 7)


def test_threadgroup_argument(gpu: pyturbo.Device) -> None:
    source = np.arange(5 * 64, dtype=np.float32)
    out = np.zeros(5, np.float32)
    gpu.kernel("threadgroup_argument")(source, out, 5)
    np.testing.assert_array_equal(out, source.reshape(5, 64).sum(1))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("transpose_f32_8", np.float32),
        ("transpose_f16_4", np.float16),
        ("transpose_u32_2", np.uint32),
        ("transpose_i32_3", np.int32),
    ],
)
def test_templates_and_tiles(gpu: pyturbo.Device, name: str, dtype: type) -> None:
    source = np.arange(13 * 21).reshape(13, 21).astype(dtype)
    out = np.zeros((21, 13), dtype)
    gpu.kernel(name)(source, out, 13, 21)
    np.testing.assert_array_equal(out, source.T)


def test_function_constants(gpu: pyturbo.Device) -> None:
    source, extra = np.arange(9, dtype=np.float32), np.full(9, 1000, np.float32)
    plain = source * 0.5 + np.array([1, 2, 4, 8], np.float32)[np.arange(9) % 4]
    out = np.zeros(9, np.float32)
    gpu.kernel("specialised", {"doubled": False})(source, out, 9, None)
    np.testing.assert_array_equal(out, plain)
    gpu.kernel("specialised", {"doubled": True, "bias_count": 3})(source, out, 9, extra)
    np.testing.assert_array_equal(out, 2 * plain + 1000 + 3)


def test_atomics(gpu: pyturbo.Device) -> None:
    source = np.random.default_rng(0).integers(0, 1000, (6, 64)).astype(np.uint32)
    histogram, largest, total = np.zeros(8, np.uint32), np.zeros(1, np.int32), np.zeros(1, np.float32)
    gpu.kernel("atomics")(source, histogram, largest, total, 6)
    np.testing.assert_array_equal(histogram, np.bincount(source.reshape(-1) % 8, minlength=8))
    assert largest[0] == source.max()
    assert total[0] == source.sum()


def test_simd_functions(gpu: pyturbo.Device) -> None:
    x = np.random.default_rng(1).integers(-50, 50, 32).astype(np.float32)
    out = np.zeros((32, 16), np.float32)
    gpu.kernel("simd_functions")(x, out)
    lanes = np.arange(32)
    ballot = sum(1 << lane for lane in lanes[:16] if x[lane] > 0)
    assert (out[:, 0] == x.sum()).all()
    assert (out[:, 1] == x.max()).all()
    assert (out[:, 2] == x.min()).all()
    assert (out[:, 3] == x[5]).all()
    np.testing.assert_array_equal(out[:, 4], x[::-1])
    np.testing.assert_array_equal(out[:, 5], x[lanes ^ 4])
    np.testing.assert_array_equal(out[:29, 6], x[3:])
    assert (out[:, 7] == ballot).all()
    assert (out[:, 8] == 2).all()
    np.testing.assert_array_equal(out[:, 9], np.concatenate([[0], np.cumsum(x)[:-1]]))
    assert (out[:, 10] == x.sum()).all()
    assert (out[:, 11] == 32).all()
    if gpu.name != "cuda":  # where all lanes must reach a simdgroup function
        np.testing.assert_array_equal(out[:, 12], np.where(lanes < 20, 20, 0))
        np.testing.assert_array_equal(out[:, 13], np.where(lanes < 20, 0, 12))
        np.testing.assert_array_equal(out[:, 14], [sum(31 - i for i in range(lane)) for lane in lanes])
    np.testing.assert_array_equal(out[2:, 15], x[:-2])


@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)], ids=str
)
def test_matrix_multiply(gpu: pyturbo.Device, name: str, dtype: type) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 8, (8, 8)).astype(dtype) for _ in range(2))
    c = rng.integers(-8, 8, (8, 12)).astype(np.float32)
    d = np.full((8, 12), 77, np.float32)
    gpu.kernel(f"matrix_multiply_{name}")(a, b, c, d)
    want = np.full((8, 12), 77, np.float32)
    want[:, 2:10] = a.astype(np.float32) @ b.astype(np.float32).T + c[:, 2:10]
    np.testing.assert_array_equal(d, want)


def test_element_types(gpu: pyturbo.Device) -> None:
    h = np.array([1, 2, 3, 4], np.float16)
    b = np.array([0.5, -2], ml_dtypes.bfloat16)
    p = np.array([10, 20, 30], np.float32)
    out = np.zeros(8, np.float32)
    gpu.kernel("element_types")(h, b, p, out)
    tenth = np.float16(0.1)
    want = [4.5, 1, 2 * 10 + 1 * 20, -30, float(tenth * np.float16(3)) + 0.5, np.exp(1), 0.5, 1]
    np.testing.assert_allclose(out, want, rtol=2e-7)
