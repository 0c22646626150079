"""Tests marked `spread`: each case runs on the CPU and on one of the three emulated devices.

This takes a third of the time of all devices. Mark tests of whole models, of random shapes, and those that
have several cases for each instance of a kernel, so that every instance still runs on each device. Other
tests of kernels, and the parity of every model, run on all devices. Cases are dealt out in order, so a
parameter that chooses the kernel must not change fastest where it has three values.

`spread("metal", "cuda")` deals the cases out to these devices only.
"""

from __future__ import annotations

from zlib import crc32

import pytest

import cuda_in_tests

#: Devices that take much longer than others. CUDA is one of them unless a GPU of this machine is.
EMULATED = ("cpu:reference", "metal", *(["cuda"] if cuda_in_tests.IN_USE else []))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spread: each case runs on one of the emulated devices only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, dict[str, int]] = {}  # of each test, the number of each case
    left_out = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        device = callspec.params.get("device") if callspec is not None else None
        marker = item.get_closest_marker("spread")
        devices = [] if marker is None else [name for name in marker.args or EMULATED if name in EMULATED]
        if device not in devices:
            continue
        test = item.nodeid.partition("[")[0]
        numbers = cases.setdefault(test, {})
        case = repr({name: value for name, value in callspec.params.items() if name != "device"})
        number = numbers.setdefault(case, len(numbers)) + crc32(test.encode())
        if device != devices[number % len(devices)]:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
