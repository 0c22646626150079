"""`pytest --quick`: the part of the tests that `make check` runs.

Of each test, the first case on each device stays, at the best level of the machine. Tests marked `slow` are
left out; the run ends with the names of those that should be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

#: A test is slow from this many seconds of processor time on, which a busy machine hardly lengthens.
SLOW = 2.0

START = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="each test once on each device, nothing slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long or starts processes; --quick leaves it out")
    if config.getoption("quick"):
        config.pluginmanager.register(SlowTests(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("quick"):
        return
    seen: set[tuple[str, str]] = set()
    kept, left_out = [], []
    for item in items:
        case = case_of(item)
        if item.get_closest_marker("slow") is None and case not in seen:
            seen.add(case)
            kept.append(item)
        else:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def case_of(item: pytest.Item) -> tuple[str, str]:
    """Return the name of a test and the device of this case; `cpu at avx2` is the device `cpu`."""
    callspec = getattr(item, "callspec", None)
    device = str(callspec.params.get("device", "")) if callspec else ""
    return item.nodeid.partition("[")[0], device.partition(" at ")[0]


class SlowTests:
    """Names the tests that take too long for a quick run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.found: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[START] = processor_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append(("seconds", processor_time() - item.stash[START]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if dict(report.user_properties).get("seconds", 0) > SLOW:
            self.found.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.write_line(f"over {SLOW:.0f} s of processor time; mark them slow:")
            for name in sorted(self.found):
                terminalreporter.write_line(f"  {name}")


def processor_time() -> float:
    """Return the seconds that this process and those it waited for have had."""
    return sum(os.times()[:4])
