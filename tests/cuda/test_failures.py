"""Failures of the CUDA device through soft CUDA: each is an error that says what failed, and stays."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from pyturbo import ops
from pyturbo.errors import AllocationError, DeviceError

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from cuda_calls import add, full, made_since
from pyturbo import _soft_cuda_tests as soft_cuda


def test_a_kernel_that_cannot_be_compiled(cache: Path, cuda: pyturbo.Device) -> None:
    soft_cuda.inject("compile", text="elementwise_add.cu(3): error: expected a ;")
    with pytest.raises(DeviceError, match=r"add: NVRTC cannot compile it: elementwise_add.cu\(3\): error"):
        add(cuda)
    assert add(cuda)[0] == 1
    with pyturbo.Device("cuda") as device:
        soft_cuda.inject("load")
        with pytest.raises(DeviceError, match="add: the GPU cannot load it: CUDA_ERROR_INVALID_IMAGE"):
            add(device)
        assert add(device)[0] == 1


def test_a_failed_launch_stays_failed(cuda: pyturbo.Device) -> None:
    soft_cuda.inject("launch")
    message = "cuda: add: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal .*; the device must be opened again"
    with pytest.raises(DeviceError, match=message):
        add(cuda)
    for work in (lambda: add(cuda), cuda.synchronize):
        with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            work()
    cuda.close()
    soft_cuda.reset()  # other tests keep the context alive, which a process that gives it up opens anew
    with pyturbo.Device("cuda") as other:
        assert add(other)[0] == 1


def test_a_failure_behind_the_back_reaches_the_next_call(cuda: pyturbo.Device) -> None:
    a, b = cuda.empty(64), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for _ in range(2):
        program.add(cuda.kernel("add"), a, b, b, 64)
    cuda.synchronize()
    soft_cuda.inject("launch")
    program.run(wait=False)
    with pytest.raises(DeviceError, match="cuda: program of 2 launches: CUDA_ERROR_ILLEGAL_ADDRESS"):
        cuda.synchronize()
    with pytest.raises(DeviceError, match="program of 2 launches"):
        program.run()


def test_a_refused_launch_leaves_the_device_usable(cuda: pyturbo.Device) -> None:
    add(cuda)
    soft_cuda.inject("refused")
    with pytest.raises(DeviceError, match="cuda: add: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        add(cuda)
    assert add(cuda)[0] == 1


@pytest.mark.parametrize("fault", ["instantiate", "load_memory", "allocation"])
def test_too_little_memory_is_an_allocation_error_everywhere(before: Counter[str], fault: str) -> None:
    """It leaves nothing behind, and a device that works."""
    with pyturbo.Device("cuda") as cuda:
        a, b = full(cuda, 1), cuda.empty(64)
        program = pyturbo.Program(cuda)
        program.add(cuda.kernel("add"), a, a, b, 64)
        what = {
            "instantiate": "a graph of 1 launches",
            "load_memory": "add: the GPU cannot load it",
            "allocation": "cannot allocate a buffer of 16384 bytes in pinned memory",
        }[fault]
        soft_cuda.inject(fault)
        with pytest.raises(AllocationError, match=rf"cuda: {what}: too little memory: \d+ of \d+ bytes are"):
            cuda.shared(8) if fault == "allocation" else program.run()
        assert made_since(before)["graph"] == made_since(before)["module"] - (fault == "instantiate") == 0
        program.run()
        assert b.read()[0] == 2
    soft_cuda.inject("allocation")
    with pytest.raises(AllocationError, match="in pinned memory"):
        pyturbo.Device("cuda")
    del cuda, a, b, program
    gc.collect()
    assert made_since(before) == Counter()


@pytest.mark.parametrize("call", ["allocation", "module", "graph"])
def test_a_failure_that_another_call_meets_stays(cuda: pyturbo.Device, call: str) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, b, 64)
    if call == "graph":
        add(cuda)
    work = (lambda: cuda.empty(8)) if call == "allocation" else program.run
    soft_cuda.inject("device_lost")
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE.*; the device must be opened again"):
        work()
    soft_cuda.reset()  # the driver answers again, but memory is in an unknown state
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE"):
        cuda.synchronize()
    with pytest.raises(DeviceError, match="DEVICE_UNAVAILABLE"):
        program.run()


def test_a_lost_device_leaves_the_process_alive(cuda: pyturbo.Device) -> None:
    soft_cuda.inject("device_lost")
    with pytest.raises(DeviceError, match="CUDA_ERROR_DEVICE_UNAVAILABLE"):
        add(cuda)
    assert add(pyturbo.Device("cpu"))[0] == 1


def test_geometry_that_the_gpu_cannot_run(cuda: pyturbo.Device) -> None:
    soft_cuda.set_options(max_threads=512)
    with pyturbo.Device("cuda") as device:
        with pytest.raises(DeviceError, match="argmax: expected at most 512 threads in a threadgroup"):
            ops.argmax(np.ones((1, 4), np.float32), device=device)
        assert add(device)[0] == 1
    expected = "bounded_threads: expected at most 65535 threadgroups along y and z"
    with pytest.raises(DeviceError, match=expected):
        cuda.kernel("bounded_threads")(np.zeros(1, np.uint32), groups=(1, 65536), threads=1)
