"""Fixtures of the kernel tests."""

import ctypes
import mmap

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
    PYTURBO_CHECK=1 checks the CPU devices; GPUs have no checker.
    """
    name, _, level = request.param.partition(" at ")
    if level:
        return device_at(level)
    return pyturbo.Device(name, threads=2, check=None if name.startswith("cpu") else False)


@pytest.fixture(params=LEVELS, scope="module")
def level(request):
    """Return each level of this machine in turn."""
    return request.param


@pytest.fixture(scope="module")
def reference_device():
    return pyturbo.Device("cpu:reference", check=False)


@pytest.fixture
def at_the_edge():
    """Makes copies of arrays that end where the readable memory ends."""
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    held = []

    def copy(array):
        size = (array.nbytes + page - 1) // page * page
        memory = mmap.mmap(-1, size + page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert libc.mprotect(ctypes.c_void_p(base + size), page, 0) == 0
        out = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
        out[...] = array
        held.append((memory, base, size))
        return out

    yield copy
    for _, base, size in held:
        libc.mprotect(ctypes.c_void_p(base + size), page, mmap.PROT_READ | mmap.PROT_WRITE)
