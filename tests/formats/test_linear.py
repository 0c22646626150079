"""Every format records the operations of its weights: the bits are those of the same operations run at once.

Does not catch: wrong operations; tests/kernels compares each with float64, tests/models the networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyturbo
from kernels.random_blocks import random_weight
from pyturbo import ops
from pyturbo.errors import ArgumentError
from pyturbo.formats import Affine, Buckets, Dense, Fp, Gguf
from pyturbo.recording import Recorder, Tensor

EXPERTS, OUT, IN, TOKENS = 5, 24, 64, 3
IDS = np.array([[4, 0], [1, 4], [2, 1]], np.int32)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def dense(*shape: int, bias: Any = None) -> Dense:
    return Dense(normal(*shape).astype(ml_dtypes.bfloat16), bias=bias)


def affine(*shape: int, bias: Any = None, bits: int = 4) -> Affine:
    return Affine(*ops.affine_quantize(normal(*shape), bits, 32), bits, 32, bias=bias)


def fp(*shape: int, bias: Any = None) -> Fp:
    return Fp(*ops.fp_quantize(normal(*shape), "mxfp4"), "mxfp4", bias=bias)


def scaled_fp(*shape: int, bias: Any = None) -> Fp:
    scale = np.full(shape[:1] if len(shape) == 3 else (1,), 2000, np.float32)
    return Fp(*ops.fp_quantize(normal(*shape), "nvfp4"), "nvfp4", scale, bias=bias)


def gguf(*shape: int, bias: Any = None) -> Gguf:
    blocks = random_weight(np.random.default_rng(sum(shape)), (*shape[:-1], shape[-1] // 32), "Q5_0")
    return Gguf(*blocks, bias=bias)


Make = Callable[..., Any]
FORMATS = {"dense": dense, "affine": affine, "mxfp4": fp, "nvfp4": scaled_fp, "gguf": gguf}
each_format = pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS.keys())
quantized = pytest.mark.parametrize("make", [affine, fp, scaled_fp, gguf])

#: The operations of each class: a product, one with experts, one with rows sorted by expert, rows of a table.
OPERATIONS: dict[type, tuple[Any, ...]] = {
    Dense: (ops.matmul, ops.dense_experts_matmul, ops.dense_grouped_matmul, None),
    Affine: (ops.affine_matmul, ops.affine_experts_matmul, ops.affine_grouped_matmul, ops.affine_embed),
    Fp: (ops.fp_matmul, ops.fp_experts_matmul, ops.fp_grouped_matmul, ops.fp_embed),
    Gguf: (ops.gguf_matmul, ops.gguf_experts_matmul, ops.gguf_grouped_matmul, ops.gguf_embed),
}


def operands(layer: Any) -> tuple[Any, ...]:
    return (layer.weight,) if isinstance(layer, Dense) else layer.weight


def record(device: pyturbo.Device, method: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """Return what `method` computes of the arrays when it is recorded and replayed."""
    buffers = [device.empty(array.shape, array.dtype) for array in arrays]
    for buffer, array in zip(buffers, arrays):
        buffer.write(array)
    with Recorder(device, {}) as recorder:
        y = method(*(Tensor(buffer, buffer.shape, buffer.dtype) for buffer in buffers))
    recorder.program.run()
    result: np.ndarray = y.memory.numpy()[: y.size].reshape(y.shape)
    return result


@each_format
@pytest.mark.parametrize("biased", [False, True])
def test_apply(device: pyturbo.Device, make: Make, biased: bool) -> None:
    layer, x = make(OUT, IN, bias=normal(OUT) if biased else None), normal(TOKENS, IN)
    want = OPERATIONS[type(layer)][0](x, *operands(layer), device=device)
    if biased:
        want = ops.add_bias(want, layer.bias, device=device)
    np.testing.assert_array_equal(record(device, layer.apply, x), want)


@each_format
@pytest.mark.parametrize("biased", [False, True])
def test_apply_experts(device: pyturbo.Device, make: Make, biased: bool) -> None:
    layer = make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT) if biased else None)
    x = normal(TOKENS, IN)
    want = OPERATIONS[type(layer)][1](x, IDS, *operands(layer), device=device)
    if biased:
        want = ops.add_expert_bias(want, layer.bias, IDS, device=device)
    np.testing.assert_array_equal(record(device, layer.apply_experts, x, IDS), want)


@each_format
@pytest.mark.parametrize("biased", [False, True])
def test_apply_buckets(device: pyturbo.Device, make: Make, biased: bool) -> None:
    layer = make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT) if biased else None)
    x = normal(IDS.size, IN)
    offsets, order, _ = ops.moe_buckets(IDS, EXPERTS, device=device)
    want = OPERATIONS[type(layer)][2](x, offsets, *operands(layer), device=device)
    if biased:
        want = ops.add_expert_bias(want, layer.bias, IDS, order, device=device)
    assert layer.grouped
    got = record(device, lambda x, ids: layer.apply_buckets(x, Buckets.sort(ids, EXPERTS)), x, IDS)
    np.testing.assert_array_equal(got, want)


SLOTS = np.array([3, -1, 6, 0, 4], np.int32)  # of EXPERTS experts in 7 matrices


def in_records(layer: Any) -> Any:
    """Return the layer with its arrays as parts of 7 records, in which the experts have their SLOTS."""
    arrays = {
        field.name: value
        for field in fields(layer)
        if isinstance(value := getattr(layer, field.name), np.ndarray)
    }
    size = sum(-(-array[0].nbytes // 64) * 64 for array in arrays.values())
    memory, start, views = np.full((7, size), 0xFF, np.uint8), 0, {}
    for name, array in arrays.items():
        strides = (size, *array.strides[1:])
        views[name] = np.ndarray((7, *array.shape[1:]), array.dtype, memory, start, strides)
        views[name][SLOTS[SLOTS >= 0]] = array[SLOTS >= 0]
        start += -(-array[0].nbytes // 64) * 64
    return replace(layer, **views)


@each_format
@pytest.mark.parametrize("biased", [False, True])
def test_apply_experts_by_slot(device: pyturbo.Device, make: Make, biased: bool) -> None:
    layer = make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT) if biased else None)
    other, x, here = in_records(layer), normal(TOKENS, IN), SLOTS[IDS] >= 0
    assert other.shape == (7, OUT, IN)
    want = record(device, layer.apply_experts, x, IDS)
    got = record(device, other.apply_experts, x, IDS, SLOTS)
    np.testing.assert_array_equal(got[here], want[here])
    assert not got[~here].any()
    assert (~here).any()
    want = record(device, lambda x, ids: layer.apply_experts_swiglu(layer, x, ids), x, IDS)
    got = record(
        device, lambda x, ids, slots: other.apply_experts_swiglu(other, x, ids, slots), x, IDS, SLOTS
    )
    np.testing.assert_array_equal(got[here], want[here])
    assert not got[~here].any()


@each_format
@pytest.mark.parametrize("biased", [False, True])
def test_apply_buckets_by_slot(device: pyturbo.Device, make: Make, biased: bool) -> None:
    layer = make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT) if biased else None)
    other, x = in_records(layer), normal(IDS.size, IN)
    here = SLOTS[np.sort(IDS.ravel())] >= 0
    want = record(device, lambda x, ids: layer.apply_buckets(x, Buckets.sort(ids, EXPERTS)), x, IDS)
    got = record(
        device, lambda x, ids, slots: other.apply_buckets(x, Buckets.sort(ids, EXPERTS), slots), x, IDS, SLOTS
    )
    np.testing.assert_array_equal(got[here], want[here])
    assert not got[~here].any()


def test_experts_in_float32_have_no_buckets(device: pyturbo.Device) -> None:
    layer = Dense(normal(EXPERTS, OUT, IN))
    assert not layer.grouped
    with pytest.raises(ArgumentError, match="dense_grouped_matmul: w: expected 16-bit values"):
        record(device, lambda x, ids: layer.apply_buckets(x, Buckets.sort(ids, EXPERTS)), normal(6, IN), IDS)


@each_format
def test_embed(device: pyturbo.Device, make: Make) -> None:
    layer, ids = make(OUT, IN), np.array([7, 0, 23, 7], np.int32)
    got = record(device, layer.embed, ids)
    if isinstance(layer, Dense):
        np.testing.assert_array_equal(got, layer.weight[ids].astype(np.float32))
    else:
        want = OPERATIONS[type(layer)][3](ids, *operands(layer), device=device)
        np.testing.assert_array_equal(got, want)


def launches(method: Callable[..., Any], *arrays: np.ndarray) -> list[str]:
    with Recorder(pyturbo.Device("cpu"), {}) as recorder:
        method(*arrays)
    return [launch.kernel for launch in recorder.program.listing()]


#: Kernels for a gate and an up at once, by format.
FUSED = {
    affine: ("affine_swiglu_b4_f32", "affine_experts_swiglu_b4_f32"),
    fp: ("fp_swiglu_mxfp4", "fp_experts_swiglu_mxfp4"),
    scaled_fp: ("fp_swiglu_nvfp4", "fp_experts_swiglu_nvfp4"),
    gguf: ("gguf_swiglu_q5_0", "gguf_experts_swiglu_q5_0"),
}


@each_format
def test_swiglu_is_one_launch_where_a_format_has_a_kernel_for_it(make: Make) -> None:
    x, gate = normal(1, IN), make(OUT, IN)
    one, experts = FUSED.get(make, (None, None))
    assert (launches(gate.apply_swiglu, make(OUT, IN), x) == [one]) == (make in FUSED)
    assert launches(gate.apply_swiglu, affine(OUT, IN, bits=8), x)[-1] == "swiglu"
    assert launches(make(OUT, IN, bias=normal(OUT)).apply_swiglu, make(OUT, IN), x)[-1] == "swiglu"
    gate, up = make(EXPERTS, OUT, IN), make(EXPERTS, OUT, IN)
    assert (launches(gate.apply_experts_swiglu, up, x, IDS[:1]) == [experts]) == (make in FUSED)
    assert launches(gate.apply_experts_swiglu, affine(EXPERTS, OUT, IN, bits=8), x, IDS[:1])[-1] == "swiglu"
    apart = in_records(up)
    assert launches(apart.apply_experts_swiglu, up, x, IDS[:1])[-1] == "swiglu"  # no stack is copied
    both = launches(apart.apply_experts_swiglu, in_records(gate), x, IDS[:1])
    assert (both == [experts]) == (make in FUSED)


#: Kernels for both with rows sorted by expert.
GROUPED = {
    affine: "affine_grouped_swiglu_b4_f32",
    fp: "fp_grouped_swiglu_mxfp4",
    scaled_fp: "fp_grouped_swiglu_nvfp4",
    gguf: "gguf_grouped_swiglu_q5_0",
}


def test_swiglu_of_buckets_is_one_launch_where_both_have_one_format() -> None:
    x = normal(IDS.size, IN)

    def listed(gate: Any, up: Any) -> list[str]:
        count = gate.shape[0]
        return launches(lambda x, ids: gate.apply_buckets_swiglu(up, x, Buckets.sort(ids, count)), x, IDS)

    sort = launches(lambda ids: Buckets.sort(ids, EXPERTS), IDS)
    for make, kernel in GROUPED.items():
        gate, up = make(EXPERTS, OUT, IN), make(EXPERTS, OUT, IN)
        assert listed(gate, up) == [*sort, kernel]
        assert listed(in_records(gate), in_records(up)) == [*sort, kernel]
        assert listed(in_records(gate), make(7, OUT, IN))[-1] == "swiglu"  # no stack is copied
        assert listed(gate, affine(EXPERTS, OUT, IN, bits=8))[-1] == "swiglu"
        biased = make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT))
        assert listed(biased, up)[-1] == listed(gate, biased)[-1] == "swiglu"
    plain, scaled = scaled_fp(EXPERTS, OUT, IN), scaled_fp(EXPERTS, OUT, IN)
    assert listed(replace(plain, global_scale=None), scaled)[-1] == "swiglu"


@quantized
@pytest.mark.parametrize("biased", [False, True])
def test_swiglu_of_buckets(device: pyturbo.Device, make: Make, biased: bool) -> None:
    """With slots, rows of experts without one are those of no other, or zeros."""
    gate, up = (make(EXPERTS, OUT, IN, bias=normal(EXPERTS, OUT) if biased else None) for _ in range(2))
    x, (offsets, order, _) = normal(IDS.size, IN), ops.moe_buckets(IDS, EXPERTS, device=device)
    products = []
    for layer in (gate, up):
        y = OPERATIONS[type(layer)][2](x, offsets, *operands(layer), device=device)
        products.append(ops.add_expert_bias(y, layer.bias, IDS, order, device=device) if biased else y)
    want = ops.swiglu(*products, device=device)
    got = record(device, lambda x, ids: gate.apply_buckets_swiglu(up, x, Buckets.sort(ids, EXPERTS)), x, IDS)
    np.testing.assert_array_equal(got, want)
    others, here = [in_records(layer) for layer in (gate, up)], SLOTS[np.sort(IDS.ravel())] >= 0
    got = record(
        device,
        lambda x, ids, slots: others[0].apply_buckets_swiglu(
            others[1], x, Buckets.sort(ids, EXPERTS), slots
        ),
        x, IDS, SLOTS,
    )  # fmt: skip
    np.testing.assert_array_equal(got[here], want[here])
    assert not got[~here].any()


@each_format
def test_swiglu(device: pyturbo.Device, make: Make) -> None:
    x, gate, up = normal(TOKENS, IN), make(OUT, IN), make(OUT, IN)
    if isinstance(gate, Affine):
        want = ops.affine_swiglu(x, gate.weight, up.weight, device=device)
    elif isinstance(gate, Fp):
        want = ops.fp_swiglu(x, gate.weight, up.weight, device=device)
    elif isinstance(gate, Gguf):
        want = ops.gguf_swiglu(x, gate.blocks, up.blocks, gate.kind, device=device)
    else:
        want = ops.swiglu(
            *(OPERATIONS[type(gate)][0](x, *operands(layer), device=device) for layer in (gate, up)),
            device=device,
        )
    np.testing.assert_array_equal(record(device, lambda x: gate.apply_swiglu(up, x), x), want)


@pytest.mark.parametrize("make", [dense, affine, fp, gguf])
def test_projections_of_latents(device: pyturbo.Device, make: Make) -> None:
    heads, nope, v_dim = 2, 5, 7
    layer = make(heads * (nope + v_dim), IN)
    weight = layer.weight
    q, mix = normal(TOKENS, heads, nope), normal(TOKENS, heads, IN)
    assert layer.foldable
    np.testing.assert_array_equal(
        record(device, layer.project_q, q), ops.mla_project_q(q, weight, device=device)
    )
    np.testing.assert_array_equal(
        record(device, lambda mix: layer.project_out(mix, v_dim), mix),
        ops.mla_project_out(mix, weight, v_dim, device=device),
    )
    assert not scaled_fp(OUT, IN).foldable


@each_format
def test_rows(make: Make) -> None:
    layer, index = make(OUT, IN, bias=normal(OUT)), np.array([5, 23, 0, 5])
    part = layer.rows(index)
    assert (type(part), part.shape, part.name) == (type(layer), (4, IN), layer.name)
    np.testing.assert_array_equal(part.bias, layer.bias[index])
    for got, whole in zip(part.arrays, layer.arrays):
        want = whole[index] if len(whole) == OUT else whole  # a global scale is that of the whole matrix
        assert got.tobytes() == want.tobytes()


def test_names() -> None:
    assert repr(dense(OUT, IN)) == "Dense([24, 64], bfloat16)"
    assert repr(affine(EXPERTS, OUT, IN)) == "Affine([5, 24, 64], 4 bits in groups of 32)"
    assert repr(gguf(OUT, IN)) == "Gguf([24, 64], Q5_0)"
    assert repr(fp(OUT, IN, bias=normal(OUT))) == "Fp([24, 64], mxfp4, bias)"
