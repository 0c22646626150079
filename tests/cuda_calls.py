"""What tests of soft CUDA launch, and the objects of the driver that are alive."""

from __future__ import annotations

from collections import Counter

import numpy as np

import pyturbo
from pyturbo import _soft_cuda_tests as soft_cuda


def made_since(before: Counter[str]) -> Counter[str]:
    """Objects by class that were made since then and are alive."""
    return Counter(soft_cuda.live_objects()) - before


def add(device: pyturbo.Device, n: int = 64) -> np.ndarray:
    y = np.zeros(n, np.float32)
    device.kernel("add")(np.arange(n, dtype=np.float32), np.ones(n, np.float32), y, n)
    return y


def full(device: pyturbo.Device, value: float, n: int = 64) -> pyturbo.Buffer:
    buffer = device.empty(n)
    buffer.write(np.full(n, value, np.float32))
    return buffer
