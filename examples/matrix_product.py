"""One 4-bit matrix product, followed through the runtime."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.table import Table

import pyturbo
from pyturbo import ops
from pyturbo.errors import ArgumentError

OUT, IN = 1000, 4096


def main() -> None:
    console = Console(highlight=False)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((OUT, IN), np.float32)
    x = rng.standard_normal((1, IN), np.float32)

    console.print(f"A matrix of {OUT} x {IN} float32 values: {weight.nbytes / 2**20:.1f} MiB\n")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("bits", "size", "error of the kernel", "error of the weights", "time"):
        table.add_column(column, justify="right")
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    for bits in (2, 3, 4, 5, 6, 8):
        packed, scales, biases = ops.affine_quantize(weight, bits=bits, group_size=64)
        begin = time.perf_counter()
        y = ops.affine_matmul(x, packed, scales, biases, bits=bits, group_size=64)
        elapsed = time.perf_counter() - begin
        restored = ops.affine_dequantize(packed, scales, biases, bits=bits, group_size=64)
        same = x.astype(np.float64) @ restored.T.astype(np.float64)
        size = (packed.nbytes + scales.nbytes + biases.nbytes) / 2**20
        table.add_row(
            str(bits),
            f"{size:.2f} MiB",
            f"{error(y, same):.1e}",
            f"{error(same, exact):.2f}",
            f"{elapsed * 1e3:.0f} ms",
        )
    console.print(table)

    kernel = pyturbo.Device("cpu").kernel("affine_matvec_b4_f32")
    packed, scales, biases = ops.affine_quantize(weight, bits=4, group_size=64)
    y = np.zeros((1, OUT), np.float32)
    console.print("Errors are the largest difference, in standard deviations of the exact product.")
    console.print("\nThe shader says what it needs, and every launch is held to it:")
    try:
        kernel(x, packed, scales, biases, y[:, :10].copy(), 1, IN, OUT, 64)
    except ArgumentError as refusal:
        console.print(f"  {refusal}", markup=False)
    console.print(
        "\nThese are the Metal shaders themselves, run exactly and not fast."
        "\nNext: .venv/bin/pyturbo kernels, .venv/bin/pyturbo bench launch, docs/adding-a-kernel.md"
    )


def error(y: np.ndarray, reference: np.ndarray) -> float:
    """Largest difference, in units of the reference's standard deviation."""
    return float(np.abs(y - reference).max() / reference.std())


if __name__ == "__main__":
    main()
