"""Memory that weights are put into where they cannot stay in their file."""

import numpy as np
import pytest

from pyturbo._arrays import BLOCK, LINE, Arena


def test_arrays_are_apart_aligned_and_zero() -> None:
    arena = Arena()
    shapes = [(3,), (5, 7), (0,), (1000, 1000), (1,), (BLOCK // 4,), (BLOCK,), (2, 2)]
    arrays = [arena.empty(shape, dtype) for shape in shapes for dtype in (np.uint8, np.float16, np.uint32)]
    for i, array in enumerate(arrays):
        assert array.size == 0 or array.ctypes.data % LINE == 0
        assert not array.any()
        array[...] = i
    for i, array in enumerate(arrays):
        assert (array == i).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_many_arrays_share_one_allocation(dtype: type) -> None:
    arena = Arena()
    arrays = [arena.empty((1000,), dtype) for _ in range(10)]
    starts = [array.ctypes.data for array in arrays]
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] < BLOCK
