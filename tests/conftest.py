"""Fixtures and settings of all tests: the devices, and the test-only kernels."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

import cuda_in_tests  # before pyturbo, which reads what this sets
import pyturbo
from pyturbo import _native_tests  # makes the kernels of tests/shaders known

pytest_plugins = ["plugins.coverage", "plugins.quick", "plugins.share", "plugins.spread"]

# GPUs cache compiled kernels in a folder that is deleted after the run.
os.environ["PYTURBO_CACHE"] = tempfile.mkdtemp(prefix="pyturbo-tests-")
atexit.register(shutil.rmtree, os.environ["PYTURBO_CACHE"], ignore_errors=True)

# Tests have no deadline: a busy machine must not make them fail.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

WATCHED = []  # what stands in for a GPU and reports misuse of its API
HAS_SOFT_METAL = importlib.util.find_spec("pyturbo._soft_metal_tests") is not None
if HAS_SOFT_METAL:
    from pyturbo import _soft_metal_tests  # makes the device "metal" known

    WATCHED.append(_soft_metal_tests)

HAS_SOFT_CUDA = cuda_in_tests.IN_USE
if HAS_SOFT_CUDA:
    from pyturbo import _soft_cuda_tests

    WATCHED.append(_soft_cuda_tests)


def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of every garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_violation() -> Iterator[None]:
    """Require that soft Metal and soft CUDA have reported nothing by the end of the test."""
    for soft in WATCHED:
        soft.reset()
    yield
    for soft in WATCHED:
        assert soft.violations() + soft.warnings() == []
        soft.reset()


@pytest.fixture
def plain_reads() -> Iterator[None]:
    """Let reads of experts be plain ones again after the test."""
    yield
    _native_tests.plain_reads()


@pytest.fixture(params=pyturbo.devices(), scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[pyturbo.Device]:
    """Each device of this machine in turn, with two threads, so that work is split on any machine."""
    check = None if request.param.startswith("cpu") else False  # GPUs have no checker for PYTURBO_CHECK=1
    with pyturbo.Device(request.param, threads=2, check=check) as device:
        yield device


@pytest.fixture(scope="session")
def checked() -> Iterator[pyturbo.Device]:
    """The reference device under the checker."""
    with pyturbo.Device("cpu:reference", check=True) as device:
        yield device
