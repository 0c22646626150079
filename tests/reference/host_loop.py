"""Reference of shaders/host_loop/."""

from __future__ import annotations

import numpy as np


def gate(
    missing: int, passed: int, groups: np.ndarray, number: int, begin: int, end: int
) -> tuple[int, np.ndarray]:
    """What passed and groups are afterwards."""
    if missing == 0 and passed == number:
        return number + 1, groups
    closed = groups.copy()
    closed[begin:end] = 0
    return passed, closed
