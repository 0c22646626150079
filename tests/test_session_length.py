"""Conversations that become shorter and longer: rewound, given more room, and matched with a whole chat.

A reference for every state is a session that has read the same tokens in the same chunks: equal bits.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.errors import ArgumentError, CancelledError, StateError
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_mlx

TOKENS = [5, 60, 7, 8, 91, 10, 11, 120, 13, 14, 150, 16]
CUT = {"qwen3": True, "deepseek_v3": True, "qwen2_windows": True, "qwen3_5_moe": False, "gpt_oss": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, device: object = "cpu", kv: str = "f16") -> pyturbo.Model:
    path = folder / name
    if not path.exists():
        write_mlx(MODELS[name], path)
    return pyturbo.load(path, device, kv=kv)


def same(session: pyturbo.Session, other: pyturbo.Session) -> bool:
    """Whether both give the same bits now and from here on."""
    equal = session.tokens.tolist() == other.tokens.tolist()
    equal &= session.logits.tobytes() == other.logits.tobytes()
    return equal and all(session.step(t).tobytes() == other.step(t).tobytes() for t in (33, 34, 35))


@pytest.mark.parametrize("kv", ["f16", "turbo4v2"])
@pytest.mark.parametrize("name", CUT)
def test_a_rewound_session_is_the_one_before(folder: Path, name: str, kv: str) -> None:
    check_rewind(model_of(folder, name, kv=kv), CUT[name])


@pytest.mark.spread
@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_moe"])
def test_every_device_rewinds(folder: Path, device: pyturbo.Device, name: str) -> None:
    check_rewind(model_of(folder, name, device), CUT[name])


def check_rewind(model: pyturbo.Model, cut: bool) -> None:
    session, want = model.session(24), model.session(24)
    for token in TOKENS:
        session.step(token)
    if cut:
        assert session.rewind(5) == 1
        for token in TOKENS[:5]:
            want.step(token)
    else:
        assert session.rewind(5) == 5
        want.prefill(TOKENS[:5])
    assert session.position == 5
    assert same(session, want)


def test_a_window_that_has_gone_round_is_read_again(folder: Path) -> None:
    model = model_of(folder, "qwen2_windows", kv="turbo4")
    window = min(layer.mixer.kv_heads.window or 1 << 30 for layer in model.network.layers)
    tokens = [5 + i % 90 for i in range(window + 20)]
    session, want = model.session(len(tokens) + 8), model.session(len(tokens) + 8)
    session.prefill(tokens)
    assert session.rewind(window + 10) == window + 10
    want.prefill(tokens[: window + 10])
    assert same(session, want)


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
def test_exact_rows_that_later_tokens_took_are_read_as_codes(folder: Path, name: str) -> None:
    """Of 40 tokens 24 to 39 are exact. A rewind to 30 reads token 29 again and leaves 24 to 28."""
    model = model_of(folder, name, kv="turbo2")
    session = model.session(64)
    for i in range(40):
        session.step(5 + i % 20)
    assert session.can_be_cut
    want = session.fork()
    assert session.rewind(30) == 1
    for layer in (mixer.name for mixer in (layer.mixer for layer in model.network.layers)):
        keys = want.state[f"{layer}.recent_keys"]
        assert sorted(keys.tolist()) == list(range(24, 40))
        keys[np.isin(keys, np.arange(24, 29))] += 1000  # as if codes were all that is left of these too
    assert want.rewind(30) == 1
    assert session.logits.tobytes() != want.logits.tobytes()
    again = session.fork()
    assert again.rewind(10) == 1
    for piece, array in again.state.items():
        if piece.endswith("recent_keys"):
            assert not np.isin(array, np.arange(9)).any()
    fresh = model.session(64)
    for i in range(9):
        fresh.step(5 + i % 20)
    for piece, array in fresh.state.items():
        if piece.endswith("recent_keys"):
            array += 1000
    assert fresh.step(5 + 9).tobytes() == again.logits.tobytes()


def test_rewinding_to_the_ends(folder: Path) -> None:
    model = model_of(folder, "qwen3_5_moe")
    session = model.session(24)
    session.prefill(TOKENS)
    session._leave(9)
    assert session.rewind(len(TOKENS)) == 0
    assert session.pending == []
    assert session.rewind(0) == 0
    assert session.position == 0
    with pytest.raises(StateError, match="logits"):
        _ = session.logits
    want = model.session(24)
    assert session.prefill(TOKENS[:3]).tobytes() == want.prefill(TOKENS[:3]).tobytes()
    for wrong, message in ((4, "expected at most 3, got 4"), (-1, "from 0 on"), (1.5, "from 0 on")):
        with pytest.raises(ArgumentError, match=f"rewind: position: .*{message}"):
            session.rewind(wrong)
    assert session.position == 3


@pytest.mark.parametrize("kv", ["f16", "turbo4v2"])
@pytest.mark.parametrize("name", CUT)
def test_a_session_that_grows_goes_on(folder: Path, name: str, kv: str) -> None:
    check_growth(model_of(folder, name, kv=kv))


@pytest.mark.slow
def test_every_device_grows(folder: Path, device: pyturbo.Device) -> None:
    check_growth(model_of(folder, "qwen3_5_moe", device))


def check_growth(model: pyturbo.Model) -> None:
    session, want = model.session(12), model.session(40)
    for one in (session, want):
        one.prefill(TOKENS)
    session._leave(9)
    with pytest.raises(ArgumentError, match="context: expected at most 12"):
        session.step(5)
    session.grow(40)
    assert (session.context, session.pending) == (40, [9])
    assert same(session, want)


def test_room_that_cannot_be_had(folder: Path) -> None:
    model = model_of(folder, "qwen3")
    session = model.session(12)
    session.prefill(TOKENS)
    for wrong in (11, model.max_context + 1):
        with pytest.raises(ArgumentError, match=f"grow: context: expected 12 to {model.max_context}, got"):
            session.grow(wrong)
    assert session.tokens.tolist() == TOKENS


def test_rewinding_can_be_cancelled(folder: Path) -> None:
    model = model_of(folder, "qwen3_5_moe")
    session = model.session(24)
    session.prefill(TOKENS)
    stop = threading.Event()

    def cancel() -> None:
        while not stop.is_set():
            session.cancel()

    def rewind_and_read() -> None:
        for _ in range(10_000):
            session.rewind(6)
            session.prefill(TOKENS[6:])

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        with pytest.raises(CancelledError):
            rewind_and_read()
    finally:
        stop.set()
        thread.join()
    position = session.position
    assert session.tokens.tolist() == TOKENS[:position]
    want = model.session(24)
    if position:
        want.prefill(TOKENS[:position])
    for one in (session, want):
        one.prefill(TOKENS[position:])
    assert session.logits.argmax() == want.logits.argmax()
    assert np.abs(session.logits - want.logits).max() < 1e-3 * want.logits.std()


def test_a_cut_that_is_cancelled_leaves_no_logits_of_what_is_gone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(folder, "qwen3")
    session, want = model.session(24), model.session(24)
    for token in TOKENS:
        session.step(token)
    for token in TOKENS[:5]:
        want.step(token)

    def cancelled(*_: object) -> None:
        raise CancelledError("now")

    with monkeypatch.context() as patch:
        patch.setattr(session, "_advance_over", cancelled)
        with pytest.raises(CancelledError):
            session.rewind(5)
    reply = model.generate([], max_tokens=3, session=session).tokens
    assert reply == model.generate([], max_tokens=3, session=want).tokens
    assert session.tokens.tolist() == want.tokens.tolist()


HELLO = {"role": "user", "content": "Hello"}
MORE = {"role": "user", "content": "And now?"}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    return pyturbo.load(write_model(tmp_path_factory.mktemp("chat") / "model"))


def test_a_chat_goes_on_where_its_session_agrees(chat: pyturbo.Model) -> None:
    session = chat.session(512)
    first = chat.generate([HELLO], max_tokens=6, session=session)
    ids = chat.prompt_ids([HELLO])
    messages = [HELLO, {"role": "assistant", "content": first.text}, MORE]
    second = chat.generate(messages, max_tokens=6, session=session)
    assert second.tokens == chat.generate(messages, max_tokens=6).tokens
    whole = chat.prompt_ids(messages)
    assert session.tokens.tolist() == [*whole, *second.tokens[:-1]]
    stats = second.stats
    assert stats.prompt_tokens + stats.cached_tokens == len(whole)
    assert whole[: stats.cached_tokens] == [*ids, *first.tokens][: stats.cached_tokens]


def test_a_longer_chat_reads_only_what_is_new(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model whose state can be cut, and ids that stand for what a template would write."""
    model = model_of(folder, "qwen3")
    written = {1: TOKENS[:6], 2: [*TOKENS[:4], 90, 91, 92, 93], 3: TOKENS[:6]}
    monkeypatch.setattr(model, "prompt_text", lambda prompt, tools, variables: prompt)
    monkeypatch.setattr(model, "_encode", lambda prompt, special: written[len(prompt)])
    session = model.session(24)
    cached = []
    for count in (1, 2, 3, 3):
        reply = model.generate([HELLO] * count, max_tokens=2, session=session)
        fresh = model.generate([HELLO] * count, max_tokens=2)
        assert reply.tokens == fresh.tokens
        assert session.tokens.tolist() == [*written[count], reply.tokens[0]]
        cached.append(reply.stats.cached_tokens)
        assert reply.stats.prompt_tokens + reply.stats.cached_tokens == len(written[count])
    assert cached == [0, 3, 3, 5]  # the last token they share is read again, for its logits
    assert "cached_tokens=5" in repr(reply.stats)


def test_a_chat_that_its_session_does_not_know_begins_anew(chat: pyturbo.Model) -> None:
    session = chat.session(512)
    chat.generate([MORE], max_tokens=6, session=session)
    reply = chat.generate([HELLO], max_tokens=6, session=session)
    assert reply.tokens == chat.generate([HELLO], max_tokens=6).tokens
    assert session.tokens.tolist() == [*chat.prompt_ids([HELLO]), *reply.tokens[:-1]]
    again = chat.generate([HELLO], max_tokens=6, session=session)  # the same once more: a regeneration
    assert again.tokens == reply.tokens
    assert session.tokens.tolist() == [*chat.prompt_ids([HELLO]), *reply.tokens[:-1]]


def test_a_chat_must_fit_its_session(chat: pyturbo.Model) -> None:
    session = chat.session(24)
    chat.generate([HELLO], max_tokens=4, session=session)
    before = session.tokens.tolist()
    long = [{"role": "user", "content": "word " * 60}]
    with pytest.raises(ArgumentError, match="prompt: expected at most 24 tokens, a context of 24, got"):
        chat.generate(long, session=session)
    assert session.tokens.tolist() == before
    assert chat.generate([HELLO], max_tokens=4, session=session).stats.prompt_tokens > 0
