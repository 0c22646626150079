"""Stacks of experts as parts of records, which lie in the slots of one slab: every format, on every device.

Nothing of a slab is copied: the launches of an operation are given its memory, and a program that was
recorded before the slab was filled reads what is in it when it is replayed. Slots of no interest hold 0xff,
which is NaN in every format, so that a result that reads them is seen.

Does not catch: speed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernels import test_affine, test_fp, test_gguf
from kernels.harness import UNWRITTEN, assert_close
from kernels.random_blocks import random_weight
from pyturbo import ops
from pyturbo.errors import ArgumentError
from pyturbo.ops import _stacks
from pyturbo.recording import Recorder, Tensor
from reference import affine, fp, gguf
from reference.activations import as_read

EXPERTS, MATRICES, OUT, IN, TOKENS, K = 5, 8, 11, 256, 7, 3
SLOTS = np.array([6, 2, 1, 7, 3], np.int32)
OFFSETS = np.array([0, 4, 4, 13, 14, 21], np.int32)
FILES = "affine", "fp", "gguf", "linear", "moe"


class Stack(NamedTuple):
    """The arrays [experts, ...] of a format, its operations and its reference."""

    arrays: list[np.ndarray]
    by_token: Callable[..., Any]  # of arrays, x [tokens, k, in], ids and options
    by_bucket: Callable[..., Any] | None  # of arrays, x [rows, in], offsets and options
    want: Callable[..., tuple[np.ndarray, np.ndarray]]  # of device, x and ids; the magnitude of errors too


def affine_stack(bits: int, group_size: int, kind: str) -> Callable[..., Stack]:
    def make(rng):
        w = test_affine.random_weight(rng, (EXPERTS, OUT, IN), bits, group_size, kind)
        form = bits, group_size
        return Stack(
            list(w[:3]),
            lambda arrays, x, ids, **options: ops.affine_experts_matmul(x, ids, *arrays, *form, **options),
            lambda arrays, x, rows, **options: ops.affine_grouped_matmul(x, rows, *arrays, *form, **options),
            lambda device, x, ids: affine.per_expert(affine.matmul, as_read(device, x, group_size), ids, w),
        )

    return make


def fp_stack(mode: str, scaled: bool) -> Callable[..., Stack]:
    def make(rng):
        w = test_fp.random_weight(rng, (EXPERTS, OUT, IN), mode, scaled)

        def weight(arrays):
            packed, scales, *whole = arrays
            return packed, scales, mode, *whole

        return Stack(
            [array for array in test_fp.arrays(w) if array is not None],
            lambda arrays, x, ids, **options: ops.fp_experts_matmul(x, ids, *weight(arrays), **options),
            lambda arrays, x, rows, **options: ops.fp_grouped_matmul(x, rows, *weight(arrays), **options),
            lambda device, x, ids: fp.per_expert(fp.matmul, test_fp.read_by(device, x, mode), ids, w),
        )

    return make


def gguf_stack(kind: str) -> Callable[..., Stack]:
    def make(rng):
        w = random_weight(rng, (EXPERTS, OUT, IN // gguf.SIZES[kind][1]), kind)

        def want(device, x, ids):
            return gguf.per_expert(gguf.matmul, test_gguf.read_by(device, x, kind), ids, w)

        return Stack(
            [w.blocks],
            lambda arrays, x, ids, **options: ops.gguf_experts_matmul(x, ids, *arrays, kind, **options),
            lambda arrays, x, rows, **options: ops.gguf_grouped_matmul(x, rows, *arrays, kind, **options),
            want,
        )

    return make


def dense_stack(kind: str) -> Callable[..., Stack]:
    def make(rng):
        w = rng.standard_normal((EXPERTS, OUT, IN)).astype(test_affine.TYPES[kind])

        def want(device, x, ids):
            rows, values = x.astype(np.float64)[..., None], w[ids].astype(np.float64)
            rows = rows if x.ndim == 3 else rows[:, None]
            return (values @ rows)[..., 0], (np.abs(values) @ np.abs(rows))[..., 0]

        return Stack(
            [w],
            lambda arrays, x, ids, **options: ops.dense_experts_matmul(x, ids, *arrays, **options),
            lambda arrays, x, rows, **options: ops.dense_grouped_matmul(x, rows, *arrays, **options),
            want,
        )

    return make


def bias_stack(kind: str) -> Callable[..., Stack]:
    def make(rng):
        bias = rng.standard_normal((EXPERTS, IN)).astype(test_affine.TYPES[kind])

        def want(device, x, ids):
            y = x.astype(np.float64) + bias[ids].astype(np.float64)
            return y, np.abs(y)

        return Stack(
            [bias],
            lambda arrays, x, ids, **options: ops.add_expert_bias(x, *arrays, ids, **options),
            None,
            want,
        )

    return make


MAKERS = {
    **{f"affine {b} {g} {k}": affine_stack(b, g, k) for b, g, k in (
        (2, 128, "f32"), (3, 32, "bf16"), (4, 64, "bf16"), (4, 32, "f16"), (5, 64, "f16"), (6, 32, "f32"),
        (8, 64, "bf16"),
    )},
    **{f"{mode}{' global' * scaled}": fp_stack(mode, scaled) for mode, scaled in test_fp.FORMS},
    **{kind: gguf_stack(kind) for kind in gguf.SIZES},
    **{f"dense {kind}": dense_stack(kind) for kind in test_affine.TYPES},
    **{f"bias {kind}": bias_stack(kind) for kind in test_affine.TYPES},
}  # fmt: skip

each_format = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
with_buckets = pytest.mark.parametrize(
    "make",
    [make for name, make in MAKERS.items() if not name.startswith(("dense f32", "bias"))],
    ids=[name for name in MAKERS if not name.startswith(("dense f32", "bias"))],
)


class Slab:
    """Records of all arrays of some stacks in device memory, and views of each array over all records."""

    def __init__(self, device, arrays, matrices: int = MATRICES) -> None:
        self.starts, end = [], 64  # so that no array starts with the slab
        for array in arrays:
            self.starts.append(end)
            end += -(-array[0].nbytes // 64) * 64
        self.stride = end + 192
        self.buffer = device.shared(matrices * self.stride, np.uint8)
        self.memory = self.buffer.numpy()
        self.memory[:] = UNWRITTEN
        self.views = [
            np.ndarray(
                (matrices, *array.shape[1:]),
                array.dtype,
                self.memory,
                start,
                (self.stride, *array.strides[1:]),
            )
            for array, start in zip(arrays, self.starts)
        ]

    def fill(self, arrays, slots=SLOTS) -> None:
        for view, array in zip(self.views, arrays):
            for slot, matrix in zip(slots, array):
                if slot >= 0:
                    view[slot] = matrix


def inputs(rng):
    return test_affine.random_rows(rng, TOKENS, K, IN), rng.integers(0, EXPERTS, (TOKENS, K), np.int32)


@each_format
def test_experts_of_a_slab(device, rng, make):
    stack, (x, ids) = make(rng), inputs(rng)
    slab = Slab(device, stack.arrays)
    slab.fill(stack.arrays)
    y = stack.by_token(slab.views, x, ids, slots=SLOTS, device=device)
    want, terms = stack.want(device, x, ids)
    assert_close(y, want, "dot", terms)
    np.testing.assert_array_equal(y, stack.by_token(stack.arrays, x, ids, device=device))
    every = Slab(device, stack.arrays, EXPERTS)  # a mapped file: record e is that of expert e
    every.fill(stack.arrays, range(EXPERTS))
    np.testing.assert_array_equal(y, stack.by_token(every.views, x, ids, device=device))


@with_buckets
def test_buckets_of_a_slab(device, rng, make):
    stack = make(rng)
    x, ids = test_affine.random_rows(rng, OFFSETS[-1], IN), np.repeat(np.arange(EXPERTS), np.diff(OFFSETS))
    slab = Slab(device, stack.arrays)
    slab.fill(stack.arrays)
    y = stack.by_bucket(slab.views, x, OFFSETS, slots=SLOTS, device=device)
    want, terms = (part[:, 0] for part in stack.want(device, x, ids[:, None]))
    assert_close(y, want, "long dot", terms)
    np.testing.assert_array_equal(y, stack.by_bucket(stack.arrays, x, OFFSETS, device=device))
    every = Slab(device, stack.arrays, EXPERTS)
    every.fill(stack.arrays, range(EXPERTS))
    np.testing.assert_array_equal(y, stack.by_bucket(every.views, x, OFFSETS, device=device))


@pytest.fixture
def launched(monkeypatch):
    """The arrays that launches of operations are given."""
    arrays: list[np.ndarray] = []
    for file in FILES:
        module = sys.modules[f"pyturbo.ops.{file}"]

        def launch(*args, run=module.launch, **options):
            arrays.extend(arg for arg in args if isinstance(arg, np.ndarray))
            run(*args, **options)

        monkeypatch.setattr(module, "launch", launch)
    return arrays


@each_format
def test_launches_are_given_the_slab_itself(device, rng, launched, make):
    stack, (x, ids) = make(rng), inputs(rng)
    slab = Slab(device, stack.arrays)
    slab.fill(stack.arrays)
    stack.by_token(slab.views, x, ids, slots=SLOTS, device=device)
    own = [array for array in launched if np.shares_memory(array, slab.memory)]
    assert [array.ctypes.data for array in own] == [view.ctypes.data for view in slab.views]
    assert {array.nbytes for array in launched if not np.shares_memory(array, slab.memory)} <= {
        x.nbytes, ids.nbytes, SLOTS.nbytes,
    }  # fmt: skip


def tensor(device, array) -> Tensor:
    buffer = device.empty(array.shape, array.dtype)
    buffer.write(array)
    return Tensor(buffer, array.shape, array.dtype)


@each_format
def test_a_program_reads_the_slab_and_writes_what_has_a_slot(device, rng, make):
    """Three replays with other slots: each writes the rows of its own experts, whose records it finds."""
    stack, (x, ids) = make(rng), inputs(rng)
    slab = Slab(device, stack.arrays)
    want = stack.by_token(stack.arrays, x, ids, device=device)
    y, table = (tensor(device, np.full(shape, 7, dtype))
                for shape, dtype in ((want.shape, np.float32), ((EXPERTS,), np.int32)))  # fmt: skip
    with Recorder(device, {}) as recorder, recorder.into(y):
        stack.by_token(slab.views, tensor(device, x), tensor(device, ids), slots=table)
    ends = [start + array[0].nbytes for start, array in zip(slab.starts, stack.arrays)]
    assert recorder.constant_bytes == (MATRICES - 1) * slab.stride + max(ends) - slab.starts[0]
    written = np.zeros(ids.shape, bool)
    for slots in ([-1, 2, -1, -1, 0], [-1, -1, 2, 0, -1], [5, -1, -1, -1, -1]):
        slab.memory[:] = UNWRITTEN
        slab.fill(stack.arrays, slots)
        table.memory.write(slots)
        recorder.program.run()
        got = y.memory.numpy()
        written |= np.array(slots)[ids] >= 0
        np.testing.assert_array_equal(got[written], want[written])
        assert (got[~written] == 7).all()
    assert written.all()


@pytest.mark.parametrize("form", [(3, 32, "bf16"), (4, 64, "f16")])
def test_gate_and_up_of_one_record(device, rng, launched, form):
    gate, up = (test_affine.random_weight(rng, (EXPERTS, OUT, IN), *form) for _ in range(2))
    arrays, (x, ids) = [*gate[:3], *up[:3]], inputs(rng)
    slab = Slab(device, arrays)
    slab.fill(arrays)
    gate_views, up_views = ((*slab.views[i : i + 3], *form[:2]) for i in (0, 3))
    y = ops.affine_experts_swiglu(x, ids, gate_views, up_views, slots=SLOTS, device=device)
    assert sum(np.shares_memory(array, slab.memory) for array in launched) == 6
    want, terms = affine.per_expert(affine.swiglu, as_read(device, x, form[1]), ids, gate, up)
    assert_close(y, want, "long dot", terms)
    np.testing.assert_array_equal(y, ops.affine_experts_swiglu(x, ids, gate, up, device=device))
    whole = *(np.ascontiguousarray(view) for view in up_views[:3]), *form[:2]
    np.testing.assert_array_equal(
        y, ops.affine_experts_swiglu(x, ids, gate_views, whole, slots=SLOTS, device=device)
    )


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "MXFP4"])
def test_gate_and_up_in_blocks_of_one_record(device, rng, launched, kind):
    gate, up = (random_weight(rng, (EXPERTS, OUT, IN // gguf.SIZES[kind][1]), kind) for _ in range(2))
    arrays, (x, ids) = [gate.blocks, up.blocks], inputs(rng)
    slab = Slab(device, arrays)
    slab.fill(arrays)
    y = ops.gguf_experts_swiglu(x, ids, *slab.views, kind, slots=SLOTS, device=device)
    assert sum(np.shares_memory(array, slab.memory) for array in launched) == 2
    want, terms = gguf.per_expert(gguf.swiglu, test_gguf.read_by(device, x, kind), ids, gate, up)
    assert_close(y, want, "long dot", terms)
    np.testing.assert_array_equal(y, ops.gguf_experts_swiglu(x, ids, *arrays, kind, device=device))


@pytest.mark.parametrize(("mode", "scaled"), test_fp.FORMS)
def test_gate_and_up_in_small_floats_of_one_record(device, rng, launched, mode, scaled):
    gate, up = (test_fp.random_weight(rng, (EXPERTS, OUT, IN), mode, scaled) for _ in range(2))
    both = [[array for array in test_fp.arrays(w) if array is not None] for w in (gate, up)]
    arrays, (x, ids) = [*both[0], *both[1]], inputs(rng)
    slab = Slab(device, arrays)
    slab.fill(arrays)
    packed, scales, *whole = (slab.views[i :: len(both[0])] for i in range(len(both[0])))
    views = [(packed[i], scales[i], mode, whole[0][i] if scaled else None) for i in range(2)]
    y = ops.fp_experts_swiglu(x, ids, *views, slots=SLOTS, device=device)
    assert sum(np.shares_memory(array, slab.memory) for array in launched) == len(arrays)
    want, terms = fp.per_expert(fp.swiglu, test_fp.read_by(device, x, mode), ids, gate, up)
    assert_close(y, want, "long dot", terms)
    np.testing.assert_array_equal(y, ops.fp_experts_swiglu(x, ids, gate, up, device=device))


def test_stacks_that_kernels_cannot_use_are_copied(device, rng):
    """Other orders of memory, negative strides and unaligned first matrices."""
    w = rng.standard_normal((6, 12, 40)).astype(np.float32)
    ids, x = np.array([[2, 0], [1, 1]], np.int32), test_affine.random_rows(rng, 2, 40)
    unaligned = np.zeros(w.size + 1, np.float32)[1:].reshape(w.shape)
    unaligned[:] = w
    for stack in (w[::-1], w.transpose(0, 2, 1).copy().transpose(0, 2, 1), unaligned, w[::2], w[1:2]):
        some = np.minimum(ids, len(stack) - 1)
        want = ops.dense_experts_matmul(x, some, np.ascontiguousarray(stack), device=device)
        np.testing.assert_array_equal(ops.dense_experts_matmul(x, some, stack, device=device), want)


@pytest.mark.parametrize("bits", [4, 3])
def test_stacks_between_odd_gaps(device, rng, bits):
    """Codes of 4 bits are read by wide loads: matrices at other distances are copied."""
    w = test_affine.random_weight(rng, (3, 8, 64), bits, 32, "bf16")
    ids, x = np.array([[2, 0], [1, 1]], np.int32), test_affine.random_rows(rng, 2, 64)
    want = ops.affine_experts_matmul(x, ids, *w, device=device)
    records = np.zeros((3, w.packed[0].size + 3), np.uint32)
    records[:, :-3] = w.packed.reshape(3, -1)
    spaced = np.lib.stride_tricks.as_strided(
        records, w.packed.shape, (records.strides[0], *w.packed.strides[1:])
    )
    np.testing.assert_array_equal(ops.affine_experts_matmul(x, ids, spaced, *w[1:], device=device), want)


def test_one_matrix_for_all_experts(device, rng):
    w, x = rng.standard_normal((12, 40)).astype(np.float32), test_affine.random_rows(rng, 2, 40)
    stack = np.broadcast_to(w, (9, 12, 40))
    y = ops.dense_experts_matmul(x, [[8, 0], [3, 3]], stack, device=device)
    want = ops.dense_experts_matmul(x, [[0, 0], [0, 0]], w[None], device=device)
    np.testing.assert_array_equal(y, want)
    assert _stacks.stack_memory(stack).size == w.size


def test_rows_without_a_slot_are_zeros_at_once(device, rng):
    w, x = rng.standard_normal((2, 12, 40)).astype(np.float32), test_affine.random_rows(rng, 1, 40)
    y = ops.dense_experts_matmul(x, [[0, 2, 1]], w, slots=np.array([1, -1, 2], np.int32), device=device)
    want = ops.dense_experts_matmul(x, [[1]], w, device=device)
    np.testing.assert_array_equal(y[:, :1], want)
    assert np.isnan(y[0, 1]).all()
    assert not y[0, 2].any()


def test_arguments_are_checked(device, rng):
    w, x = rng.standard_normal((2, 12, 64)).astype(np.float32), test_affine.random_rows(rng, 1, 64)
    slots = np.array([1, -1, 0, 0], np.int32)
    for message, ids, table in (
        ("ids: expected 0 to 3, got 4", [[4]], slots),
        ("slots: expected int32, got int64", [[0]], slots.astype(np.int64)),
        (r"slots: expected shape \[any\], got \[1, 4\]", [[0]], slots[None]),
        ("slots: expected at least one", [[0]], slots[:0]),
    ):
        with pytest.raises(ArgumentError, match=message):
            ops.dense_experts_matmul(x, ids, w, slots=table, device=device)
    weight = *ops.affine_quantize(w, 4, 32), 4, 32
    with pytest.raises(ArgumentError, match=r"offsets: expected shape \[5\], got \[3\]"):
        ops.affine_grouped_matmul(x, [0, 1, 1], *weight, slots=slots, device=device)
    kernel = device.kernel("dense_experts_matvec_f32", {"by_slot": False})
    arrays = x, np.zeros((1, 1), np.int32), w, None, device.empty((1, 1, 12))
    with pytest.raises(ArgumentError, match=r"requires by_slot \|\| matrices == experts"):
        kernel(*arrays, 1, 1, 1, 64, 12, 3, 2, 768)
    with pytest.raises(ArgumentError, match="weight: expected at least 1537 elements of 4 bytes, got 1536"):
        kernel(*arrays, 1, 1, 1, 64, 12, 2, 2, 769)
