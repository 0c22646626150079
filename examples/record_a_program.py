"""Kernels by hand: one launch, then two operations recorded once and replayed without Python in between."""

from __future__ import annotations

import numpy as np

import pyturbo
from pyturbo import Recorder, Tensor, ops, symbol

MOST, DIM = 512, 256


def main() -> None:
    device = pyturbo.Device("cpu")
    rng = np.random.default_rng(0)
    x, gate = rng.standard_normal((2, 1000), np.float32)

    kernel = device.kernel("sigmoid_gate")
    y = device.empty(x.shape)
    kernel(x, gate, y, x.size)  # arguments in the order of the shader; arrays are used where they lie
    print(f"{kernel} differs from NumPy by {np.abs(y.numpy() - x / (1 + np.exp(-gate))).max():.1e}")

    rows, weight = device.empty((MOST, DIM)), np.ones(DIM, np.float32)
    with Recorder(device, {"tokens": MOST}) as recorder:
        tokens = Tensor(rows, (symbol("tokens"), DIM), np.float32)
        normed = ops.rms_norm(tokens, weight, 1e-6)
        result = ops.swiglu(normed, tokens)
    program = recorder.program
    print(f"\n{program!r}\n{program}\n")

    for count in (1, 17, MOST):
        rows.numpy()[:count] = rng.standard_normal((count, DIM), np.float32)
        program.run(tokens=count)
        shown = result.memory.view((count, DIM)).numpy()
        seconds = sum(seconds for _, _, seconds in program.profile(tokens=count))
        print(f"{count:4} rows: {seconds * 1e6:6.0f} us, largest value {shown.max():.3f}")


if __name__ == "__main__":
    main()
