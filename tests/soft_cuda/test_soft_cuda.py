"""The C++ cases of tests/soft_cuda/cases, collected one by one.

Each rule of soft CUDA is broken once and kept once. What NVIDIA's driver does in the same place cannot be
seen here. The cases run in a process of their own: they count every object that is alive.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("pyturbo._soft_cuda_tests") is None:
    pytest.skip("soft CUDA is for Linux", allow_module_level=True)

from pyturbo import _soft_cuda_tests as soft_cuda

RUN_ALL = """
import json
from pyturbo import _native_tests, _soft_cuda_tests as soft_cuda

def failure(case):
    try:
        soft_cuda.run(case)
    except Exception as error:
        return str(error)

print(json.dumps({case: failure(case) for case in soft_cuda.cases()}))
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """Return what went wrong in each case."""
    command = [sys.executable, "-c", RUN_ALL]
    folder: Path = tmp_path_factory.mktemp("soft_cuda")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, str | None] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("case", soft_cuda.cases())
def test_soft_cuda(failures: dict[str, str | None], case: str) -> None:
    assert failures[case] is None


def test_control_from_python() -> None:
    with pytest.raises(TypeError, match="no option colour"):
        soft_cuda.set_options(colour=1)
    with pytest.raises(KeyError):
        soft_cuda.inject("rain")
