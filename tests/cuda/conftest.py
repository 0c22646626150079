"""A CUDA device, through soft CUDA, for each test that asks for one."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyturbo


@pytest.fixture
def cuda() -> Iterator[pyturbo.Device]:
    with pyturbo.Device("cuda") as device:
        yield device


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


@pytest.fixture
def before() -> Counter[str]:
    """What other tests keep alive."""
    from pyturbo import _soft_cuda_tests as soft_cuda

    gc.collect()
    return Counter(soft_cuda.live_objects())
