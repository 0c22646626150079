"""The gate of host loops against its reference, on every device."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.harness import Out, run_kernel
from pyturbo import errors
from reference import host_loop as reference


@pytest.mark.parametrize("launches", [1, 5, 300])
@pytest.mark.parametrize(
    ("missing", "passed", "number"), [(0, 3, 3), (2, 3, 3), (0, 2, 3), (7, 0, 3), (0, 0, 0)]
)
def test_gate(device, rng, launches, missing, passed, number):
    groups = rng.integers(1, 2**32, (launches, 3), np.uint32)
    for begin, end in ((0, launches), (launches // 3, launches - 1), (launches, launches)):
        want_passed, want = reference.gate(missing, passed, groups, number, begin, end)
        state = Out((1,), np.uint32, [passed]), Out((launches, 3), np.uint32, groups)
        count = np.array([missing], np.uint32)
        got_passed, got = run_kernel(device, "gate", count, *state, number, begin, end)
        assert got_passed.tolist() == [want_passed]
        np.testing.assert_array_equal(got, want)


def test_wrong_calls(device):
    kernel, one, groups = device.kernel("gate"), device.empty(1, "uint32"), device.empty((4, 3), "uint32")
    with pytest.raises(errors.ArgumentError, match="gate: requires begin <= end"):
        kernel(one, one, groups, 0, 3, 2)
    with pytest.raises(errors.ArgumentError, match="gate: groups: expected at least 15 elements"):
        kernel(one, one, groups, 0, 3, 5)
    with pytest.raises(errors.ArgumentError, match="gate: requires end < 1431655765"):
        kernel(one, one, groups, 0, 3, 2**31)
