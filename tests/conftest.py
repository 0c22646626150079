"""What all tests share: the devices, and the test-only kernels."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

import pyturbo
from pyturbo import _native_tests  # noqa: F401  makes the kernels of tests/shaders known to every device

pytest_plugins = ["plugins.coverage", "plugins.quick", "plugins.share"]

# What Metal devices keep on disk goes where it does not outlive the run.
os.environ["PYTURBO_CACHE"] = tempfile.mkdtemp(prefix="pyturbo-tests-")
atexit.register(shutil.rmtree, os.environ["PYTURBO_CACHE"], ignore_errors=True)

# On a busy machine nothing is too slow.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

HAS_SOFT_METAL = importlib.util.find_spec("pyturbo._soft_metal_tests") is not None
if HAS_SOFT_METAL:
    from pyturbo import _soft_metal_tests as soft_metal  # makes the device "metal" known


@pytest.fixture(autouse=True)
def no_violation() -> Iterator[None]:
    """Nothing that soft Metal watches over goes wrong in any test that does not ask for it."""
    if not HAS_SOFT_METAL:
        yield
        return
    soft_metal.reset()
    yield
    assert soft_metal.violations() + soft_metal.warnings() == []
    soft_metal.reset()


@pytest.fixture(params=pyturbo.devices(), scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[pyturbo.Device]:
    """Each device of this machine in turn, with two threads, so that work is split on any machine."""
    with pyturbo.Device(request.param, threads=2) as device:
        yield device


@pytest.fixture(scope="session")
def checked() -> Iterator[pyturbo.Device]:
    """The reference device under the checker."""
    with pyturbo.Device("cpu:reference", check=True) as device:
        yield device
