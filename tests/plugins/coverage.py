"""Ends every run with a line that says which devices and processor levels were tested.

With CI=true in the environment, a whole run fails when a device or a level of this machine passed no test.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

import pyturbo
from kernels.levels import LEVELS

#: On Linux, Metal is the soft Metal of tests/soft_metal and CUDA the soft CUDA of tests/soft_cuda.
DEVICES = sorted({*pyturbo.devices(), "metal"} | ({"cuda"} if sys.platform == "linux" else set()))
WITHOUT_METAL = (
    "metal is not here: it needs a GPU of the family Apple7 or newer"
    if sys.platform == "darwin"
    else "metal is not in this build: it needs GCC with gobjc++, and libgnustep-base-dev"
)

#: Options that leave tests out.
PARTIAL = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "quick")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # under xdist only the controller sees all reports
        config.pluginmanager.register(Coverage(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record in the report on which device the test ran, and at which level."""
    report = yield
    if report.when == "call":
        arguments = getattr(item, "funcargs", {})
        device, level = arguments.get("device"), arguments.get("level")
        if isinstance(device, pyturbo.Device) and not device.closed:
            device, level = device.name, device.properties.get("kernels")
        report.user_properties += [("device", device)] if device in DEVICES else []
        report.user_properties += [("level", level)] if level in LEVELS else []
    return report


class Coverage:
    """Counts passed tests, and their seconds, by device and by level."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.passed: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            for kind, name in report.user_properties:
                if kind in ("device", "level"):
                    self.passed[name] += 1
                    self.seconds[name] += report.duration

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        missing = [name for name in (*DEVICES, *LEVELS) if not self.passed[name]]
        failed = bool(missing) and os.environ.get("CI") == "true" and is_whole(self.config)
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not self.config.option.collectonly:
            reporter.write_line(self.summary())
            if failed:
                reporter.write_line(f"FAILED: CI=true, and no test passed on: {', '.join(missing)}", red=True)

    def summary(self) -> str:
        def shown(name: str) -> str:
            count = self.passed[name]
            return f"{name} {count} in {self.seconds[name]:.0f} s" if count else f"{name} none"

        devices, levels = (", ".join(map(shown, names)) for names in (DEVICES, LEVELS))
        reason = "" if "metal" in pyturbo.devices() else f" ({WITHOUT_METAL})"
        return f"passed on devices: {devices}{reason}; at levels: {levels or 'this machine has none'}"


def is_whole(config: pytest.Config) -> bool:
    """Return whether the run has every test."""
    return config.args == config.getini("testpaths") and not any(
        config.getoption(name, None) for name in PARTIAL
    )
