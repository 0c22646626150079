"""The types of tensors in GGUF files, and the kinds of values in their metadata."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyturbo.ops.gguf_format import GGUF_TYPES


class TensorType(NamedTuple):
    """A row consists of blocks of `values` values in `nbytes` bytes."""

    code: int
    values: int
    nbytes: int


_CODES = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
    "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39,
}  # fmt: skip

TYPES = {
    "F32": TensorType(0, 1, 4),
    "F16": TensorType(1, 1, 2),
    "BF16": TensorType(30, 1, 2),
    **{name: TensorType(_CODES[name], block.values, block.bytes) for name, block in GGUF_TYPES.items()},
}

#: Types that are refused by name.
OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 31: "Q4_0_4_4",
    32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip

MAGIC = b"GGUF"
STRING, ARRAY, BOOL = 8, 9, 7

#: Numbers of metadata by the code of their kind.
NUMBERS = {
    code: np.dtype(kind)
    for code, kind in (
        (0, "<u1"), (1, "<i1"), (2, "<u2"), (3, "<i2"), (4, "<u4"), (5, "<i4"),
        (6, "<f4"), (BOOL, "<u1"), (10, "<u8"), (11, "<i8"), (12, "<f8"),
    )
}  # fmt: skip
