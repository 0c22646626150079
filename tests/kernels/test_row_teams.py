"""Products of one vector, whose kernels divide their lanes among rows as a launch says, against float64.

Every kernel that takes a number of teams runs with each; operations choose one by the shape.
"""

import numpy as np
import pytest

from kernels import test_affine, test_fp, test_linear
from kernels.harness import Out, assert_close, run_kernel
from kernels.random_blocks import random_weight as random_blocks
from pyturbo import ops
from pyturbo.errors import ArgumentError
from pyturbo.ops._products import FEW_ROWS, long_row_teams, row_teams
from pyturbo.ops._run import resolve
from reference import affine, fp, gguf, linear
from reference.activations import as_read

teams = pytest.mark.parametrize("teams", [1, 2, 4, 8, 16])

#: Short rows, and rows of several spans for every lane.
SHAPES = [(70, 128), (9, 2176)]
shapes = pytest.mark.parametrize(("rows", "inner"), SHAPES)

IDS = np.array([[4, 0, 2], [3, 3, 1]], np.int32)


def random_rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@teams
@shapes
@pytest.mark.parametrize(("bits", "kind"), [(3, "f16"), (4, "bf16"), (5, "f32"), (8, "f16")])
def test_affine_rows(device, rng, bits, kind, rows, inner, teams):
    w = test_affine.random_weight(rng, (rows, inner), bits, 64, kind)
    x = random_rows(rng, 2, inner)
    args = x, *w[:3], Out((2, rows)), 2, inner, rows, 64
    (y,) = run_kernel(device, f"affine_matvec_b{bits}_{kind}", *args, constants={"row_teams": teams})
    want, terms = affine.matmul(as_read(device, x, 64), w)
    assert_close(y, want, "dot", terms)


@teams
@pytest.mark.parametrize(("rows", "units"), [(70, 1), (9, 5)])
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "Q3_K", "Q8_0"])
def test_blocks_of_gguf(device, rng, kind, rows, units, teams):
    w = random_blocks(rng, (rows, units), kind)
    inner = units * gguf.SIZES[kind][1]
    x = random_rows(rng, 2, inner)
    args = x, w.blocks, Out((2, rows)), 2, inner, rows
    (y,) = run_kernel(device, f"gguf_matvec_{kind.lower()}", *args, constants={"row_teams": teams})
    want, terms = gguf.matmul(as_read(device, x, 16 if kind in ("Q3_K", "Q6_K") else 32), w)
    assert_close(y, want, "dot", terms)


@teams
@shapes
@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
def test_small_floats(device, rng, mode, rows, inner, teams):
    w = test_fp.random_weight(rng, (rows, inner), mode)
    x = random_rows(rng, 2, inner)
    args = x, *test_fp.arrays(w), Out((2, rows)), 2, inner, rows
    constants = {**test_fp.constants(w), "row_teams": teams}
    (y,) = run_kernel(device, f"fp_matvec_{mode}", *args, constants=constants)
    want, terms = fp.matmul(test_fp.read_by(device, x, mode), w)
    assert_close(y, want, "dot", terms)


@teams
@pytest.mark.parametrize(("rows", "inner"), [(70, 96), (9, 2176), (70, 67)])
@test_linear.kinds
def test_plain_rows(device, rng, kind, rows, inner, teams):
    x, w = test_linear.operands(rng, 3, rows, inner, test_linear.WEIGHTS[kind])
    args = x, w, Out((3, rows)), 3, rows, inner
    (y,) = run_kernel(device, f"dense_matvec_{kind}", *args, constants={"row_teams": teams})
    assert_close(y, linear.matmul(x, w), "dot", linear.matmul_magnitude(x, w))


@teams
def test_experts(device, rng, teams):
    constants = {"by_slot": False, "row_teams": teams}
    x = random_rows(rng, 2, 96)
    w = test_affine.random_weight(rng, (5, 70, 96), 4, 32, "bf16")
    sizes = 2, 3, 1, 96, 70, 32, 5, 5, *test_affine.strides(w)
    args = x, IDS, *w[:3], None, Out((2, 3, 70)), *sizes
    (y,) = run_kernel(device, "affine_experts_matvec_b4_bf16", *args, constants=constants)
    want, terms = affine.per_expert(affine.matmul, as_read(device, x, 32), IDS, w)
    assert_close(y, want, "dot", terms)

    blocks = random_blocks(rng, (5, 70, 3), "Q8_0")
    args = x, IDS, blocks.blocks, None, Out((2, 3, 70)), 2, 3, 1, 96, 70, 5, 5, blocks.blocks[0].size
    (y,) = run_kernel(device, "gguf_experts_matvec_q8_0", *args, constants=constants)
    want, terms = gguf.per_expert(gguf.matmul, as_read(device, x, 32), IDS, blocks)
    assert_close(y, want, "dot", terms)

    small = test_fp.random_weight(rng, (5, 70, 96), "mxfp4")
    memory, *matrices = test_fp.stacks_in_slots([small], None)
    args = x, IDS, *memory, None, Out((2, 3, 70)), 2, 3, 1, 96, 70, 5, *matrices
    constants = {**constants, **test_fp.constants(small)}
    (y,) = run_kernel(device, "fp_experts_matvec_mxfp4", *args, constants=constants)
    want, terms = fp.per_expert(fp.matmul, test_fp.read_by(device, x, "mxfp4"), IDS, small)
    assert_close(y, want, "dot", terms)


@teams
def test_plain_experts_and_heads(device, rng, teams):
    x, w = random_rows(rng, 2, 96), random_rows(rng, 5, 70, 96)
    args = x, IDS, w, None, Out((2, 3, 70)), 2, 3, 1, 96, 70, 5, 5, 70 * 96
    constants = {"by_slot": False, "row_teams": teams}
    (y,) = run_kernel(device, "dense_experts_matvec_f32", *args, constants=constants)
    for t, j in np.ndindex(IDS.shape):
        one, each = x[t : t + 1], w[IDS[t, j]]
        assert_close(y[t, j], linear.matmul(one, each)[0], "dot", linear.matmul_magnitude(one, each)[0])

    heads = random_rows(rng, 2, 5, 96)
    args = heads, w, Out((2, 5, 70)), 2, 5, 96, 70, 70, 0
    (y,) = run_kernel(device, "mla_dense_project_f32", *args, constants={"row_teams": teams})
    for h in range(5):
        one = heads[:, h]
        assert_close(y[:, h], linear.matmul(one, w[h]), "dot", linear.matmul_magnitude(one, w[h]))


@pytest.mark.parametrize("number", [0, 3, 32])
def test_other_numbers_are_refused(device, number):
    x, w = np.ones((1, 32), np.float32), np.ones((9, 32), np.float32)
    kernel = device.kernel("dense_matvec_f32", {"row_teams": number})
    with pytest.raises(ArgumentError, match="dense_matvec_f32: requires valid_teams"):
        kernel(x, w, device.empty((1, 9)), 1, 9, 32)


@pytest.mark.parametrize(
    ("rows", "inner", "span", "wanted"),
    [
        *((4096, 4096, 16, 2), (1024, 4096, 16, 2), (2048, 1024, 16, 2)),  # as they are measured
        *((8 * 2048, 512, 16, 4), (8 * 2048, 512, 32, 8), (128 * 512, 128, 16, 16)),  # short rows
        *((4096, 32, 32, 16), (4096, 528, 16, 2), (513, 512, 16, 4), (512, 512, 16, 2)),
        *((64, 2048, 8, 1), (256, 2048, 16, 1), (512, 1024, 16, 2), (1, 7168, 4, 1)),  # few rows
    ],
)
def test_teams_for_a_shape(rows, inner, span, wanted):
    """The device does not say how many threadgroups it runs at once."""
    assert row_teams(resolve("cpu:reference"), rows, inner, span) == {"row_teams": wanted}


@pytest.mark.parametrize(
    ("held", "rows", "span", "wanted"),
    [
        *((924, 3584, 16, 1), (924, 4096, 16, 2), (924, 8192, 16, 4), (924, 12288, 16, 4)),  # one wave
        *((924, 18944, 16, 2), (924, 24576, 16, 4), (924, 248_320, 16, 4)),  # several
        *((924, 1024, 32, 1), (924, 4096, 32, 2), (924, 12288, 32, 2)),  # more registers
        *((80, 4096, 16, 4), (80, 513, 16, 2), (320, 1024, 16, 1)),
    ],
)
def test_teams_that_take_the_least_time(held, rows, span, wanted):
    assert long_row_teams(held, rows, span) == wanted


def test_operations_choose_by_the_shape(device, rng):
    """Rows are short and many, in one matrix or in those of all experts and heads, or few and long."""
    rows = FEW_ROWS + 7
    x = random_rows(rng, 1, 128)
    w = test_affine.random_weight(rng, (rows, 128), 4, 64, "bf16")
    want, terms = affine.matmul(as_read(device, x, 64), w)
    y = ops.affine_matmul(x, *w, device=device)
    assert_close(y, want, "dot", terms)
    args = x, *w[:3], Out((1, rows)), 1, 128, rows, 64
    (alone,) = run_kernel(device, "affine_matvec_b4_bf16", *args, constants={"row_teams": 16})
    np.testing.assert_array_equal(y, alone)

    stack = test_affine.random_weight(rng, (5, 300, 128), 3, 64, "f16")
    want, terms = affine.per_expert(affine.matmul, as_read(device, x, 64), IDS[:1], stack)
    assert_close(ops.affine_experts_matmul(x, IDS[:1], *stack, device=device), want, "dot", terms)

    x, w = test_linear.operands(rng, 1, 9, 2048, np.float32)
    y = ops.matmul(x, w, device=device)
    assert_close(y, linear.matmul(x, w), "dot", linear.matmul_magnitude(x, w))
    (alone,) = run_kernel(
        device, "dense_matvec_f32", x, w, Out((1, 9)), 1, 9, 2048, constants={"row_teams": 1}
    )
    np.testing.assert_array_equal(y, alone)
