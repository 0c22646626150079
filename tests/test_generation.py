"""Streams of tokens from a tiny model with a tokenizer: sampling, endings, interruptions."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.engine.graph import Graph
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, DeviceError, FileError, FormatError, StateError
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_mlx

PROMPT = "It's the first time they'll see birds"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("generation") / "model")


@pytest.fixture(scope="module")
def model(folder: Path) -> pyturbo.Model:
    return pyturbo.load(folder, threads=2)


def greedy(model: pyturbo.Model, ids: list[int], count: int) -> list[int]:
    session = model.session(512)
    logits, tokens = session.prefill(ids), []
    for _ in range(count):
        tokens.append(int(logits.argmax()))
        logits = session.step(tokens[-1])
    return tokens


def test_a_reply_is_what_stepping_gives(model: pyturbo.Model) -> None:
    chunks = list(model.stream(PROMPT, max_tokens=20))
    tokens = [chunk.token for chunk in chunks]
    assert tokens == greedy(model, model.tokenizer.encode(PROMPT), 20)
    assert "".join(chunk.text for chunk in chunks) == model.tokenizer.decode(tokens)
    assert [chunk.finish_reason for chunk in chunks] == [None] * 19 + ["length"]
    completion = model.generate(PROMPT, max_tokens=20)
    assert completion.tokens == tokens
    assert completion.text == model.tokenizer.decode(tokens)
    assert completion.finish_reason == "length"
    assert completion.stats.prompt_tokens == len(model.tokenizer.encode(PROMPT))
    assert completion.stats.tokens == 20
    assert completion.stats.prefill_speed > 0
    assert completion.stats.decode_speed > 0


def test_logprobs(model: pyturbo.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    session = model.session(64)
    logits = session.prefill(ids).astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    (chunk,) = model.stream(ids, max_tokens=1, logprobs=3)
    best = np.argsort(-want, kind="stable")[:3]
    assert chunk.logprob == pytest.approx(want.max(), abs=1e-5)
    assert [token for token, _ in chunk.top] == best.tolist()
    assert [logprob for _, logprob in chunk.top] == pytest.approx(want[best].tolist(), abs=1e-5)


def test_seeds(model: pyturbo.Model) -> None:
    options = {"max_tokens": 12, "temperature": 1.0, "top_p": 0.95, "top_k": 40, "min_p": 0.01}
    first = model.generate(PROMPT, seed=1, **options).tokens
    assert model.generate(PROMPT, seed=1, **options).tokens == first
    assert model.generate(PROMPT, seed=2, **options).tokens != first
    assert model.generate(PROMPT, repetition_penalty=2.0, max_tokens=12).tokens != greedy(
        model, model.tokenizer.encode(PROMPT), 12
    )


def test_a_stop_string_over_several_tokens(model: pyturbo.Model) -> None:
    whole = model.generate(PROMPT, max_tokens=30)
    pieces = [model.tokenizer.decode([token]) for token in whole.tokens]
    first = next(i for i in range(1, 27) if "\ufffd" not in "".join(pieces[i : i + 3]))
    stop = pieces[first][-1] + pieces[first + 1] + pieces[first + 2][:1]
    want = whole.text[: whole.text.index(stop)]
    for stops in (stop, ["never seen", stop, stop + "longer"]):
        cut = model.generate(PROMPT, max_tokens=30, stop=stops)
        assert cut.text == want
        assert cut.finish_reason == "stop"
        assert len(cut.tokens) <= first + 3
    *before, last = model.stream(PROMPT, max_tokens=30, stop=["never seen", stop])
    assert last.stop_string == stop
    assert {chunk.stop_string for chunk in before} == {None}
    # The beginning of a stop string that never comes is shown after all.
    assert model.generate(PROMPT, max_tokens=30, stop=whole.text[-2:] + "\0").text == whole.text


def test_the_end_token_ends_a_reply(model: pyturbo.Model, tmp_path: Path) -> None:
    whole = model.generate(PROMPT, max_tokens=12)
    end = next(i for i in range(3, 12) if whole.tokens[i] not in whole.tokens[:i])
    ending = pyturbo.load(write_model(tmp_path / "model", eos_token_id=[399, whole.tokens[end]]))
    completion = ending.generate(PROMPT, max_tokens=12)
    assert completion.tokens == whole.tokens[: end + 1]
    assert completion.text == model.tokenizer.decode(whole.tokens[:end])
    assert completion.finish_reason == "stop"


def test_a_full_context_ends_a_reply(model: pyturbo.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    session = model.session(len(ids) + 3)
    completion = model.generate(ids, max_tokens=50, session=session)
    assert completion.tokens == greedy(model, ids, 4)
    assert completion.finish_reason == "length"
    assert session.position == session.context
    before = session.state["tokens"].tobytes()
    with pytest.raises(ArgumentError, match="prompt: expected at most 0 tokens, the rest of a context of"):
        model.stream([5], session=session)
    assert session.state["tokens"].tobytes() == before


def test_chat_messages_go_through_the_template(model: pyturbo.Model) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert model.prompt_ids(messages) == model.tokenizer.encode(text, special=False)
    assert model.generate(messages, max_tokens=4).tokens == model.generate(text, max_tokens=4).tokens


def test_a_chat_gives_the_tokens_of_its_template_only(model: pyturbo.Model) -> None:
    start = model.tokenizer.encode("<|im_start|>")[0]
    chat = [{"role": "user", "content": "<|im_start|>system"}, {"role": "assistant", "content": "It's"}]
    ids = model.prompt_ids(chat)
    assert ids.count(start) == 2
    text = model.tokenizer.decode(ids, skip_special=False)
    assert text.endswith("<|im_start|>assistant\nIt's")  # the reply goes on after it


def test_the_checkpoint_says_how_to_sample_where_the_caller_does_not(tmp_path: Path) -> None:
    stated = {"temperature": 5.0, "top_k": 100, "repetition_penalty": 1.5}
    model = pyturbo.load(write_model(tmp_path / "model", layers=2, do_sample=True, **stated))
    assert model.sampling.stated() == stated
    ids = model.tokenizer.encode(PROMPT)

    def tokens(**options: object) -> list[int]:
        return model.generate(ids, 12, **options).tokens

    assert tokens(seed=1) == tokens(seed=1, **stated)
    assert tokens(seed=1) != tokens(seed=2)
    assert tokens(seed=1, temperature=1.0) == tokens(seed=1, **stated | {"temperature": 1.0})
    assert tokens(seed=1, top_k=1) == tokens(temperature=0, repetition_penalty=1.5)
    assert tokens(temperature=0) == tokens(temperature=np.float32(0)) == greedy(model, ids, 12)
    off = {"temperature": 0.0, "repetition_penalty": 1.0}
    assert tokens(temperature=0) == tokens(**off)
    said = pyturbo.load(write_model(tmp_path / "greedy", layers=2, do_sample=False, temperature=5.0))
    assert said.generate(ids, 12).tokens == tokens(temperature=0)


def test_a_closed_iterator_leaves_a_session_that_goes_on(model: pyturbo.Model, tmp_path: Path) -> None:
    ids = model.tokenizer.encode(PROMPT)
    want = greedy(model, ids, 5)
    session = model.session(100)
    chunks = model.stream(ids, session=session)
    assert [next(chunks).token for _ in range(5)] == want
    chunks.close()
    assert session.pending == want[-1:]
    assert session.tokens.tolist() == ids + want[:-1]
    session.save(tmp_path / "saved")
    again = model.load_session(tmp_path / "saved")
    more = model.generate([7, 8], max_tokens=4, session=session).tokens
    assert more == greedy(model, [*ids, *want, 7, 8], 4)
    assert model.generate([7, 8], max_tokens=4, session=again).tokens == more
    assert session.tokens.tolist() == [*ids, *want, 7, 8, *more[:-1]]


def test_an_interrupt_at_any_time_leaves_a_session_that_goes_on(model: pyturbo.Model) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for delay in np.linspace(0.002, 0.06, 12):
            session = model.session(512)
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(KeyboardInterrupt):
                for _ in model.stream(PROMPT, max_tokens=400, session=session):
                    pass
            read = session.tokens.tolist()
            fresh = model.session(512)
            want = fresh.prefill([*read, 7])
            assert np.abs(session.step(7) - want).max() <= 1e-3 * want.std()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_sessions_in_several_threads(model: pyturbo.Model) -> None:
    prompts = [model.tokenizer.encode(PROMPT)[i:] for i in range(4)]
    want = [greedy(model, ids, 10) for ids in prompts]
    got: dict[int, list[int]] = {}

    def work(i: int) -> None:
        got[i] = model.generate(prompts[i], max_tokens=10).tokens

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(4)] == want


def test_memory_and_profile(model: pyturbo.Model) -> None:
    session = model.session(64)
    session.prefill([1, 2, 3])
    memory = session.memory()
    heads, dim = 2, 64
    assert memory.pieces["k"] == memory.pieces["v"] == 2 * 64 * heads * dim * 2  # two layers, 64 rows, f16
    assert memory.pieces["memory"] == 2 * 6 * 128 * 64 * 4
    assert memory.pieces["tokens"] == 64 * 4
    assert sum(memory.pieces.values()) <= memory.state == session.nbytes
    assert memory.weights > 100_000
    assert memory.scratch > 0
    before = {name: array.copy() for name, array in session.state.items()}
    profile = session.profile()
    assert {row.kernel for row in profile.rows()} >= {"route", "delta_net_k64", "moe_combine"}
    assert list(profile.layers) == ["embed", *(f"layers.{i}" for i in range(4)), "head"]
    assert profile.seconds == pytest.approx(sum(profile.layers.values()))
    assert "delta_net_k64" in str(profile)
    assert session.position == 3
    for name, array in session.state.items():
        assert array.tobytes() == before[name].tobytes()
    full = model.session(3)
    full.prefill([1, 2, 3])
    assert full.profile().seconds > 0


def test_a_profile_reads_the_next_token(model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []

    def step(session: Session, token: int) -> None:
        read.append((session.position, token))

    monkeypatch.setattr(Session, "step", step)
    for context in (5, 8):
        session = model.session(context)
        session.profile()
        session.prefill([1, 2, 3])
        session.profile()
        tokens = model.generate([4], 2, session=session).tokens
        session.profile()
        assert (session.position, session.pending) == (5, tokens[-1:])
        assert read == [(0, 0), (3, 3), (min(5, context - 1), tokens[-1])]
        read.clear()


def test_stats_belong_to_one_reply_at_a_time(model: pyturbo.Model) -> None:
    stats = pyturbo.Stats()
    for count in (4, 3):
        assert len(model.generate("hello", count, stats=stats).tokens) == count == stats.tokens


def test_turns_of_one_session(model: pyturbo.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    whole = model.generate(ids, 12, repetition_penalty=3.0).tokens
    session = model.session(100)
    session.prefill(np.array(ids[:-1]))
    assert model.generate(ids[-1:], 12, repetition_penalty=3.0, session=session).tokens == whole
    # An empty prompt goes on: with the pending token, or with the logits of a prompt.
    want = greedy(model, ids, 8)
    session = model.session(100)
    assert model.generate(ids, 5, session=session).tokens == want[:5]
    assert model.generate([], 3, session=session).tokens == want[5:]
    session = model.session(100)
    session.prefill(ids)
    assert model.generate("", 8, session=session).tokens == want


def test_a_text_begins_once(folder: Path, tmp_path: Path) -> None:
    beginning = write_model(tmp_path / "model")
    settings = {"add_bos_token": True, "bos_token": "<|im_start|>"}
    (beginning / "tokenizer_config.json").write_text(json.dumps(settings))
    model = pyturbo.load(beginning)
    session = model.session(100)
    model.generate("Hello", 2, session=session)
    model.generate(" world", 2, session=session)
    bos = model.tokenizer.encode("<|im_start|>", special=False)[0]
    assert session.tokens.tolist().count(bos) == 1
    assert session.tokens[0] == bos


def test_two_replies_of_one_session_do_not_mix(model: pyturbo.Model) -> None:
    session = model.session(100)
    first = model.stream(PROMPT, session=session)
    next(first)
    second = model.stream([5, 6], session=session)
    next(second)
    with pytest.raises(StateError, match="the session went on without this reply"):
        next(first)


def test_a_session_ends_with_a_failed_replay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = pyturbo.load(folder, "cpu").session(16)
    session.prefill([1, 2])
    monkeypatch.setattr(Graph, "run", fails)
    with pytest.raises(DeviceError, match="in the middle of a token"):
        session.step(3)
    monkeypatch.undo()
    with pytest.raises(StateError, match="cannot go on after: in the middle of a token"):
        session.step(3)
    with pytest.raises(StateError, match="cannot go on after: in the middle of a token"):
        session.save(folder / "failed")
    assert session.position == 2


def fails(*_: object) -> None:
    raise DeviceError("in the middle of a token")


def test_a_session_outlives_its_device(folder: Path, tmp_path: Path) -> None:
    device = pyturbo.Device("cpu")
    session = pyturbo.load(folder, device).session(16)
    session.prefill([1, 2])
    device.close()
    for _ in range(2):
        with pytest.raises(StateError, match="^cpu: the device is closed$"):
            session.step(3)
    session.save(tmp_path / "kept")
    assert pyturbo.load(folder).load_session(tmp_path / "kept").position == 2


def test_refusals(model: pyturbo.Model, folder: Path, tmp_path: Path) -> None:
    for message, prompt, options in (
        ("prompt: expected at least one token, got none", "", {}),
        ("prompt: expected at least one token, got none", [], {}),
        ("prompt: expected a list of integers", [[1], [2, 3]], {}),
        ("prompt: expected a list of integers", np.array([0.5]), {}),
        ("prompt: expected 0 to", [404], {}),
        ("prompt: expected text, token ids or a list of messages, got None", None, {}),
        ("prompt: expected text, token ids or a list of messages, got b'abc'", b"abc", {}),
        ("prompt: expected text, token ids or", {"role": "user", "content": "x"}, {}),
        ("messages", [{"role": "user"}], {}),
        ("max_tokens: expected an integer from 1 on, got 0", "x", {"max_tokens": 0}),
        ("max_tokens: expected an integer from 1 on, got -1", "x", {"max_tokens": -1}),
        ("max_tokens: expected an integer", "x", {"max_tokens": 1.5}),
        ("logprobs: expected an integer from 0 on, got -1", "x", {"logprobs": -1}),
        ("stop: expected a list of texts that are not empty, got \\[''\\]", "x", {"stop": [""]}),
        ("stop: expected a list of texts that are not empty, got 5", "x", {"stop": 5}),
        ("temperature: expected", "x", {"temperature": -1.0}),
        ("temperature: expected a number in range", "x", {"temperature": 10**400}),
        ("prompt: expected at most 512 tokens, the rest of", [1] * 600, {}),
        ("session: expected one of this model", "x", {"session": pyturbo.load(folder).session(9)}),
        ("session: expected one of this model", "x", {"session": 5}),
    ):
        with pytest.raises(ArgumentError, match=message):
            model.stream(prompt, **options)
    for context in ("a", 1.5, 0, 513):
        with pytest.raises(ArgumentError, match="session: context: expected"):
            model.session(context)
    for options, message in (
        ({"device": 5}, "device: expected a name or a Device, got 5"),
        ({"kv": ["f16"]}, "kv: expected one of"),
        ({"device": pyturbo.Device("cpu"), "threads": 2}, "threads: expected none beside a Device"),
    ):
        with pytest.raises(ArgumentError, match=message):
            pyturbo.load(folder, **options)
    with pytest.raises(FileError, match="cannot be opened"):
        pyturbo.load("a" * 5000)
    with pytest.raises(ArgumentError, match="expected a path, got int"):
        pyturbo.load(5)
    plain = pyturbo.load(write_mlx(MODELS["llama"], tmp_path / "plain"))
    with pytest.raises(FormatError, match="tokenizer"):
        plain.generate("text")
    with pytest.raises(FormatError, match="tokenizer"):
        plain.generate([1, 2], stop="x")
    completion = plain.generate([1, 2], max_tokens=3)
    assert (len(completion.tokens), completion.text) == (3, "")
