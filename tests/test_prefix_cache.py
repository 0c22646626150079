"""The prefix cache of a model: prompts, chats, conversations and commands that use it.

The model in the package has delta nets and attention.
"""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pyturbo
from pyturbo import PrefixCache
from pyturbo.cli import main
from pyturbo.errors import ArgumentError, StateError
from pyturbo.model import Model
from text.tiny_chat import write_model
from text.vocabularies import byte_level
from tiny_configs import MODELS
from tiny_models import write_mlx

STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the"


@pytest.fixture(scope="module")
def model() -> Model:
    return pyturbo.load(prefix_cache="100MB")


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind that can chat."""
    hybrid = write_model(tmp_path_factory.mktemp("chats") / "hybrid")
    tiny, attention = MODELS["qwen3"], hybrid.with_name("attention")
    write_mlx(replace(tiny, config=tiny.config | {"vocab_size": byte_level().get_vocab_size()}), attention)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(hybrid / name, attention)
    return {"attention": attention, "hybrid": hybrid}


def test_texts_with_the_same_beginning(model: Model) -> None:
    plain = pyturbo.load()
    for text, cached in ((STORY, 0), (STORY, True), (f"{STORY} sun and", True), ("Once there was", 0)):
        reply = model.generate(text, 8)
        assert (reply.stats.cached_tokens > 10) == cached
        assert reply.stats.cached_tokens + reply.stats.prompt_tokens == len(model.prompt_ids(text))
        assert reply.tokens == plain.generate(text, 8).tokens


def test_options_of_a_reply_do_not_matter(model: Model) -> None:
    """Stored logits are those of the model, before any penalty: a seed draws the same tokens from them."""
    options: dict[str, Any] = {"temperature": 0.9, "seed": 4, "repetition_penalty": 1.4, "logprobs": 3}
    want = pyturbo.load().generate(STORY, 12, **options)
    for _ in range(3):
        got = model.generate(STORY, 12, **options)
        assert (got.tokens, got.logprobs, got.top) == (want.tokens, want.logprobs, want.top)


@pytest.mark.parametrize("name", ["attention", "hybrid"])
def test_whole_chats_read_only_what_is_new(chats: dict[str, Path], name: str) -> None:
    model = pyturbo.load(chats[name], kv="f32", prefix_cache="50MB")
    plain = pyturbo.load(chats[name], kv="f32")
    messages, known = [{"role": "system", "content": "Be brief."}], 0
    for text in ("Why is the sky blue?", "And at night?", "Thanks."):
        messages.append({"role": "user", "content": text})
        said = plain.tokenizer.encode(plain.tokenizer.chat(messages, generate=False), special=False)
        reply = model.generate(messages, 5)
        assert reply.tokens == plain.generate(messages, 5).tokens
        assert reply.stats.cached_tokens >= known
        again = model.generate(messages, 5)
        assert again.tokens == reply.tokens
        assert again.stats.cached_tokens >= len(said)
        known = len(said)
        messages.append({"role": "assistant", "content": reply.text})


def test_what_comes_before_a_reply_depends_on_the_variables_of_a_template(
    chats: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(chats["hybrid"], folder)
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text("{{ mood }}" + template)
    model = pyturbo.load(folder, kv="f32", prefix_cache="50MB")
    messages = [{"role": "user", "content": "Hello there, how are you?"}]
    for mood in ("calm", "very cheerful"):
        text = model.prompt_text(messages, variables={"mood": mood})
        ids = model.prompt_ids(text)
        count = model.before_reply(messages, text, ids, variables={"mood": mood})
        assert count is not None
        assert model.tokenizer.decode(ids[count:], skip_special=False) == "<|im_start|>assistant\n"
        first, again = (model.generate(messages, 3, variables={"mood": mood}) for _ in range(2))
        assert (first.stats.cached_tokens, again.stats.cached_tokens) == (0, count)
    assert model.before_reply(text, text, ids) is None


@pytest.mark.parametrize("name", ["attention", "hybrid"])
def test_conversations_begin_with_what_others_have_read(chats: dict[str, Path], name: str) -> None:
    model = pyturbo.load(chats[name], kv="f32", prefix_cache="50MB")
    plain = pyturbo.load(chats[name], kv="f32")
    system = "You are a patient teacher who explains everything twice."
    cached = []
    for text in ("Hello!", "Good evening.", "Who are you?"):
        answers = []
        for where in (model, plain):
            stats = pyturbo.Stats()
            conversation = pyturbo.Conversation(where, 400, system)
            answers.append([chunk.token for chunk in conversation.reply(text, 6, stats=stats)])
            answers[-1] += [chunk.token for chunk in conversation.reply("And then?", 6)]
            cached.append(stats.cached_tokens)
        assert answers[0] == answers[1]
    assert cached[1::2] == [0, 0, 0]
    assert cached[0] == 0 < cached[4]


def test_a_session_that_is_given_goes_on_as_without(model: Model) -> None:
    session = model.session(256)
    model.generate(STORY, 4, session=session)
    position = session.position + len(session.pending)
    reply = model.generate(" and the", 4, session=session)
    assert reply.stats.cached_tokens == 0
    assert session.position == position + reply.stats.prompt_tokens + 3
    other = pyturbo.load().session(256)
    other.prefill(session.tokens)
    assert session.pending == [int(other.logits.argmax())]


def test_the_next_process_takes_it_from_disk(tmp_path: Path) -> None:
    want = pyturbo.load(prefix_cache=PrefixCache(folder=tmp_path)).generate(STORY, 8)
    again = pyturbo.load(prefix_cache=PrefixCache("1MB", tmp_path, "1GB")).generate(STORY, 8)
    assert again.tokens == want.tokens
    assert again.stats.cached_tokens == want.stats.prompt_tokens
    assert again.stats.prompt_tokens == 0


def test_a_closed_model_gives_its_memory_back() -> None:
    model = pyturbo.load(prefix_cache="100MB")
    model.generate(STORY, 2)
    store = model.prefix_store
    assert store is not None
    assert store.nbytes > 10**6
    assert repr(store).startswith("PrefixStore(")
    model.close()
    assert store.nbytes == 0
    with pytest.raises(StateError):
        model.generate(STORY, 2)


def test_wrong_settings_are_errors_before_a_model_is_loaded(tmp_path: Path) -> None:
    for wrong in (True, 0, -1, 1.5, "much", [], b"1GB"):
        with pytest.raises(ArgumentError, match="load: prefix_cache: expected"):
            pyturbo.load("no-such-model", prefix_cache=wrong)  # type: ignore[arg-type]
    for wrong in ({"memory": 0}, {"memory": "x"}, {"disk": 0}, {"disk": None}, {"folder": 3}, {"folder": ""}):
        with pytest.raises(ArgumentError, match=f"prefix_cache: {next(iter(wrong))}: expected"):
            PrefixCache(**wrong)  # type: ignore[arg-type]


def test_generate_takes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "--raw", "--max-tokens", "4", "--prefix-cache", str(tmp_path), STORY]
    shown = []
    for _ in range(2):
        assert main([*command, "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    first, second = (reply["stats"]["cached_tokens"] for reply in shown)
    assert first == 0 < second
    assert shown[0]["text"] == shown[1]["text"]
    assert main([*command, "--stats"]) == 0
    assert f"{second} tokens known, 0 tokens read" in capsys.readouterr().err


def test_chat_takes_a_folder(
    chats: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = []
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hello!\n")))
        options = ["--max-tokens", "4", "--json", "--context", "200", "--prefix-cache", str(tmp_path)]
        assert main(["chat", str(chats["hybrid"]), *options]) == 0
        cached.append(json.loads(capsys.readouterr().out)["stats"]["cached_tokens"])
    assert cached[0] == 0 < cached[1]


def test_a_folder_of_no_name_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--prefix-cache", "", "x"]) == 2
    assert "prefix_cache: folder: expected a path" in capsys.readouterr().err
