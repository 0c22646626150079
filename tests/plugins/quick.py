"""`pytest --quick`: the part of the tests that `make check` runs.

Of each test, a case stays if it is the first on its device or at its level, or the first with one of the
values of its parameters: every device and every value is there, but not every combination. Tests marked
`slow` are left out; the run ends with the names of those that should be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

#: Parameters that say where a test runs.
PLACES = ("device", "level")

#: A test is slow from this many seconds of processor time on, which a busy machine hardly lengthens.
SLOW = 2.0

START = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="every device and every value once, nothing slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes seconds of processor time; --quick leaves it out")
    if config.getoption("quick"):
        config.pluginmanager.register(SlowTests(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("quick"):
        return
    seen: set[object] = set()
    kept, left_out = [], []
    for item in items:
        stays = item.get_closest_marker("slow") is None and adds_to(seen, item)
        (kept if stays else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def adds_to(seen: set[object], item: pytest.Item) -> bool:
    """Add the values of a case to `seen`, and return whether one of them is new."""
    callspec = getattr(item, "callspec", None)
    values = {name: identity(value) for name, value in callspec.params.items()} if callspec else {}
    test = item.nodeid.partition("[")[0]
    place = tuple(values.pop(name, None) for name in PLACES)
    found = {(test, place), *((test, *value) for value in values.items())}
    new = not found <= seen
    seen |= found
    return new


def identity(value: object) -> object:
    """Return what equal values of one type have in common; lists and the like are equal to themselves."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


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
