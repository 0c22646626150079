"""What a machine has of CUDA, through soft CUDA: drivers, NVRTC of several versions, no GPU, one or more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuda_in_tests
import pyturbo
from pyturbo.errors import DeviceError
from pyturbo.ops.attention import key_blocks

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from pyturbo import _soft_cuda_tests as soft_cuda

DEVICES = (
    "import pyturbo\nfrom pyturbo._device import missing_device_list as m\nprint(pyturbo.devices(), m())\n"
)


def run_with(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    variables = os.environ | environment
    return subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_a_machine_without_a_driver_sees_no_difference(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    done = run_with(DEVICES, tmp_path, PYTURBO_CUDA_DRIVER="", PYTURBO_NVRTC="")
    assert (done.stdout, done.stderr) == ("['cpu', 'cpu:reference'] {}\n", "")


@pytest.mark.slow
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "libempty.so"
    for driver, nvrtc, expected in (
        ("/none/libcuda.so", "", "the driver of NVIDIA cannot be opened: /none/libcuda.so"),
        (str(empty), "", "the driver of NVIDIA cannot be opened: "),
        (str(cuda_in_tests.LIBRARY), "/none", "there is no NVRTC, which compiles the kernels, for this "),
    ):
        empty.touch()
        done = run_with(DEVICES, tmp_path, PYTURBO_CUDA_DRIVER=driver, PYTURBO_NVRTC=nvrtc)
        assert done.stdout.startswith("['cpu', 'cpu:reference'] {'cuda': '" + expected), done.stdout
        done = run_with("import pyturbo\npyturbo.Device('cuda')", tmp_path, PYTURBO_CUDA_DRIVER=driver)
        assert "device: expected one of cpu, cpu:reference, got 'cuda'" in done.stderr or nvrtc


NVRTC = """
from pyturbo import _soft_cuda_tests as soft_cuda
soft_cuda.set_options(driver={driver})
import numpy as np
import pyturbo
from pyturbo._device import missing_device_list as missing
print(missing().get("cuda"))
if "cuda" in pyturbo.devices():
    device = pyturbo.Device("cuda")
    y = np.zeros(8, np.float32)
    device.kernel("add")(y + 1, y + 2, y, 8)
    print(y[0], device.properties["NVRTC"], soft_cuda.violations())
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages with NVRTC 12 and 13 beside pyturbo, as PyPI's wheels install them."""
    (tmp_path / "pyturbo").symlink_to(cuda_in_tests.LIBRARY.parent, target_is_directory=True)
    for package, major in (("cuda_nvrtc", 12), ("cu13", 13)):
        folder = tmp_path / "nvidia" / package / "lib"
        folder.mkdir(parents=True)
        shutil.copy(cuda_in_tests.LIBRARY, folder / f"libnvrtc.so.{major}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("driver", "version"), [(12080, "12.0"), (13000, "13.0"), (14020, "13.0")])
def test_nvrtc_is_the_newest_that_the_driver_supports(packages: Path, driver: int, version: str) -> None:
    script = NVRTC.format(driver=driver)
    done = run_with(script, packages, PYTHONPATH=str(packages), PYTURBO_NVRTC="", PYTURBO_CACHE="")
    assert (done.stdout, done.stderr) == (f"None\n3.0 {version} for sm_90a []\n", "")


@pytest.mark.slow
def test_an_nvrtc_that_is_too_new_for_the_driver(packages: Path) -> None:
    nvrtc = packages / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    done = run_with(NVRTC.format(driver=12080), packages, PYTURBO_NVRTC=str(nvrtc))
    assert done.stdout == (
        "there is no NVRTC, which compiles the kernels, for this driver of CUDA 12.8 "
        f"(pip install nvidia-cuda-nvrtc-cu12): {nvrtc} is of CUDA 13.0\n"
    )


TWO_GPUS = """
from pyturbo import _soft_cuda_tests as soft_cuda
soft_cuda.set_options(devices=2)
import numpy as np
import pyturbo
print(pyturbo.devices())
first, second = pyturbo.Device("cuda"), pyturbo.Device("cuda:1")
for device in (first, second):
    a, y = device.empty(8), device.empty(8)
    a.write(np.full(8, 3, np.float32))
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), a, a, y, 8)
    program.run()
    print(device.name, y.read()[0], y.__dlpack_device__(), device.memory.total - device.memory.free)
try:
    first.kernel("add")(a, a, a, 8)
except pyturbo.errors.ArgumentError as error:
    print(error)
del a, y, program
second.close()
print(soft_cuda.violations(), soft_cuda.live_objects()["context"])
"""


@pytest.mark.slow
def test_several_gpus(tmp_path: Path) -> None:
    done = run_with(TWO_GPUS, tmp_path, PYTURBO_CACHE="")
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "['cpu', 'cpu:reference', 'cuda', 'cuda:1']"
    assert lines[1:3] == ["cuda 6.0 (2, 0) 64", "cuda:1 6.0 (2, 1) 64"]
    assert lines[3].startswith(
        "cuda: expected memory of this device or of the host, got that of another device"
    )
    assert lines[4] == "[] 1"


def test_no_gpu_or_an_old_one() -> None:
    soft_cuda.set_options(devices=0)
    with pytest.raises(DeviceError, match="cuda: the driver finds no GPU"):
        pyturbo.Device("cuda")
    soft_cuda.set_options(devices=1, capability=70)
    with pytest.raises(DeviceError, match="cuda: expected a GPU of compute capability 7.5 or newer, got"):
        pyturbo.Device("cuda")


def test_an_older_gpu_reads_delta_nets_token_by_token() -> None:
    """The chunkwise kernel is faster in its form for matrix units, of compute capability 8.0 on."""
    for capability, chunkwise in ((75, False), (80, True), (90, True)):
        soft_cuda.set_options(capability=capability)
        with pyturbo.Device("cuda") as device:
            assert (device.traits.chunkwise_tokens <= 512) == chunkwise


def test_parts_of_keys_are_as_many_as_the_gpu_has_multiprocessors_for() -> None:
    for multiprocessors, parts in ((20, 10), (132, 66)):
        soft_cuda.set_options(multiprocessors=multiprocessors)
        with pyturbo.Device("cuda") as device:
            assert key_blocks(device, heads=2, dim=256) == parts


def test_an_older_gpu_has_no_kernel_for_few_tokens() -> None:
    """It is faster in its form for matrix units, of compute capability 8.0 on."""
    for capability, few in ((75, 0), (80, 32)):
        soft_cuda.set_options(capability=capability)
        with pyturbo.Device("cuda") as device:
            assert device.traits.few_tokens == few
