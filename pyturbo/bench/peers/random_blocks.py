"""Random weights in the block types of GGUF: random bits, and scales that give the values a certain size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyturbo._arrays import Array
from pyturbo.checkpoint.gguf_types import TYPES


class _Scales(NamedTuple):
    """The places of float16 numbers in a block, and the standard deviation of values if they are 1.

    The second one is an offset, times `middle` that of the first: the middle of the codes.
    """

    spread: float
    at: tuple[int, ...] = (0,)
    middle: float = 0.0


#: Codes are uniform, and so are the scales of parts of a block, which are integers.
_SCALES = {
    "Q4_0": _Scales(4.61),
    "Q4_1": _Scales(4.61, (0, 2), -7.5),
    "Q5_0": _Scales(9.23),
    "Q5_1": _Scales(9.23, (0, 2), -15.5),
    "Q8_0": _Scales(73.9),
    "Q2_K": _Scales(13.9, (80, 82), 1.5),
    "Q3_K": _Scales(43.5, (108,)),
    "Q4_K": _Scales(258.0, (0, 2), 7.5),
    "Q5_K": _Scales(524.0, (0, 2), 15.5),
    "Q6_K": _Scales(1366.0, (208,)),
    "IQ4_NL": _Scales(67.0),
    "IQ4_XS": _Scales(1250.0),
}

_EXPONENTS = 127  # of MXFP4, which has a power of two for each block in its first byte
_MXFP4_SPREAD = 2.92


def random_rows(rng: np.random.Generator, kind: str, rows: int, width: int, spread: float) -> Array:
    """Return rows of `width` values with about that standard deviation: uint8 [rows, bytes], or floats."""
    if kind in ("F32", "F16"):
        values: Array = rng.standard_normal((rows, width), np.float32)
        values *= spread
        return values.astype(np.float16) if kind == "F16" else values
    _, values_per_block, nbytes = TYPES[kind]
    data: Array = rng.integers(0, 256, (rows * width // values_per_block, nbytes), np.uint8)
    if kind == "MXFP4":
        data[:, 0] = _EXPONENTS + round(float(np.log2(spread / _MXFP4_SPREAD)))
    else:
        scales = _SCALES[kind]
        for at, factor in zip(scales.at, (1.0, scales.middle)):
            halves = np.full(len(data), factor * spread / scales.spread, np.float16)
            data[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)
