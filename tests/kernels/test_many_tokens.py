"""Products with quantised weights and more tokens than one tile has, at every level and precision.

Tokens and rows of extreme size are among them, each beside ordinary ones. What these tests cannot catch:
levels that this machine has not, and speed.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import test_affine, test_fp, test_gguf
from kernels.harness import assert_close, plain_product
from kernels.levels import LEVELS, device_at
from kernels.random_blocks import random_weight as random_blocks
from processes import require_clean, run_script
from reference import affine, fp, gguf
from reference.activations import MANY, as_read

pytestmark = pytest.mark.skipif(not LEVELS, reason="this machine has no level")
precisions = pytest.mark.parametrize("precision", ["default", "fast"])
TOKENS = MANY + 19  # whole blocks of tokens, and a part of one


def random_rows(rng, tokens, width):
    """Rows of every size, with zeros among them."""
    x = rng.standard_normal((tokens, width)).astype(np.float32)
    x[1] *= 1e30
    x[2] *= 1e-30
    x[3] = 0
    x[4, ::2] *= 1e-38
    x[5] *= 2.0**26
    x[17] *= 2.0**-60
    return x


@precisions
@pytest.mark.parametrize(("bits", "group_size", "kind"), test_affine.FORMATS)
def test_affine_products(level, rng, precision, bits, group_size, kind):
    device = device_at(level, precision)
    gate, up = (
        test_affine.random_weight(rng, (45, 5 * group_size), bits, group_size, kind) for _ in range(2)
    )
    gate.scales[7], gate.biases[7] = 0, 0
    x = random_rows(rng, TOKENS, 5 * group_size)
    read = as_read(device, x, group_size, TOKENS)
    want, terms = affine.matmul(read, gate)
    assert_close(test_affine.run_product(device, "affine_matmul", x, gate), want, "long dot", terms)
    ordinary = rng.standard_normal(x.shape).astype(np.float32)
    want, terms = affine.swiglu(as_read(device, ordinary, group_size, TOKENS), gate, up)
    y = test_affine.run_product(device, "affine_swiglu_matmul", ordinary, gate, up)
    assert_close(y, want, "long dot", terms)


@precisions
@pytest.mark.parametrize(("mode", "scaled"), test_fp.FORMS)
def test_small_floats(level, rng, precision, mode, scaled):
    device = device_at(level, precision)
    w = test_fp.random_weight(rng, (45, 608), mode, scaled)
    x = random_rows(rng, TOKENS, 608)
    read = x.astype(np.float64) if mode == "mxfp8" else as_read(device, x, test_fp.GROUPS[mode], TOKENS)
    want, terms = fp.matmul(read, w)
    assert_close(test_fp.run_product(device, "fp_matmul", x, w), want, "long dot", terms)


@precisions
@pytest.mark.parametrize("kind", test_gguf.KINDS)
def test_blocks(level, rng, precision, kind):
    device, group_size = device_at(level, precision), 16 if kind in ("Q2_K", "Q3_K", "Q6_K") else 32
    gate, up = (random_blocks(rng, (139, 3 if test_gguf.unit(kind) == 256 else 19), kind) for _ in range(2))
    x = random_rows(rng, TOKENS, test_gguf.width(gate))
    want, terms = gguf.matmul(as_read(device, x, group_size, TOKENS), gate)
    assert_close(test_gguf.run_product(device, "gguf_matmul", x, gate), want, "long dot", terms)
    ordinary = rng.standard_normal(x.shape).astype(np.float32)
    want, terms = gguf.swiglu(as_read(device, ordinary, group_size, TOKENS), gate, up)
    y = test_gguf.run_product(device, "gguf_swiglu_matmul", ordinary, gate, up)
    assert_close(y, want, "long dot", terms)


@precisions
@pytest.mark.parametrize("kind", ["Q4_1", "Q6_K"])
def test_buckets_of_many_and_of_few_rows(level, rng, precision, kind):
    """Each row has the bits that the plain product of its bucket gives."""
    device = device_at(level, precision)
    stack, other = (random_blocks(rng, (5, 45, 2), kind) for _ in range(2))
    offsets = np.array([0, 7, 7 + TOKENS, 7 + TOKENS, 47 + TOKENS, 55 + 2 * TOKENS], np.int32)
    x = rng.standard_normal((offsets[-1], test_gguf.width(stack)), np.float32)
    for stacks in ((stack,), (stack, other)):
        y = test_gguf.run_grouped(device, x, offsets, *stacks)
        for e in range(5):
            rows = slice(offsets[e], offsets[e + 1])
            if rows.start < rows.stop:
                plain = plain_product(device, "gguf", rows.stop - rows.start, gated=len(stacks) == 2)
                own = (gguf.expert(w, e) for w in stacks)
                np.testing.assert_array_equal(y[rows], test_gguf.run_product(device, plain, x[rows], *own))


WITHOUT_ROOM = """
import ctypes, faulthandler
faulthandler.disable()  # it has a signal stack of its own

class Stack(ctypes.Structure):
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

memory = ctypes.create_string_buffer(4096)
small = Stack(ctypes.cast(memory, ctypes.c_void_p), 0, 4096)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(small), None) == 0
import numpy as np
import pyturbo
from pyturbo import ops
device = pyturbo.Device("cpu")
assert device.properties["kernels"] == "vnni", device.properties
w = ops.affine_quantize(np.ones((40, 64), np.float32), 4, 32)
y = ops.affine_matmul(np.ones((70, 64), np.float32), *w, 4, 32, device=device)
assert (y == 64).all()
"""


@pytest.mark.skipif("amx" not in LEVELS, reason="needs AMX")
def test_another_level_serves_where_linux_refuses_the_tiles(tmp_path):
    """Linux does so where a signal stack is too small for them."""
    require_clean(run_script(WITHOUT_ROOM, tmp_path))
