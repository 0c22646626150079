"""Makes tests/goldens/hadamard.json: the signs of mx.hadamard_transform where dim is not a power of two.

python tests/oracle/make_hadamard_goldens.py            # writes
python tests/oracle/make_hadamard_goldens.py --check    # compares with what is there
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

GOLDEN = Path(__file__).parents[1] / "goldens" / "hadamard.json"


def signs(dim: int) -> list[str]:
    """Row i of the matrix that MLX multiplies a vector by, as '+' and '-'."""
    columns = np.array(mx.hadamard_transform(mx.eye(dim), scale=1.0))
    return ["".join("+" if value > 0 else "-" for value in row) for row in columns.T]


def main() -> None:
    text = json.dumps({str(dim): signs(dim) for dim in (12, 20, 80, 96)}, indent=0) + "\n"
    if "--check" not in sys.argv:
        GOLDEN.write_text(text)
    elif GOLDEN.read_text() != text:
        sys.exit(f"{GOLDEN}: expected what MLX computes, got something else")


if __name__ == "__main__":
    main()
