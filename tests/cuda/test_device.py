"""The CUDA device through soft CUDA: what it says of itself, threads, children of fork().

Speed, NVIDIA's driver and compiler, and the memory model of a real GPU cannot be seen here.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from pyturbo.errors import ArgumentError, StateError

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from cuda_calls import add, full
from pyturbo import _soft_cuda_tests as soft_cuda


def test_properties_say_what_it_is(cuda: pyturbo.Device) -> None:
    assert cuda.properties["compute capability"] == "9.0"
    assert cuda.properties["memory"] == "16384 MiB"
    assert cuda.properties["NVRTC"] == "13.0 for sm_90a"
    assert cuda.properties["kernels"].endswith("shaders")


def running(work: Callable[[], object]) -> threading.Thread:
    """Start a thread and give it time to come to what is slow in it."""
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    return thread


@pytest.mark.parametrize("call", ["compile", "instantiate", "copy"])
def test_slow_work_of_a_thread_does_not_hold_up_others(
    cuda: pyturbo.Device, cache: Path, tmp_path: Path, call: str
) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    ready, other = pyturbo.Program(cuda), pyturbo.Program(cuda)
    ready.add(cuda.kernel("add"), a, a, b, 64)
    ready.run()
    other.add(cuda.kernel("geglu" if call == "compile" else "add"), a, a, cuda.empty(64), 64)
    np.ones(64, np.float32).tofile(tmp_path / "numbers")
    mapped = cuda.map(tmp_path / "numbers", dtype="float32")
    soft_cuda.inject("slow_" + call, milliseconds=1000)
    work = (lambda: cuda.kernel("add")(mapped, a, a, 64)) if call == "copy" else other.run
    thread = running(work)
    begin = time.perf_counter()
    ready.run(wait=False)
    assert time.perf_counter() - begin < 0.5
    thread.join()


def test_the_checker_is_for_the_cpu() -> None:
    with pytest.raises(ArgumentError, match="cuda: expected no checker, which is part of cpu:reference"):
        pyturbo.Device("cuda", check=True)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks, in Python 3.12 and newer
@pytest.mark.parametrize("opens", [False, True])
def test_a_child_process_is_told(cuda: pyturbo.Device, opens: bool) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    program.add(cuda.kernel("add"), a, a, b, 64)
    program.run()
    expected = "cuda: CUDA cannot be used in a child of fork()" if opens else "made before fork()"
    child = os.fork()
    if child == 0:
        try:
            pyturbo.Device("cuda") if opens else add(cuda)
        except StateError as error:
            del program, a, b  # no call of the driver: soft CUDA would report it
            gc.collect()
            os._exit(7 if expected in str(error) and not soft_cuda.violations() else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    program.run()
    assert b.read()[0] == 2
