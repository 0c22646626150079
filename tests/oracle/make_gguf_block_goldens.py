"""Makes tests/goldens/gguf_blocks.npz: the values that the gguf package reads from blocks of each type.

PYTHONPATH=tests python tests/oracle/make_gguf_block_goldens.py            # writes
PYTHONPATH=tests python tests/oracle/make_gguf_block_goldens.py --check    # compares with what is there
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from kernels.random_blocks import FACTORS
from reference.gguf import SIZES

GOLDEN = Path(__file__).parents[1] / "goldens" / "gguf_blocks.npz"

#: Factors of blocks as bits: 65504, the smallest one, a negative one, -0, infinity and NaN.
EXTREMES = np.array([0x7BFF, 0x0001, 0xB1A7, 0x8000, 0x7C00, 0xFE00], np.uint16)
EXPONENTS = [0, 1, 2, 127, 254, 255]  # of MXFP4


def blocks(kind: str) -> np.ndarray:
    """Random bytes, of which the first block has ordinary factors, the others an extreme one each."""
    rng = np.random.default_rng(31)
    data = rng.integers(0, 256, (1 + len(EXTREMES), SIZES[kind][0]), np.uint8)
    for at, factor in FACTORS[kind].items():
        data[0, at : at + 2] = np.float16([factor]).view(np.uint8)
        data[1:, at : at + 2] = np.roll(EXTREMES, at // 2)[:, None].view(np.uint8)
    if kind == "MXFP4":
        data[1:, 0] = EXPONENTS
    return data


def main() -> None:
    golden = {}
    for kind in SIZES:
        data = blocks(kind)
        with np.errstate(all="ignore"):
            values = dequantize(data, GGMLQuantizationType[kind])
        golden[f"{kind}_blocks"], golden[f"{kind}_values"] = data, values.view(np.uint32)
    if "--check" not in sys.argv:
        np.savez_compressed(GOLDEN, **golden)
        return
    with np.load(GOLDEN) as stored:
        for name, array in golden.items():
            if not np.array_equal(stored[name], array):
                sys.exit(f"{GOLDEN}: {name}: expected what gguf computes, got something else")


if __name__ == "__main__":
    main()
