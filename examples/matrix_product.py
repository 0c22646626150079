"""One matrix product at 2 to 8 bits: how small, how exact, how fast."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

import pyturbo
from pyturbo import ops
from pyturbo.errors import ArgumentError

OUT, IN, GROUP = 1000, 4096, 64


def main() -> None:
    console = Console(highlight=False)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((OUT, IN), np.float32)
    x = rng.standard_normal((1, IN), np.float32)
    exact = x.astype(np.float64) @ weight.T

    console.print(f"A matrix of {OUT} x {IN} float32 values: {weight.nbytes / 2**20:.1f} MiB\n")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("bits", "size", "error of the kernel", "error of the weights", "time"):
        table.add_column(column, justify="right")
    for bits in (2, 3, 4, 5, 6, 8):
        matrix = ops.affine_quantize(weight, bits=bits, group_size=GROUP)
        begin = time.perf_counter()
        y = ops.affine_matmul(x, *matrix, bits=bits, group_size=GROUP)
        microseconds = (time.perf_counter() - begin) * 1e6
        same = x.astype(np.float64) @ ops.affine_dequantize(*matrix, bits=bits, group_size=GROUP).T
        size = sum(array.nbytes for array in matrix) / 2**20
        errors = f"{error(y, same):.1e}", f"{error(same, exact):.2f}"
        table.add_row(str(bits), f"{size:.2f} MiB", *errors, f"{microseconds:.0f} us")
    console.print(table)
    console.print("Errors are the largest difference, in standard deviations of the exact product.")

    console.print("\nThe shader says what it needs, and every launch is held to it:")
    kernel = pyturbo.Device("cpu").kernel("affine_matvec_b4_f32")
    matrix = ops.affine_quantize(weight, bits=4, group_size=GROUP)
    try:
        kernel(x, *matrix, np.empty(10, np.float32), 1, IN, OUT, GROUP)
    except ArgumentError as refusal:
        console.print(f"  {refusal}", markup=False)


def error(y: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference, in units of the reference's standard deviation."""
    return float(np.abs(y - reference).max() / reference.std())


if __name__ == "__main__":
    main()
