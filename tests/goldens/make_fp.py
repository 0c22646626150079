"""Writes fp_quantize.npz: what ``mx.quantize`` and ``mx.dequantize`` make of rows in formats of small floats.

Run with the oracle extra installed; MLX's CPU device is used, since its Metal device rounds otherwise:

    python tests/goldens/make_fp.py
"""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
GLOBAL_SCALE = 3.7


def rows() -> np.ndarray:
    """[8, 128] float32 whose groups stay in the range of every mode and type."""
    rng = np.random.default_rng(21)
    w = rng.standard_normal((8, 128)).astype(np.float32)
    w[1] = rng.uniform(0.5, 2.0, 128)
    w[2, :64] = 0
    w[3, :64] *= 1e-2
    w[3, 64:] *= 100
    w[4, ::40] *= 300
    halfway = np.array([6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    w[5] = np.tile(np.concatenate([halfway, -halfway]), 8)
    halfway = np.array([448, 17, 19, 1.0625, 1.1875, 432, 2**-10, 3 * 2**-10], np.float32)
    w[6] = np.tile(np.concatenate([halfway, -halfway]), 8)
    w[7, ::32] = [6, np.nextafter(np.float32(6), np.float32(7)), 448, 448.0001]
    w[7, 1::32] = -5.9
    return w


def bits_of(array: mx.array) -> np.ndarray:
    kinds = {mx.float32: mx.uint32, mx.float16: mx.uint16, mx.bfloat16: mx.uint16}
    return np.array(array.view(kinds.get(array.dtype, array.dtype)))


def main() -> None:
    mx.set_default_device(mx.cpu)
    golden: dict[str, np.ndarray] = {"global_scale": np.float32(GLOBAL_SCALE)}
    for kind, dtype in TYPES.items():
        w = mx.array(rows()).astype(dtype)
        golden[f"w_{kind}"] = bits_of(w)
        for mode in ("mxfp4", "mxfp8", "nvfp4"):
            packed, scales = mx.quantize(w, mode=mode)
            golden[f"packed_{kind}_{mode}"] = bits_of(packed)
            golden[f"scales_{kind}_{mode}"] = bits_of(scales)
            values = mx.dequantize(packed, scales, mode=mode, dtype=mx.float32)
            golden[f"values_{kind}_{mode}"] = bits_of(values)
    scale = mx.array(np.float32(GLOBAL_SCALE))
    packed, scales = mx.quantize(mx.array(rows()[:2]), mode="nvfp4", global_scale=scale)
    golden["packed_global"], golden["scales_global"] = bits_of(packed), bits_of(scales)
    values = mx.dequantize(packed, scales, mode="nvfp4", global_scale=scale, dtype=mx.float32)
    golden["values_global"] = np.array(values)
    np.savez_compressed(Path(__file__).with_name("fp_quantize.npz"), **golden)


if __name__ == "__main__":
    main()
