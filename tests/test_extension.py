"""A setuptools + Cython extension built against the installed package, as a user would build it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pyturbo
from pyturbo.errors import ArgumentError

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent / "extension"


@pytest.fixture(
    scope="session"
)  # tests are ordered by device first: a module's fixture would be made for each
def launcher(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("extension")
    for name in ("setup.py", "launcher.pyx"):
        shutil.copy(SOURCE / name, folder)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    quickly = os.environ | {"CFLAGS": "-O0"}  # Python's own flags ask for -O3
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=quickly)
    assert built.returncode == 0, built.stdout + built.stderr
    path = next(folder.glob("launcher*.so"))
    spec = importlib.util.spec_from_file_location("launcher", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_launches_without_the_gil(launcher: ModuleType, device: pyturbo.Device) -> None:
    a = np.arange(100, dtype=np.float32)
    b = np.full(100, 0.5, np.float32)
    out = np.zeros(100, np.float32)
    assert launcher.add_many(device.kernel("add"), a, b, out, 3) is False
    np.testing.assert_array_equal(out, a + b)


def test_errors_reach_python(launcher: ModuleType, device: pyturbo.Device) -> None:
    a = np.zeros(100, np.float32)
    with pytest.raises(ArgumentError, match="expected"):
        launcher.add_many(device.kernel("rms_norm_f32"), a, a, a.copy(), 1)
