"""Devices whose kernels are made for each instruction set level of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyturbo
from pyturbo.errors import ArgumentError

BUILT = ("vnni", "avx512", "avx2", "dotprod", "neon")


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


def _exists(level: str) -> bool:
    try:
        device_at(level).close()
    except ArgumentError:
        return False
    return True


LEVELS = [level for level in BUILT if _exists(level)]
