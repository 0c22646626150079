"""Devices whose kernels are made for each instruction set level of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyturbo
from pyturbo import _native_tests

LEVELS = _native_tests.levels()


@contextmanager
def forced(level: str) -> Iterator[None]:
    before = os.environ.get("PYTURBO_ISA")
    os.environ["PYTURBO_ISA"] = level
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTURBO_ISA"]
        else:
            os.environ["PYTURBO_ISA"] = before


def device_at(level: str, precision: str = "default", threads: int = 2) -> pyturbo.Device:
    with forced(level):
        return pyturbo.Device("cpu", precision=precision, threads=threads, check=False)
