"""Products with weights that are not quantised."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pyturbo.ops._checks import stored_weight, values
from pyturbo.ops._run import Array, DeviceLike, empty, launch, resolve


def matmul(x: ArrayLike, w: ArrayLike, *, device: DeviceLike = None) -> Array:
    """``x @ w.T``: x [tokens, in] float32, w [out, in] float32, float16 or bfloat16 -> [tokens, out] float32.

    The bits of one row of the result do not depend on how many tokens are computed with it.
    """
    x = values("matmul", "x", x, axes=2)
    tokens, inputs = x.shape
    w, kind = stored_weight("matmul", w, (None, inputs))
    outputs = w.shape[0]
    device = resolve(device)
    y = empty(device, (tokens, outputs))
    launch(device, f"matmul_{kind}", x, w, y, tokens, outputs, inputs)
    return y.numpy()
