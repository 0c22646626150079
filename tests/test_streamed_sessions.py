"""Sessions, forks, threads and saves of a model that streams experts: one cache, and the right tokens.

Which thread comes first differs from run to run; the tests hold for every order.
"""

from __future__ import annotations

import copy
import gc
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from packed_models import streamed, write_large, write_packed
from processes import require_clean, run_script
from pyturbo import _native_tests
from pyturbo._machine import resident_memory, used_memory
from pyturbo.engine.budget import HEADROOM
from pyturbo.errors import FormatError, StateError
from pyturbo.streaming import Policy

CONTEXT = 96


@pytest.fixture(scope="module", params=["qwen3_5_moe", "gpt_oss"])
def paths(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its packed copy: one with a delta net, one with windows and biases."""
    return write_packed(tmp_path_factory.mktemp(request.param), request.param)


def prompt(number: int, tokens: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(number).integers(0, 190, tokens)]


def tokens_of(model: pyturbo.Model, number: int) -> list[int]:
    """Converse in one session: read, write, fork, rewind, save, load, and return every token."""
    session = model.session(CONTEXT)
    out = model.generate(prompt(number, 20 + number % 7), 3, session=session).tokens
    other = session.fork()
    out += model.generate([], 3, session=session).tokens
    session.rewind(session.position - 2)
    out += model.generate(prompt(number + 1, 4), 3, session=session).tokens
    return out + model.generate(prompt(number + 2, 5), 3, session=other).tokens


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_threads_share_one_cache(paths: tuple[Path, Path], slots: int) -> None:
    with pyturbo.load(paths[0], "cpu") as model:
        wanted = [tokens_of(model, number) for number in range(6)]
    with streamed(paths[1], "cpu", slots) as model, ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda number: tokens_of(model, number), range(6))) == wanted
        stats = model.runner.budget.experts.stats()
        assert all(layer["hits"] + layer["misses"] == layer["requests"] > 0 for layer in stats)


def test_sessions_of_the_source_and_of_the_packed_copy(paths: tuple[Path, Path], tmp_path: Path) -> None:
    """The weights are the same, so either model goes on with a conversation of the other."""
    source = pyturbo.load(paths[0], "cpu")
    packed = streamed(paths[1], "cpu", 3)
    assert source.fingerprint == packed.fingerprint
    for first, second in ((source, packed), (packed, source)):
        session = first.session(CONTEXT)
        first.generate(prompt(3, 20), 3, session=session)
        session.save(tmp_path / "a.session")
        wanted = first.generate([], 5, session=session).tokens
        again = second.load_session(tmp_path / "a.session")
        assert second.generate([], 5, session=again).tokens == wanted
        (tmp_path / "a.session").unlink()
    packed.close()
    with pytest.raises(StateError, match="the model is closed"):
        session.fork()


def test_experts_in_fewer_bits_are_another_model(paths: tuple[Path, Path], tmp_path: Path) -> None:
    pyturbo.pack(paths[0], tmp_path / "small", expert_bits=2)
    with pyturbo.load(paths[0], "cpu") as source, pyturbo.load(tmp_path / "small", "cpu") as small:
        session = source.session(CONTEXT)
        session.prefill([1, 2, 3])
        session.save(tmp_path / "a.session")
        with pytest.raises(FormatError, match="expected a session of this model"):
            small.load_session(tmp_path / "a.session")
        before = small.fingerprint
    with pyturbo.load(tmp_path / "small", "cpu") as small:
        assert small.fingerprint == before


def test_another_configuration_is_another_model(paths: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(paths[1], tmp_path / "copy"))
    with pyturbo.load(folder, "cpu") as model:
        before = model.fingerprint
    config = (folder / "config.json").read_text()
    changed = config.replace("max_position_embeddings", "max_position_embedding_")
    assert changed != config
    (folder / "config.json").write_text(changed)
    with pyturbo.load(folder, "cpu") as model:
        assert model.fingerprint != before


def threads_and_files() -> tuple[int, int]:
    gc.collect()
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")
@pytest.mark.parametrize("device", pyturbo.devices())
def test_a_closed_model_keeps_no_thread_and_no_file(paths: tuple[Path, Path], device: str) -> None:
    opened = pyturbo.Device(device)
    opened.empty(1)
    with pyturbo.load(paths[1], opened) as model:  # starts the threads of the device
        model.session(CONTEXT).prefill([1, 2, 3])
    before = threads_and_files()
    for _ in range(2):
        memory = used_memory() + HEADROOM + 200_000_000
        model = pyturbo.load(paths[1], opened, memory=memory, policy=Policy(mode="stream", threads=3))
        session = model.session(CONTEXT)
        reply = model.stream([1, 2, 3], 8, session=session)
        next(reply)
        threads, files = threads_and_files()
        assert threads == before[0] + 3
        assert files > before[1]
        model.close()
        assert threads_and_files() == before
        for use, argument in ((next, reply), (session.step, 1), (copy.copy, session), (model.session, 8)):
            with pytest.raises(StateError, match="the model is closed"):
                use(argument)
        stats = model.runner.budget.experts.stats()
        assert sum(layer["bytes"] for layer in stats) > 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")
def test_a_dropped_model_keeps_no_thread_and_no_file(paths: tuple[Path, Path]) -> None:
    device = pyturbo.Device("cpu")
    with pyturbo.load(paths[1], device) as model:
        model.session(CONTEXT).prefill([1, 2, 3])
    before = threads_and_files()
    memory = used_memory() + HEADROOM + 200_000_000
    model = pyturbo.load(paths[1], device, memory=memory, policy=Policy(mode="stream"))
    model.session(CONTEXT).prefill([1, 2, 3])
    assert threads_and_files() > before
    del model
    assert threads_and_files() == before

    def fail(done: int, total: int) -> None:
        raise KeyError("mine")

    policy = Policy(mode="stream", threads=2, staging=50)
    for progress in (fail, None):
        for _ in range(3):
            with suppress(KeyError):
                pyturbo.load(paths[1], device, memory=memory, policy=policy, progress=progress)
            assert threads_and_files() == before


@pytest.mark.slow
@pytest.mark.skipif(resident_memory() is None, reason="this system does not say how much memory is in use")
def test_a_closed_model_keeps_no_memory(tmp_path: Path) -> None:
    path, before = write_large(tmp_path, 80), used_memory()
    model = pyturbo.load(path, "cpu", memory=before + HEADROOM + 200_000_000, policy=Policy(mode="stream"))
    session = model.session(512)
    session.prefill(prompt(1, 300))
    assert model.runner.budget.experts.filled_bytes > 60_000_000
    full = used_memory()
    model.close()
    gc.collect()
    assert full - used_memory() > 60_000_000
    assert session.position == 300  # the session is there, the model is not


def test_closed_by_another_thread_while_it_reads(paths: tuple[Path, Path]) -> None:
    wanted = pyturbo.load(paths[0], "cpu").generate(prompt(1, 9), 60).tokens
    for delay in (0, 0.003, 0.03):
        model = streamed(paths[1], "cpu", 2)
        got: list[int] = []
        ended: list[str] = []
        begun = threading.Event()

        def generate(model=model, got=got, ended=ended, begun=begun) -> None:
            try:
                for chunk in model.stream(prompt(1, 9), 60):
                    got.append(chunk.token)
                    begun.set()
            except StateError as error:
                ended.append(str(error))

        _native_tests.fail_reads("slow", 1)
        thread = threading.Thread(target=generate)
        thread.start()
        assert begun.wait(60)
        threading.Event().wait(delay)
        model.close()
        thread.join()
        _native_tests.plain_reads()
        assert got == wanted[: len(got)]
        assert ended == ["the model is closed"] or len(got) == 60


SCRIPT = """
import copy, os, threading
import pyturbo
from pyturbo._machine import used_memory
from pyturbo.streaming import Policy
memory = used_memory() + 120_000_000
model = pyturbo.load(PATH, "cpu", memory=memory, policy=Policy(mode="stream"))
session = model.session(64)
reply = model.stream([1, 2, 3], 60, session=session)
next(reply)
"""


@pytest.mark.slow
def test_a_child_of_fork_is_refused(paths: tuple[Path, Path], tmp_path: Path) -> None:
    script = SCRIPT.replace("PATH", repr(str(paths[1])))
    script += """
child = os.fork()
if child == 0:
    for use, argument in ((next, reply), (model.session, 8), (copy.copy, session), (session.step, 1)):
        try:
            use(argument)
        except pyturbo.errors.StateError:
            continue
        os._exit(3)
    session.save("child.session")
    model.close()
    with pyturbo.load(PATH, "cpu", memory=memory, policy=Policy(mode="stream")) as own:
        own.load_session("child.session").step(3)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(list(reply)) == 59
""".replace("PATH", repr(str(paths[1])))
    require_clean(run_script(script, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "del model, session, reply", "os._exit(0)"])
def test_the_process_ends_while_experts_are_read(paths: tuple[Path, Path], tmp_path: Path, end: str) -> None:
    """In a thread of its own, which does not keep the process from ending."""
    script = SCRIPT.replace("PATH", repr(str(paths[1])))
    script += f"""
def run():
    while True:
        model.generate([4, 5, 6], 8)
if {end!r} != "del model, session, reply":
    threading.Thread(target=run, daemon=True).start()
    next(reply)
{end}
"""
    require_clean(run_script(script, tmp_path))


def test_a_signal_like_close_in_the_own_thread(paths: tuple[Path, Path]) -> None:
    model = streamed(paths[1], "cpu", 2)
    reply = model.stream(prompt(2, 9), 8)
    next(reply)
    with model.runner._lock:  # as in a handler that interrupts a replay's caller
        model.close()
    with pytest.raises(StateError, match="the model is closed"):
        next(reply)
