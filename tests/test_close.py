"""Closing models, sessions and conversations: memory and files are given back, and use is a clear error."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import pyturbo
from pyturbo.errors import StateError
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx


def model_of(folder: Path, device: str) -> pyturbo.Model:
    return pyturbo.load(write_mlx(MODELS["qwen3_5_moe"], folder / "model"), device)


def open_files(folder: Path) -> list[str]:
    """Files below `folder` that this process has open or mapped."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this folder is gone
            links.append(str(descriptor.readlink()))
    links += [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("device", pyturbo.devices())
def test_a_closed_session_refuses_every_use(tmp_path: Path, device: str) -> None:
    model = model_of(tmp_path, device)
    with model.session(32) as session:
        session.prefill([1, 2, 3])
        block = session._state.block
        logits = session.logits.copy()
        shown = session.logits
    assert session.closed
    assert repr(session) == "Session(closed)"
    assert (shown == logits).all()  # an array that was handed out stays what it was
    del shown
    gc.collect()
    assert sys.getrefcount(block) == 2  # this one, and the argument
    for use in (
        lambda: session.prefill([1]),
        lambda: session.step(1),
        lambda: list(session.read([1])),
        lambda: session.position,
        lambda: session.tokens,
        lambda: session.pending,
        lambda: session.logits,
        lambda: session.state,
        lambda: session.nbytes,
        lambda: session.can_be_cut,
        lambda: session.rewind(0),
        lambda: session.grow(64),
        lambda: session.memory(),
        lambda: session.profile(),
        lambda: session.fork(),
        lambda: session.save(tmp_path / "a.session"),
        lambda: model.generate([1], session=session),
    ):
        with pytest.raises(StateError, match="the session is closed"):
            use()
    session.close()
    assert not session.cancel()
    assert list(tmp_path.glob("*.session")) == []
    with pytest.raises(AttributeError, match="'Session' object has no attribute 'unknown'"):
        session.unknown  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("device", pyturbo.devices())
def test_a_closed_model_gives_files_and_memory_back(tmp_path: Path, device: str) -> None:
    with model_of(tmp_path, device) as model:
        session = model.session(32)
        session.prefill([1, 2, 3])
        network, opened = weakref.ref(model.network), model.device
        reply = model.stream([4], 8, session=session)
        next(reply)
        assert model.runner.scratch_bytes > 0
        assert not Path("/proc/self/maps").exists() or open_files(tmp_path)
    gc.collect()
    assert network() is None
    assert model.runner.scratch_bytes == 0
    if Path("/proc/self/maps").exists():
        assert open_files(tmp_path) == []
    assert repr(model) == "Model('qwen3_5_moe', closed)"
    for use in (
        lambda: model.session(),
        lambda: model.generate([1]),
        lambda: model.logits([1]),
        lambda: model.layer_outputs([1]),
        lambda: model.embed([1]),
        lambda: model.network,
        lambda: model.max_context,
        lambda: model.fingerprint,
        lambda: model.load_session(tmp_path / "absent"),
        lambda: model.prompt_ids([1]),
        lambda: session.step(1),
        lambda: session.memory(),
        lambda: session.fork(),
        lambda: next(reply),
    ):
        with pytest.raises(StateError, match="the model is closed"):
            use()
    assert session.position == 4
    session.close()
    model.close()
    assert not opened.closed  # it may serve other models


def test_a_reply_of_a_closed_session_ends(tmp_path: Path) -> None:
    model = model_of(tmp_path, "cpu")
    with model.session(16) as session:
        reply = model.stream([1, 2], 8, session=session)
        next(reply)
    with pytest.raises(StateError):
        next(reply)


def test_a_model_is_closed_while_another_thread_generates(tmp_path: Path) -> None:
    """The other thread ends with an error, never with a crash or a wrong token."""
    model = pyturbo.load(write_hf(MODELS["qwen3"], tmp_path / "model"), "cpu")
    want = model.generate([1, 2, 3], 64).tokens
    got: list[int] = []
    begun, ended = threading.Event(), []

    def generate() -> None:
        try:
            for chunk in model.stream([1, 2, 3], 64):
                got.append(chunk.token)
                begun.set()
        except StateError as error:
            ended.append(str(error))

    thread = threading.Thread(target=generate)
    thread.start()
    assert begun.wait(60)
    model.close()
    thread.join()
    assert got == want[: len(got)]
    assert len(got) == 64 or ended == ["the model is closed"]


@pytest.mark.parametrize(("most", "context"), [(512, 512), (8192, 8192), (10_000, 8192)])
def test_one_rule_for_the_default_context(tmp_path: Path, most: int, context: int) -> None:
    config = MODELS["qwen3"]
    config = replace(config, config=config.config | {"max_position_embeddings": most})
    model = pyturbo.load(write_hf(config, tmp_path / "model"), "cpu")
    assert model.max_context == most
    assert model.session().context == context


def test_a_signal_handler_closes_the_model_of_its_own_thread(tmp_path: Path) -> None:
    """While that thread records or replays: it never waits for itself."""
    for delay in (0.001, 0.01, 0.05, 0.2):
        model = model_of(tmp_path / str(delay), "cpu")
        before = signal.signal(signal.SIGALRM, lambda *_, model=model: model.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(StateError, match="the model is closed"):  # noqa: PT012
                for _ in range(10_000):
                    model.generate([1, 2, 3], 8)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_a_model_closed_amid_a_read_keeps_nothing(tmp_path: Path) -> None:
    model = model_of(tmp_path, "cpu:reference")
    session = model.session(256)
    reading = session.read(range(1, 100))
    next(reading)
    network = weakref.ref(model.network)
    model.close()
    gc.collect()
    assert network() is None
    if Path("/proc/self/maps").exists():
        assert open_files(tmp_path) == []
    with pytest.raises(StateError, match="the model is closed"):
        next(reading)


def test_a_session_of_a_closed_model_is_never_saved(tmp_path: Path) -> None:
    """Whether or not the fingerprint was computed before."""
    for ask in (False, True):
        model = model_of(tmp_path / str(ask), "cpu")
        session = model.session(16)
        if ask:
            assert model.fingerprint
        model.close()
        with pytest.raises(StateError, match="the model is closed"):
            session.save(tmp_path / "chat.session")
    assert not (tmp_path / "chat.session").exists()


def test_leaving_a_session_by_an_error_keeps_that_error(tmp_path: Path) -> None:
    session = model_of(tmp_path, "cpu").session(512)
    reading = session.read([5] * 400)
    with pytest.raises(KeyError, match="mine"), session:  # noqa: PT012
        next(reading)
        raise KeyError("mine")
    reading.close()
    session.close()
    with pytest.raises(StateError, match="the session is closed"), session:
        pass
