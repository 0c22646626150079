"""What all tests share: the devices, and the test-only kernels."""

from __future__ import annotations

import pytest

import pyturbo
from pyturbo import _native_tests  # noqa: F401  makes the kernels of tests/shaders known to every device


@pytest.fixture(params=pyturbo.devices(), scope="session")
def device(request: pytest.FixtureRequest) -> pyturbo.Device:
    """Each device of this machine in turn."""
    return pyturbo.Device(request.param)


@pytest.fixture(scope="session")
def checked() -> pyturbo.Device:
    """The reference device under the checker."""
    return pyturbo.Device("cpu:reference", check=True)
