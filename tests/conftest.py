"""What all tests share: the devices, and the test-only kernels."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

import pyturbo
from pyturbo import _native_tests  # noqa: F401  makes the kernels of tests/shaders known to every device

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the tests of each device took."""
    seconds = dict.fromkeys(pyturbo.devices(), 0.0)
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        parameters = report.nodeid.partition("[")[2].rstrip("]")
        for name in sorted(seconds, key=len, reverse=True):
            if re.search(rf"(^|-){name}(-|$)", parameters):
                seconds[name] += report.duration
                break
    times = ", ".join(f"{name} {total:.0f} s" for name, total in seconds.items())
    terminalreporter.write_line(f"time in tests of one device: {times}")
    if "metal" not in seconds:
        terminalreporter.write_line(
            "the device metal was not tested: gobjc++ or libgnustep-base-dev is missing"
        )


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
    """Each device of this machine in turn."""
    with pyturbo.Device(request.param) as device:
        yield device


@pytest.fixture(scope="session")
def checked() -> Iterator[pyturbo.Device]:
    """The reference device under the checker."""
    with pyturbo.Device("cpu:reference", check=True) as device:
        yield device
