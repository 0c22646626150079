"""Writes affine_quantize.npz: what ``mx.quantize`` and ``mx.dequantize`` make of rows with special groups.

Run with the oracle extra installed; MLX's CPU device is used, since its Metal device rounds otherwise:

    python tests/goldens/make_affine.py
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def rows() -> np.ndarray:
    """[7, 384] float32; the special rows change their nature every 128 values, so at every group size."""
    rng = np.random.default_rng(20)
    w = rng.standard_normal((7, 384)).astype(np.float32)
    w[1] = rng.uniform(0.5, 2.0, 384)
    w[2] = -rng.uniform(0.5, 2.0, 384)
    w[3, :128] = 0
    w[3, 128:256] = 0.3
    w[3, 256:] = -0.3
    w[4, :128] *= 1e-5
    w[4, 128:256] *= 1e4
    w[4, 256:] *= 1e-9
    w[5, ::40] *= 300
    w[6] = np.tile(np.arange(32, dtype=np.float32), 12)
    return w


def bits_of(array: mx.array) -> np.ndarray:
    return np.array(array.view(mx.uint32 if array.dtype in (mx.float32, mx.uint32) else mx.uint16))


def main() -> None:
    mx.set_default_device(mx.cpu)
    golden: dict[str, np.ndarray] = {}
    for kind, dtype in TYPES.items():
        w = mx.array(rows()).astype(dtype)
        golden[f"w_{kind}"] = bits_of(w)
        for bits in (2, 3, 4, 5, 6, 8):
            for group_size in (32, 64, 128):
                name = f"{kind}_b{bits}_g{group_size}"
                packed, scales, biases = mx.quantize(w, group_size=group_size, bits=bits)
                golden[f"packed_{name}"] = bits_of(packed)
                golden[f"scales_{name}"] = bits_of(scales)
                golden[f"biases_{name}"] = bits_of(biases)
                if group_size == 64:
                    back = mx.dequantize(packed, scales, biases, group_size=group_size, bits=bits)
                    golden[f"values_{name}"] = bits_of(back)
    np.savez_compressed(Path(__file__).with_name("affine_quantize.npz"), **golden)


if __name__ == "__main__":
    main()
