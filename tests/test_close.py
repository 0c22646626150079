"""Closing models, sessions and conversations: memory and files are given back, and use is a clear error."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextlib import suppress
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
        block = session._block
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


def test_one_rule_for_the_default_context(tmp_path: Path) -> None:
    config = MODELS["qwen3"]
    model = pyturbo.load(write_hf(config, tmp_path / "model"), "cpu")
    assert model.session().context == model.max_context == config.text["max_position_embeddings"]
    assert pyturbo.load().session().context == min(8192, pyturbo.load().max_context)
