"""The Objective-C++ cases of tests/soft_metal/cases, collected one by one.

Each rule of soft Metal is broken once and kept once. What Apple's own validation says in the same place
cannot be seen here. The cases run in a process of their own: they count every object that is alive.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("pyturbo._soft_metal_tests") is None:
    pytest.skip("gobjc++ or libgnustep-base-dev is missing", allow_module_level=True)

from pyturbo import _soft_metal_tests as soft_metal

RUN_ALL = """
import json
from pyturbo import _native_tests, _soft_metal_tests as soft_metal

def failure(case):
    try:
        soft_metal.run(case)
    except Exception as error:
        return str(error)

print(json.dumps({case: failure(case) for case in soft_metal.cases()}))
"""

CONTROL = """
from pyturbo import _native_tests, _soft_metal_tests as soft_metal

soft_metal.run("soft_unbound_argument_under_a_constant")  # ends with a look-alike that works
assert soft_metal.violations() == soft_metal.warnings() == []
assert soft_metal.counters()["dispatches"] == 2
assert soft_metal.live_objects() == {}
soft_metal.reset()
assert not any(soft_metal.counters().values())
"""


def run(script: str, folder: Path) -> str:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What went wrong in each case."""
    result: dict[str, str | None] = json.loads(run(RUN_ALL, tmp_path_factory.mktemp("soft_metal")))
    return result


@pytest.mark.parametrize("case", soft_metal.cases())
def test_soft_metal(failures: dict[str, str | None], case: str) -> None:
    assert failures[case] is None


def test_control_from_python(tmp_path: Path) -> None:
    run(CONTROL, tmp_path)
    with pytest.raises(TypeError, match="no option colour"):
        soft_metal.set_options(colour=1)
    with pytest.raises(KeyError):
        soft_metal.inject("rain")
