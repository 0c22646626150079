"""How far a result may lie from its float64 reference, by storage type of the result and kind of operation.

Each number multiplies the reference's magnitude, or where a test names one, the magnitude of the terms that
were added. It is a property of the arithmetic, not of a test: it is never loosened to make one pass.
"""

import os

# The matrix units of an NVIDIA GPU take some operands as sums of two bfloats, of 17 bits.
_ROUNDED = 2.0**-17 if os.environ.get("PYTURBO_TEST_GPU") == "1" else 0.0

TOLERANCES: dict[str, dict[str, float]] = {
    "f32": {
        "exact": 0.0,
        "elementwise": 1e-6,  # a few roundings and one exponential
        "norm": 2e-6,  # sum of squares, rsqrt and two or three products
        "dot": 1e-6,  # of the sum of |terms|; up to 256 fused additions in each lane
        "long dot": 2e-6 + _ROUNDED,  # of the sum of |terms|; up to 18432 additions one after another
        "long dot of bfloats": 2e-6 + 2.0**-8,  # the same where both factors are rounded to 8 bits
        "attention": 2e-6,  # of the sum of |terms| times 1 + the largest sum of |q k| in a score
        "attention of bfloat": 2e-6 + _ROUNDED,  # the same where keys and values are bfloat
        "rotation": 5e-7,  # of the pair's length; precise sine and cosine
    },
}

# Below the smallest normal f32 a device may flush a result, or a factor of it, to zero.
FLUSHED = 1.2e-38

# How far a CPU body may lie from its shader, of the largest result: f32 in another order of additions.
BODIES = 2e-5

# A step of a 16-bit float: a result of that type may round the other way.
STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}

# Share of words of codes that may differ between a body and its shader: a value next to a boundary.
BODY_CODES = 1e-3
