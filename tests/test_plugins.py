"""How the tests are run: what is said of devices, what --quick keeps, how processes share the cores.

The plugins of tests/plugins run in a process of their own, over small test files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.levels import LEVELS
from plugins.coverage import DEVICES, WITHOUT_METAL
from plugins.spread import EMULATED

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent

PLUGINS = ("--disable-plugin-autoload", "-p", "xdist.plugin")

CONFTEST = """
import pytest
from pyturbo import _native_tests
pytest_plugins = ["plugins.coverage", "plugins.quick", "plugins.share", "plugins.spread"]
"""


def run(folder: Path, source: str, *options: str, **variables: str) -> tuple[int, list[str]]:
    """Run the tests of `source`, all of a project of its own; return the status and the lines."""
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text("import os\nimport pytest\nimport pyturbo\n" + source)
    names = ("CI", "PYTURBO_THREADS", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGINS, *options],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(TESTS)} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout.splitlines()


ONE_DEVICE = """
@pytest.mark.parametrize("device", [pyturbo.Device("cpu")], ids=["cpu"])
def test_it(device):
    pass
"""


def last_line(*, passed: bool) -> str:
    """What a run of ONE_DEVICE ends with where metal is in the build."""
    levels = ["1 in 0 s" if passed and level == LEVELS[0] else "none" for level in LEVELS]
    shown = ", ".join(f"{level} {count}" for level, count in zip(LEVELS, levels))
    cpu = "1 in 0 s" if passed else "none"
    devices = ", ".join(f"{name} {cpu if name == 'cpu' else 'none'}" for name in DEVICES)
    return f"passed on devices: {devices}; at levels: {shown or 'this machine has none'}"


def without_reason(line: str) -> str:
    """Remove why there is no metal."""
    return line.replace(f" ({WITHOUT_METAL})", "")


def test_the_last_line_counts_what_passed_by_device_and_level(tmp_path: Path) -> None:
    status, lines = run(tmp_path, ONE_DEVICE)
    assert (status, without_reason(lines[-1])) == (0, last_line(passed=True))
    status, lines = run(tmp_path, ONE_DEVICE.replace("pass", "assert False"))
    assert (status, without_reason(lines[-1])) == (1, last_line(passed=False))


@pytest.mark.parametrize("processes", [["-n", "2"], ["--tx", "popen", "--tx", "1*popen", "--dist", "load"]])
def test_processes_report_together_and_share_the_cores(tmp_path: Path, processes: list[str]) -> None:
    source = """
@pytest.mark.parametrize("number", range(9))
def test_threads(number):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert os.environ["PYTURBO_THREADS"] == str(max(1, cores // 2))
    assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
"""
    status, lines = run(tmp_path, ONE_DEVICE + source, *processes)
    assert (status, without_reason(lines[-1])) == (0, last_line(passed=True))
    assert any(line.startswith("10 passed") for line in lines)


def test_ci_demands_every_device_of_a_whole_run(tmp_path: Path) -> None:
    missing = ", ".join([*(name for name in DEVICES if name != "cpu"), *LEVELS[1:]])
    status, lines = run(tmp_path, ONE_DEVICE, CI="true")
    assert (status, lines[-1]) == (1, f"FAILED: CI=true, and no test passed on: {missing}")
    for part in (["test_it.py"], ["-k", "test_it"], ["--quick"]):
        status, lines = run(tmp_path, ONE_DEVICE, *part, CI="true")
        assert status == 0
        assert lines[-1].startswith("passed on devices: ")


def test_quick_keeps_each_test_once_on_each_device(tmp_path: Path) -> None:
    source = """
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", [["f32"], ["f16"]], ids=["f32", "f16"])
@pytest.mark.parametrize("device", ["cpu", "metal", "cpu at avx2"])
def test_cases(device, kind, bits):
    pass

@pytest.mark.parametrize("level", ["vnni", "avx2"])
def test_levels(level):
    pass

@pytest.mark.parametrize("level", [pytest.param("vnni", marks=pytest.mark.slow), "avx2"])
def test_marked_case(level):
    pass

@pytest.mark.slow
def test_slow():
    pass

def test_plain():
    pass
"""
    _, lines = run(tmp_path, source, "--quick", "--collect-only")
    assert [line.partition("::")[2] for line in lines if "::" in line] == [
        "test_cases[cpu-f32-2]",
        "test_cases[metal-f32-2]",
        "test_levels[vnni]",
        "test_marked_case[avx2]",
        "test_plain",
    ]


def test_cases_are_spread_over_emulated_devices(tmp_path: Path) -> None:
    """Each runs on the CPU and on one other device, each of which has some of them."""
    source = """
@pytest.mark.spread
@pytest.mark.parametrize("bits", range(9))
@pytest.mark.parametrize("device", ["cpu", "cpu at avx2", "cpu:reference", "metal", "cuda"])
def test_spread(device, bits):
    pass

@pytest.mark.parametrize("device", ["cpu:reference", "metal", "cuda"])
def test_whole(device):
    pass
"""
    _, lines = run(tmp_path, source, "--collect-only")
    names = [re.fullmatch(r"test_it\.py::(\w+)\[(.+?)(?:-(\d))?\]", line) for line in lines]
    found = [name.groups() for name in names if name is not None]
    spread = [(device, bits) for test, device, bits in found if test == "test_spread"]
    assert len(found) == len(spread) + 3
    for device in EMULATED:
        assert sum(name == device for name, _ in spread) == 9 // len(EMULATED)
    for bits in map(str, range(9)):
        assert sum(name in EMULATED for name, each in spread if each == bits) == 1
        assert {("cpu", bits), ("cpu at avx2", bits)} <= {*spread}


def test_quick_names_tests_that_should_be_marked(tmp_path: Path) -> None:
    source = """
import plugins.quick
plugins.quick.SLOW = -1.0

def test_long():
    pass
"""
    status, lines = run(tmp_path, source, "--quick")
    assert status == 0
    assert "  test_it.py::test_long" in lines
