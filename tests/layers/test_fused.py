"""Joined layers give what their single operations give, in as few launches as their formats allow.

The rows here are neither short nor few and long, so that both have the same teams, and the bits are the same.

Does not catch: mistakes of a kernel in sizes that no case here has; tests/kernels has more.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from formats.test_linear import affine, dense, normal, scaled_fp
from formats.test_linear import fp as small_floats
from kernels.random_blocks import random_weight
from pyturbo import ops
from pyturbo.formats import Affine, Gguf, Linear
from pyturbo.layers.fused import Joined
from pyturbo.layers.stream import Known, Norm, Sum
from pyturbo.recording import Recorder, Tensor

IN = 256
OUTS = (24, 5, 9, 8, 13)
BF16 = ml_dtypes.bfloat16


def halves(out: int, bias: Any = None, bits: int = 4) -> Affine:
    return Affine(*ops.affine_quantize(normal(out, IN).astype(BF16), bits, 32), bits, 32, bias=bias)


def blocks(out: int, kind: str = "Q4_K", bias: Any = None) -> Gguf:
    count = IN // ops.GGUF_TYPES[kind].values
    return Gguf(*random_weight(np.random.default_rng(out), (out, count), kind), bias=bias)


def bias_of(out: int) -> Any:
    return normal(out, 1)[:, 0].astype(BF16)


def lists(count: int) -> dict[str, tuple[list[Linear], list[str]]]:
    """Layers, and the kernels that apply them to one token."""
    outs = OUTS[:count]
    return {
        "affine": ([halves(out) for out in outs], ["affine_project_b4_bf16"]),
        "biased affine": ([halves(out, bias_of(out)) for out in outs], ["affine_project_b4_bf16"]),
        "Q4_K": ([blocks(out) for out in outs], ["gguf_project_q4_k"]),
        "biased Q8_0": ([blocks(out, "Q8_0", bias_of(out)) for out in outs], ["gguf_project_q8_0"]),
        "mxfp4": ([small_floats(out, IN) for out in outs], ["fp_project_mxfp4"]),
        "Q4_0": ([blocks(out, "Q4_0") for out in outs], ["gguf_matvec_q4_0"] * count),
        "nvfp4 with global scales": ([scaled_fp(out, IN) for out in outs], ["fp_matvec_nvfp4"] * count),
        "affine f32": ([affine(out, IN) for out in outs], ["affine_matvec_b4_f32"] * count),
        "dense": ([dense(out, IN) for out in outs], ["dense_project_bf16"]),
        "biased dense": ([dense(out, IN, bias=bias_of(out)) for out in outs], ["dense_project_bf16"]),
        "dense in odd rows": ([dense(out, IN + 8) for out in outs], ["dense_matvec_bf16"] * count),
    }


CASES = lists(4) | {
    "two types": (
        [blocks(24), blocks(5), blocks(9, "Q6_K"), blocks(8, "Q6_K")],
        ["gguf_project_q4_k", "gguf_project_q6_k"],
    ),
    "one with a bias": (
        [blocks(24), blocks(5, bias=bias_of(5)), blocks(9)],
        ["gguf_project_q4_k", "gguf_project_q4_k"],
    ),
    "five": ([halves(out) for out in OUTS], ["affine_project_b4_bf16", "affine_matvec_b4_bf16"]),
    "one": ([blocks(24)], ["gguf_matvec_q4_k"]),
    "one biased": ([blocks(24, bias=bias_of(24))], ["gguf_project_q4_k"]),
}


def record(device: pyturbo.Device, make: Any, *arrays: np.ndarray) -> tuple[list[np.ndarray], list[str]]:
    """Return what `make` computes of the arrays when it is recorded and replayed, and its kernels."""
    buffers = [device.empty(array.shape, array.dtype) for array in arrays]
    for buffer, array in zip(buffers, arrays):
        buffer.write(array)
    with Recorder(device, {}) as recorder:
        results = make(*(Tensor(buffer, buffer.shape, buffer.dtype) for buffer in buffers))
    recorder.program.run()
    values = [y.memory.numpy()[: y.size].reshape(y.shape) for y in results]
    return values, [launch.kernel for launch in recorder.program.listing()]


@pytest.mark.parametrize("name", CASES)
def test_project(device: pyturbo.Device, name: str) -> None:
    layers, joined = CASES[name]
    width = layers[0].shape[1]
    x = normal(1, width)
    got, kernels = record(device, Joined(*layers).project, x)
    want, apart = record(device, lambda x: [layer.apply(x) for layer in layers], x)
    for y, single in zip(got, want):
        np.testing.assert_array_equal(y, single)
    assert kernels == (joined if device.traits.fused else apart)
    several, kernels = record(device, Joined(*layers).project, normal(3, width))
    assert len(several) == len(layers)
    assert not any("project" in kernel for kernel in kernels)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("make", [halves, blocks, dense], ids=["affine", "Q4_K", "dense"])
def test_conv_project(device: pyturbo.Device, make: Any, biased: bool) -> None:
    shape = (lambda out: (out, IN)) if make is dense else (lambda out: (out,))
    layers = [make(*shape(out), bias=bias_of(out) if biased else None) for out in OUTS[:3]]
    x, history, taps = normal(1, IN), normal(3, OUTS[0]), normal(OUTS[0], 4).astype(BF16)

    def apart(x: Any, history: Any) -> list[Any]:
        mixed, *others = (layer.apply(x) for layer in layers)
        return [ops.conv1d(mixed, history, taps)[0], *others, history]

    joined = Joined(*layers)
    got, kernels = record(device, lambda x, h: [*joined.conv_project(x, h, taps), h], x, history)
    want, single = record(device, apart, x, history)
    for y, expected in zip(got, want):
        np.testing.assert_array_equal(y, expected)
    count = (1 if make is halves else 2) if device.traits.fused else len(single)
    assert len(kernels) == count


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("make", [halves, blocks, dense], ids=["affine", "Q4_K", "dense"])
def test_norm_project(device: pyturbo.Device, make: Any, biased: bool) -> None:
    shape = (lambda out: (out, IN)) if make is dense else (lambda out: (out,))
    layers = [make(*shape(out), bias=bias_of(out) if biased else None) for out in OUTS[:2]]
    norm = Norm(normal(IN, 1)[:, 0].astype(BF16), 1e-5)
    x, residual = normal(1, IN), normal(1, IN)[:, ::-1].copy()

    def apart(x: Any, residual: Any) -> list[Any]:
        h, total = Sum(residual, x).normed(norm)
        return [h, total, *(layer.apply(h) for layer in layers)]

    def together(x: Any, residual: Any) -> list[Any]:
        h, total, parts = Joined(*layers).norm_project(Sum(residual, x), norm)
        return [h, total, *parts]

    got, kernels = record(device, together, x, residual)
    want, single = record(device, apart, x, residual)
    for y, expected in zip(got, want):
        np.testing.assert_array_equal(y, expected)
    count = (1 if make is halves else 2) if device.traits.fused else len(single)
    assert len(kernels) == count
    known, kernels = record(device, lambda x: [*Joined(*layers).norm_project(Known(x), norm)[2]], x)
    assert len(known) == len(layers)
    assert kernels[0].startswith("rms_norm")
