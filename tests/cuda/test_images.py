"""Kernels of the CUDA device through soft CUDA: what is compiled, kept on disk, and has a form of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from pyturbo import ops
from pyturbo.errors import DeviceError

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from cuda_calls import add, full
from pyturbo import _soft_cuda_tests as soft_cuda


def test_kernels_are_compiled_once_and_kept_on_disk(cache: Path) -> None:
    def compiled() -> tuple[int, int]:
        soft_cuda.reset()
        with pyturbo.Device("cuda") as device:
            for _ in range(3):
                add(device)
            ops.rms_norm(np.ones((1, 8), np.float32), np.ones(8, np.float32), 1e-6, device=device)
        return soft_cuda.counters()["compiled"], soft_cuda.counters()["loaded"]

    assert compiled() == (2, 2)
    images = sorted(cache.iterdir())
    assert len(images) == 2
    assert compiled() == (0, 2)
    whole = images[0].read_bytes()
    for damaged in (b"", b"damaged", whole[:-1], whole[:-1] + b"?"):
        images[0].write_bytes(damaged)
        assert compiled() == (1, 2)
        assert images[0].read_bytes() == whole
    images[0].unlink()
    images[0].mkdir()  # nothing can be written there
    assert compiled() == (1, 2)


def test_each_architecture_has_its_own_kernels(cache: Path) -> None:
    for capability, files in ((90, 1), (89, 2), (90, 2), (121, 3)):
        soft_cuda.set_options(capability=capability)
        with pyturbo.Device("cuda") as device:
            assert add(device)[3] == 4
            expected = {90: "sm_90a", 89: "sm_89", 121: "compute_120"}[capability]
            assert device.properties["NVRTC"] == f"13.0 for {expected}"
        assert len(list(cache.iterdir())) == files


def test_each_precision_has_its_own_kernels(cache: Path) -> None:
    for precision, files in (("default", 1), ("fast", 2), ("default", 2)):
        with pyturbo.Device("cuda", precision=precision) as device:
            assert add(device)[3] == 4
            assert device.properties["precision"] == precision
        assert len(list(cache.iterdir())) == files
    images = [path.read_bytes() for path in cache.iterdir()]
    assert [b"\nfast\n" in image for image in sorted(images, key=len)] == [True, False]


def test_a_gpu_without_matrix_units_has_one_precision(cache: Path) -> None:
    soft_cuda.set_options(capability=75)
    with pyturbo.Device("cuda", precision="fast") as device:
        assert add(device)[3] == 4
        assert device.properties["precision"] == "default"
    (image,) = cache.iterdir()
    assert b"\nfast\n" not in image.read_bytes()


def test_function_constants_make_kernels_of_their_own(cuda: pyturbo.Device) -> None:
    x, y, extra = np.ones(7, np.float32), np.zeros(7, np.float32), np.full(7, 4, np.float32)
    for doubled in (True, False, True):
        kernel = cuda.kernel("specialised", {"doubled": doubled})
        kernel(x, y, 7, extra if doubled else None, groups=1, threads=7)
    assert soft_cuda.counters()["loaded"] == 2


def test_a_program_compiles_all_of_its_kernels_at_once(cache: Path) -> None:
    with pyturbo.Device("cuda") as device:
        a, y = device.empty((1, 64)), device.empty((1, 64))
        program = pyturbo.Program(device)
        for name in ("add", "geglu", "swiglu"):
            program.add(device.kernel(name), a, a, y, 64)
        assert soft_cuda.counters()["compiled"] == 0
        program.run()
        assert soft_cuda.counters()["compiled"] == 3


def test_what_a_killed_process_left_in_the_cache_is_removed(cache: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    kept = [f"a.cubin.{os.getpid()}.0", f"a.cubin.{killed.pid}", f"a.{killed.pid}.0", "a.cubin"]
    cache.mkdir(parents=True)
    for name in (*kept, f"a.cubin.{killed.pid}.0"):
        (cache / name).touch()
    with pyturbo.Device("cuda"):
        assert sorted(path.name for path in cache.iterdir()) == sorted(kept)


def test_the_cache_can_be_off_or_unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "inside")):
        monkeypatch.setenv("PYTURBO_CACHE", folder)
        with pyturbo.Device("cuda") as device:
            assert add(device)[0] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_form_divides_the_work_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threadgroups of the contract are taken together, with more shared memory than others have."""
    monkeypatch.setenv("PYTURBO_CACHE", "")  # images have forms or not
    n = 1 << 14
    with pyturbo.Device("cuda") as device:
        groups = soft_cuda.counters()["groups"]
        add(device, n)
        groups = soft_cuda.counters()["groups"] - groups
    assert groups > 3
    soft_cuda.set_options(form_span=3, form_bytes=60_000)
    with pyturbo.Device("cuda") as device:
        before = soft_cuda.counters()["groups"]
        device.kernel("add")(full(device, 1, n), full(device, 2, n), y := device.empty(n), n)
        assert soft_cuda.counters()["groups"] - before == -(-groups // 3)
        assert (y.numpy() == 3).all()
        program = pyturbo.Program(device)
        program.add(device.kernel("add"), y, y, z := device.empty(n), n)
        program.run()
        assert (z.numpy() == 6).all()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"form_size": 8}, "expected 16 bytes, got 8"),
        ({"form_size": 20}, "expected 16 bytes, got 20"),
        ({"form_span": 0}, "expected a span of at least 1, got 0"),
        ({"form_parts": 0}, "expected parts of at least 1, got 0"),
        ({"form_threads": 2048}, "expected at most 1024 threads, got 2048"),
    ],
)
def test_a_form_that_cannot_be_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, int], message: str
) -> None:
    monkeypatch.setenv("PYTURBO_CACHE", "")
    soft_cuda.set_options(form_bytes=60_000, **form)
    with pyturbo.Device("cuda") as device:
        with pytest.raises(DeviceError, match=f"^add_form: {message}"):
            add(device)
        soft_cuda.set_options(form_bytes=0, form_size=16, form_span=1, form_parts=1, form_threads=0)
        assert add(device)[3] == 4  # the device is as usable as before


def test_a_form_divides_threadgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the contract becomes several."""
    monkeypatch.setenv("PYTURBO_CACHE", "")
    n = 1 << 14
    with pyturbo.Device("cuda") as device:
        groups = soft_cuda.counters()["groups"]
        add(device, n)
        groups = soft_cuda.counters()["groups"] - groups
    soft_cuda.set_options(form_parts=2, form_bytes=60_000)
    with pyturbo.Device("cuda") as device:
        before = soft_cuda.counters()["groups"]
        device.kernel("add")(full(device, 1, n), full(device, 2, n), y := device.empty(n), n)
        assert soft_cuda.counters()["groups"] - before == 2 * groups
        assert (y.numpy() == 3).all()
