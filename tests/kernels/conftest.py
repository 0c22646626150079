"""Fixtures of the kernel tests."""

import numpy as np
import pytest

import pyturbo
from kernels.levels import LEVELS, device_at


@pytest.fixture
def rng():
    return np.random.default_rng(20240617)


# The CPU device chooses the best level, so the others are parameters of their own.
@pytest.fixture(params=[*pyturbo.devices(), *(f"cpu at {level}" for level in LEVELS[1:])], scope="session")
def device(request):
    """Return each device of this machine in turn, then the CPU device at its lower levels.

    All have two threads, so that work is split on any machine.
    PYTURBO_CHECK=1 checks the CPU devices; Metal has no checker.
    """
    name, _, level = request.param.partition(" at ")
    if level:
        return device_at(level)
    return pyturbo.Device(name, threads=2, check=False if name == "metal" else None)
