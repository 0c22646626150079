"""Shares the cores of the machine between the processes of `pytest -n`.

Devices and NumPy take one thread per core unless told otherwise. The variables are set before the processes
start and reach the processes that tests start, too. The fixture `device` has two threads in any case, so that
kernels split their work; tests about threads name their number.
"""

from __future__ import annotations

import os

import pytest

VARIABLES = ("PYTURBO_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: of a file that takes minutes; it begins before all others")
    specs = config.getoption("tx", None) or ()  # such as popen, or 3*popen
    processes = sum(int(count) if star else 1 for count, star, _ in (spec.partition("*") for spec in specs))
    if processes > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for name in VARIABLES:
            os.environ.setdefault(name, str(max(1, cores // processes)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that no process ends with one while the others have nothing to do."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("long", "slow")])
