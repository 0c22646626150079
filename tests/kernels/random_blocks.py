"""Random weights in blocks of GGUF."""

import numpy as np

from reference.gguf import SIZES, Weight

#: Where a block has 16-bit factors, and a size of them that makes values around 1.
FACTORS = {
    "Q4_0": {0: 0.1}, "Q4_1": {0: 0.1, 2: -0.8}, "Q5_0": {0: 0.05}, "Q5_1": {0: 0.05, 2: -0.8},
    "Q8_0": {0: 0.01}, "Q2_K": {80: 0.1, 82: 0.1}, "Q3_K": {108: 0.02}, "Q4_K": {0: 4e-3, 2: 0.03},
    "Q5_K": {0: 2e-3, 2: 0.03}, "Q6_K": {208: 5e-4}, "IQ4_NL": {0: 0.01}, "IQ4_XS": {0: 6e-4}, "MXFP4": {},
}  # fmt: skip


def random_weight(rng, shape, kind):
    """A quantised array of values around 1; `shape` ends with (out, blocks of a row)."""
    size, _ = SIZES[kind]
    blocks = rng.integers(0, 256, (*shape, size), np.uint8)
    for at, factor in FACTORS[kind].items():
        factors = (factor * rng.uniform(0.5, 2, shape)).astype(np.float16)
        blocks[..., at : at + 2] = factors[..., None].view(np.uint8)
    if kind == "MXFP4":
        blocks[..., 0] = rng.integers(122, 128, shape)
    return Weight(blocks.reshape(*shape[:-1], -1), kind)
