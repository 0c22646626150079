"""What all kernel tests share."""

import numpy as np
import pytest

import pyturbo
from kernels.levels import LEVELS, device_at


@pytest.fixture
def rng():
    return np.random.default_rng(20240617)


# A device takes the best level; the others of this machine are tested beside it.
@pytest.fixture(params=[*pyturbo.devices(), *(f"cpu at {level}" for level in LEVELS[1:])], scope="session")
def device(request):
    """Each device of this machine in turn, and the CPU device at each of its lower levels; all with two
    threads, so that work is split on any machine."""
    name, _, level = request.param.partition(" at ")
    return device_at(level) if level else pyturbo.Device(name, threads=2)
