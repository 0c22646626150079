"""A mapped file that becomes shorter, or is written to, while it is in use: an error names it, no SIGBUS.

What a GPU reads of such a file in place is not covered: soft Metal reads on the host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from packed_models import IN_PLACE
from processes import environment, require_clean, run_script
from pyturbo.errors import FileError
from pyturbo.model import default_model

LOST = (
    "model.safetensors: became shorter while it was in use: expected .* bytes, got 8192; load the model again"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the model in the package, to be damaged."""
    return Path(shutil.copytree(default_model(), tmp_path / "model"))


def cut(folder: Path, size: int = 8192) -> None:
    os.truncate(folder / "model.safetensors", size)


@pytest.mark.slow
@pytest.mark.parametrize("device_name", IN_PLACE)
def test_a_replay_says_which_file(device_name: str, folder: Path) -> None:
    device = pyturbo.Device(device_name, threads=2)
    model = pyturbo.load(folder, device=device)
    session = model.session(context=64)
    session.prefill([5, 7])
    cut(folder)
    with pytest.raises(FileError, match=LOST):
        session.step(9)
    with pytest.raises(pyturbo.errors.StateError, match="cannot go on after: .*became shorter"):
        session.step(9)
    with pytest.raises(FileError, match=LOST):
        model.session()
    assert pyturbo.load(device=device).generate("Once", max_tokens=2).tokens  # others are as before


@pytest.mark.slow
def test_a_program_recorded_after_the_loss(device: pyturbo.Device, folder: Path) -> None:
    model = pyturbo.load(folder, device=device)
    session = model.session(context=64)
    cut(folder)
    with pytest.raises(FileError, match=LOST):
        session.prefill([5, 7, 9, 11, 13])


@pytest.mark.slow
def test_what_a_device_has_copied_is_not_lost(folder: Path) -> None:
    with pyturbo.load(folder, "cuda") as model:
        session = model.session(context=64)
        session.prefill([5, 7])
        twin = session.fork()
        before = session.step(9).copy()
        cut(folder)
        np.testing.assert_array_equal(twin.step(9), before)
        with pytest.raises(FileError, match=LOST):
            model.session()


@pytest.mark.parametrize("device_name", IN_PLACE)
def test_a_kernel_says_which_file(device_name: str, tmp_path: Path) -> None:
    device = pyturbo.Device(device_name, threads=2)
    path = tmp_path / "weights"
    path.write_bytes(np.ones(1 << 16, np.float32).tobytes())
    x, y = device.map(path, dtype="float32"), device.empty(1 << 16)
    add = device.kernel("add")
    add(x, x, y, 1 << 16)
    assert (y.numpy() == 2).all()
    os.truncate(path, 100)
    with pytest.raises(FileError, match="weights: became shorter .* expected 262144 bytes, got 100"):
        add(x, x, y, 1 << 16)
    with pytest.raises(FileError, match="weights: became shorter"):
        x.numpy()
    fresh = device.map(path, dtype="float32")
    add(fresh, fresh, y, 25)
    assert (y.numpy()[:25] == 2).all()


def test_what_was_read_by_numpy_is_known_to_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes([7]) * (1 << 16))
    buffer = pyturbo.Device("cpu").map(path)
    view = buffer.numpy()
    os.truncate(path, 5000)
    assert view[4999] == 7
    assert view[1 << 15] == 0  # instead of SIGBUS
    with pytest.raises(FileError, match="weights: became shorter"):
        buffer.numpy()


def test_loading_finds_what_is_lost_meanwhile(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()

    def progress(done: int, total: int) -> None:
        cut(folder)

    # The header is moved by one byte, so that tensors are copied: some of them after the file was cut.
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 1).to_bytes(8, "little") + data[8 : 8 + length] + b" " + data[8 + length :])
    with pytest.raises((FileError, pyturbo.errors.FormatError), match=r"model\.safetensors"):
        pyturbo.load(folder, progress=progress)


def test_a_session_starts_only_over_files_as_they_were(folder: Path) -> None:
    model = pyturbo.load(folder)
    file = folder / "model.safetensors"
    model.session(context=64).save(folder / "empty.session")
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        last = opened.read(1)
        opened.seek(-1, os.SEEK_END)
        opened.write(last)
    os.utime(file, ns=(0, 1_000_000_000))
    message = r"model\.safetensors: was written to, or touched, after it was mapped; load the model again"
    with pytest.raises(FileError, match=message):
        model.session()
    with pytest.raises(FileError, match=message):
        model.load_session(folder / "empty.session")
    assert pyturbo.load(folder).session(context=64).step(5).any()


def test_a_reply_starts_and_ends_only_over_files_as_they_were(folder: Path) -> None:
    model = pyturbo.load(folder)
    session = model.session(context=64)
    reply = model.stream("Once upon a time", max_tokens=4, session=session)
    next(reply)
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 100)
    with pytest.raises(FileError, match="model.safetensors: became shorter"):
        list(reply)
    with pytest.raises(FileError, match="model.safetensors: became shorter"):
        model.generate("Once", max_tokens=1, session=session)


def test_a_relative_path_is_one_of_the_folder_at_that_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    model = pyturbo.load("model")
    monkeypatch.chdir("/")
    os.utime(folder / "model.safetensors", ns=(0, 1_000_000_000))
    with pytest.raises(FileError, match="was written to, or touched"):
        model.session()


def test_a_file_that_was_replaced_or_removed_is_still_mapped(folder: Path, tmp_path: Path) -> None:
    model = pyturbo.load(folder)
    before = model.logits([5, 7])
    (tmp_path / "other").write_bytes(b"something else")
    (tmp_path / "other").replace(folder / "model.safetensors")
    assert np.array_equal(model.logits([5, 7]), before)
    (folder / "model.safetensors").unlink()
    assert np.array_equal(model.logits([5, 7]), before)


HANDLERS = """
import faulthandler, os, signal, sys
from pathlib import Path
import numpy as np
import pyturbo

path = Path("weights")
def mapped():
    path.write_bytes(np.ones(1 << 16, np.float32).tobytes())
    return device.map(path, dtype="float32")
def lose(x):
    program = pyturbo.Program(device)
    program.add(device.kernel("add"), x, x, y, 1 << 16)
    program.run()
    os.truncate(path, 100)
    try:
        program.run()
    except pyturbo.errors.FileError:
        return
    raise SystemExit("expected an error")
device = pyturbo.Device("cpu")
y = device.empty(1 << 16)
"""

SURVIVED = {
    "faulthandler before": "faulthandler.enable()\nlose(mapped())",
    "faulthandler after": "x = mapped()\nfaulthandler.enable()\nlose(x)",
    "faulthandler twice": """
faulthandler.enable()
x = mapped()
faulthandler.disable()
faulthandler.enable()
lose(x)
""",
    "several times": "for _ in range(3):\n    lose(mapped())",
    "ignored": """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
lose(mapped())
os.kill(os.getpid(), signal.SIGBUS)
""",
    "a handler in Python": """
got = []
signal.signal(signal.SIGBUS, lambda *_: got.append(1))
lose(mapped())
assert got == []
os.kill(os.getpid(), signal.SIGBUS)
assert got == [1]
""",
}

#: A fault that is not ours: a file that something else mapped.
FOREIGN = """
import mmap
with open("foreign", "w+b") as file:
    file.truncate(1 << 16)
    other = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
other[1 << 15]
"""

DUMPED = "Fatal Python error: Bus error"
ENDED = {
    "no handler": ("lose(mapped())\n" + FOREIGN, ""),
    "sent": ("lose(mapped())\nos.kill(os.getpid(), signal.SIGBUS)", ""),
    "faulthandler before": (
        "faulthandler.enable()\nlose(mapped())\n" + FOREIGN,
        "Fatal Python error: Bus error",
    ),
    "faulthandler after": (
        "x = mapped()\nfaulthandler.enable()\nlose(x)\n" + FOREIGN,
        "Fatal Python error: Bus error",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SURVIVED)
def test_beside_other_handlers(tmp_path: Path, case: str) -> None:
    require_clean(run_plain(HANDLERS + SURVIVED[case], tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer has a handler of its own"
)
@pytest.mark.parametrize("case", ENDED)
def test_other_faults_end_the_process_as_before(tmp_path: Path, case: str) -> None:
    script, said = ENDED[case]
    done = run_plain(HANDLERS + script, tmp_path)
    assert done.returncode == -signal.SIGBUS
    assert said in done.stderr
    assert done.stderr.count("Fatal Python error") == (1 if said else 0)


def run_plain(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(heap_checks=False),
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_many_threads_lose_the_same_pages(tmp_path: Path) -> None:
    require_clean(
        run_script(
            HANDLERS
            + """
import threading
x = mapped()
os.truncate(path, 100)
def use():
    for _ in range(20):
        try:
            device.kernel("add")(x, x, device.empty(1 << 16), 1 << 16)
        except pyturbo.errors.FileError:
            continue
        os._exit(3)
threads = [threading.Thread(target=use) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
            tmp_path,
        )
    )
