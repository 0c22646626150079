"""Replies under a constraint, and options that decide when a reply ends or which tokens it has.

The model is random, so what it would say without them is noise: texts are checked by `re` and `json`, and
tokens by the logits of the whole text, which are computed anew.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
import smollm2
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text import constraint as constraints
from reference import sampler as reference
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_mlx

PROMPT = "Hello 日本 birds"
REGEX = r"[a-z]{3,9}( and [a-z]{3,9})?\."


def write(folder: Path, layers: int) -> Path:
    return write_model(folder / "model", layers, eos_token_id=[401, 400])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("constrained"), layers=2)


@pytest.fixture(scope="module")
def model(folder: Path, device: pyturbo.Device) -> Iterator[pyturbo.Model]:
    with pyturbo.load(folder, device) as model:
        yield model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyturbo.Model]:
    """A larger model, on the CPU only."""
    with pyturbo.load(write(tmp_path_factory.mktemp("plain"), layers=4), "cpu") as model:
        yield model


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 4},
    "top_k": {"temperature": 1.5, "top_k": 30, "seed": 5},
    "penalties": {"presence_penalty": 3.0, "frequency_penalty": 1.0, "repetition_penalty": 1.2},
}


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_reply_matches_the_regular_expression(model: pyturbo.Model, options: dict[str, Any]) -> None:
    reply = model.generate(PROMPT, 60, regex=REGEX, **options)
    assert re.fullmatch(REGEX, reply.text), reply.text
    assert reply.finish_reason == "stop"
    assert not set(reply.tokens) & set(model.eos_ids)  # nothing can follow the full stop


@pytest.mark.parametrize("regex", [REGEX, "[a-z ]{40}", r"[A-Z][a-z]+(, [a-zA-Z ]+)*\."])
def test_slices_change_no_mask(plain: pyturbo.Model, monkeypatch: pytest.MonkeyPatch, regex: str) -> None:
    def make() -> constraints.Constraint:
        vocabulary, vocab = plain.tokenizer._vocabulary, plain.network.vocab
        return constraints.Constraints(vocabulary, vocab).make("regex", regex)

    sliced = make()
    monkeypatch.setattr(constraints, "SLICES", ())
    whole, rng, steps = make(), np.random.default_rng(1), 0
    while not sliced.ended and steps < 30:
        bits = np.unpackbits(sliced.mask().view(np.uint8), bitorder="little")
        np.testing.assert_array_equal(bits, np.unpackbits(whole.mask().view(np.uint8), bitorder="little"))
        allowed = [token for token in np.flatnonzero(bits) if token not in plain.eos_ids]
        token = int(rng.choice(allowed))
        sliced.accept(token)
        whole.accept(token)
        steps += 1
    assert steps > 3


def test_greedy_tokens_are_the_likeliest_that_are_allowed(plain: pyturbo.Model) -> None:
    ids = plain.tokenizer.encode(PROMPT)
    reply = plain.generate(ids, 60, regex=REGEX, logprobs=2)
    logits = plain.logits([*ids, *reply.tokens])[len(ids) - 1 : -1]
    constraint = plain.tokenizer.constraint(regex=REGEX, vocab=plain.network.vocab)
    for row, token, logprob, top in zip(logits, reply.tokens, reply.logprobs, reply.top):
        bits = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")[: len(row)].astype(bool)
        near = np.where(bits, row, -np.inf)
        assert row[token] >= near.max() - 1e-3
        # Logprobs are those of the model, as if there were no constraint.
        assert logprob == pytest.approx(reference.log_softmax(row)[token], abs=1e-3)
        assert top[0][1] == pytest.approx(reference.log_softmax(row).max(), abs=1e-3)
        constraint.accept(token)
    assert constraint.ended


def test_the_end_of_a_reply_is_a_choice_where_the_text_may_end(plain: pyturbo.Model) -> None:
    end = plain.eos_ids[0]
    reply = plain.generate(PROMPT, 60, regex="(ab)*", logit_bias={end: 100.0})
    assert (reply.text, reply.tokens, reply.finish_reason) == ("", [end], "stop")
    reply = plain.generate(PROMPT, 60, regex="ab(ab)*", logit_bias={end: 100.0})
    assert (reply.text, reply.tokens[-1], reply.finish_reason) == ("ab", end, "stop")
    reply = plain.generate(PROMPT, 5, regex="a*", logit_bias=dict.fromkeys(plain.eos_ids, -np.inf))
    assert (set(reply.text), reply.finish_reason) == ({"a"}, "length")


def test_stop_strings_end_a_constrained_reply(plain: pyturbo.Model) -> None:
    reply = plain.generate(PROMPT, 60, regex="one, two, three", stop="o, t")
    assert (reply.text, reply.finish_reason) == ("one, tw", "stop")


@pytest.mark.parametrize("seed", range(4))
def test_a_schema_and_a_grammar(plain: pyturbo.Model, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", 3]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    options = {"temperature": 1.0, "seed": seed}
    found = json.loads(plain.generate(PROMPT, 200, schema=schema, **options).text)
    assert set(found) == {"a", "b"}
    assert type(found["a"]) is bool
    assert found["b"] in ("x", 3)
    assert found == json.loads(plain.generate(PROMPT, 200, schema=json.dumps(schema), **options).text)
    text = plain.generate(PROMPT, 200, grammar='start: "<" body ">"\nbody: /[a-c]{4}/', **options).text
    assert re.fullmatch("<[a-c]{4}>", text)


def test_wrong_options_are_found_before_the_prompt_is_read(plain: pyturbo.Model) -> None:
    session = plain.session(64)
    for message, options in (
        ("regex: expected a regular expression", {"regex": "["}),
        ("schema: expected a JSON schema that a reply can fit: .*Unsatisfiable", {"schema": {"enum": []}}),
        ("grammar: expected a Lark grammar", {"grammar": "start: nothing"}),
        ("regex: expected one of schema, regex and grammar", {"regex": "a", "schema": {}}),
        ("min_tokens: expected at most max_tokens, 256, got 300", {"min_tokens": 300}),
        ("min_tokens: expected an integer from 0 on, got -1", {"min_tokens": -1}),
        ("ignore_eos: expected True or False, got 1", {"ignore_eos": 1}),
        ("logit_bias: expected a mapping of tokens to numbers, got 5", {"logit_bias": 5}),
        ("logit_bias: token: expected an id below 404, got 404", {"logit_bias": {404: 1.0}}),
        ("logit_bias: token: expected an integer from 0 on, got 1.5", {"logit_bias": {1.5: 1.0}}),
        ("logit_bias: expected the text of one token, got 'two words'", {"logit_bias": {"two words": 1.0}}),
        ("logit_bias: expected a number, got 'x'", {"logit_bias": {1: "x"}}),
        ("dry_breakers: expected a list of texts that are not empty, got 'x'", {"dry_breakers": "x"}),
        ("dry_breakers: expected a list of texts that are not empty", {"dry_breakers": [""]}),
        ("typical_p: expected a number above 0", {"typical_p": 0}),
        ("xtc_threshold: expected a number from 0 to 0.5", {"xtc_threshold": 0.7}),
    ):
        with pytest.raises(ArgumentError, match=message):
            plain.stream(PROMPT, session=session, **options)
        with pytest.raises(ArgumentError, match=message):
            plain.generate(PROMPT, session=session, n=2, **options)
        assert session.position == 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'penalty'"):
        plain.stream(PROMPT, penalty=1)


def test_without_a_tokenizer(tmp_path: Path) -> None:
    mute = pyturbo.load(write_mlx(MODELS["llama"], tmp_path / "mute"), "cpu")
    for options in (
        {"regex": "a"},
        {"logit_bias": {"a": 1.0}},
        {"dry_multiplier": 1.0, "dry_breakers": ["a"]},
    ):
        with pytest.raises(FormatError, match="tokenizer"):
            mute.generate([1, 2], 3, **options)
    reply = mute.generate([1, 2], 6, dry_multiplier=1.0, logit_bias={5: 1e4}, presence_penalty=0.5)
    assert reply.tokens == [5] * 6


def test_a_fork_leaves_the_reply_alone(plain: pyturbo.Model) -> None:
    whole = plain.generate(PROMPT, 60, regex=REGEX)
    session = plain.session(128)
    reply = plain.stream(PROMPT, 60, regex=REGEX, session=session)
    first = [next(reply) for _ in range(2)]
    sessions = [session._forked() for _ in range(2)]  # the reply holds the session
    others = [plain.generate("", 60, regex="[0-9]{5}", session=other) for other in sessions]
    assert others[0].tokens == others[1].tokens
    assert re.fullmatch("[0-9]{5}", others[0].text)
    assert [chunk.token for chunk in (*first, *reply)] == whole.tokens


def test_conversations(plain: pyturbo.Model) -> None:
    chat = pyturbo.Conversation(plain, context=256)
    first = "".join(chunk.text for chunk in chat.reply("Yes or no?", regex="yes|no"))
    second = "".join(chunk.text for chunk in chat.reply("And now?", 40, regex="[0-9]{2}", min_tokens=1))
    assert first in ("yes", "no")
    assert re.fullmatch("[0-9]{2}", second)
    assert [message["content"] for message in chat.messages] == ["Yes or no?", first, "And now?", second]
    with pytest.raises(ArgumentError, match="regex: expected"):
        chat.reply("x", regex="[")
    assert len(chat.messages) == 4


def test_astream(plain: pyturbo.Model) -> None:
    async def text() -> str:
        return "".join([chunk.text async for chunk in plain.astream(PROMPT, 40, regex="a[bc]{3}")])

    assert re.fullmatch("a[bc]{3}", asyncio.run(text()))


@pytest.mark.spread
@pytest.mark.slow
def test_a_reply_has_its_least_tokens(model: pyturbo.Model) -> None:
    """The ends are the likeliest tokens, so only options keep them away."""
    ends = {end: 1000.0 - 50 * number for number, end in enumerate(model.eos_ids)}  # logits are closer
    assert model.generate(PROMPT, 9, logit_bias=ends).tokens == [model.eos_ids[0]]
    reply = model.generate(PROMPT, 9, logit_bias=ends, min_tokens=4)
    assert len(reply.tokens) == 5
    assert reply.tokens[4] == model.eos_ids[0]
    assert not set(reply.tokens[:4]) & set(model.eos_ids)
    reply = model.generate(PROMPT, 9, logit_bias=ends, ignore_eos=True)
    assert (len(reply.tokens), reply.finish_reason) == (9, "length")
    # A constraint that lets nothing else follow ends the reply all the same.
    reply = model.generate(PROMPT, 9, logit_bias=ends, ignore_eos=True, regex="ab?")
    assert (reply.text, reply.finish_reason) == ("ab", "stop")


def test_stop_strings_count_after_the_least_tokens(plain: pyturbo.Model) -> None:
    bias = {"a": 1000.0}
    assert plain.generate(PROMPT, 9, logit_bias=bias, stop="a").text == ""
    reply = plain.generate(PROMPT, 9, logit_bias=bias, stop="a", min_tokens=3)
    assert (reply.text, len(reply.tokens), reply.finish_reason) == ("aaa", 4, "stop")
    reply = plain.generate(PROMPT, 9, logit_bias=bias, stop="aaa", min_tokens=2)
    assert (reply.text, len(reply.tokens)) == ("aa", 5)


def test_bias_by_id_and_by_text(plain: pyturbo.Model) -> None:
    token = plain.tokenizer.token("x")
    for key in (token, "x", np.int64(token)):
        assert plain.generate(PROMPT, 3, logit_bias={key: 1000.0}).tokens == [token] * 3
    reply = plain.generate(PROMPT, 3, logit_bias={"x": 1000.0, "y": 999.0}, presence_penalty=2.0)
    assert reply.text == "xyx"  # both are penalised after the second


def test_dry_ends_a_loop(plain: pyturbo.Model) -> None:
    bias = {"x": 1000.0, "y": 990.0}
    looping = plain.generate(PROMPT, 12, logit_bias=bias).text
    assert looping == "x" * 12
    dry = plain.generate(PROMPT, 12, logit_bias=bias, dry_multiplier=4.0, dry_base=2.0).text
    assert "y" in dry
    assert plain.generate(PROMPT, 12, logit_bias=bias, dry_multiplier=4.0, dry_breakers=["x"]).text == looping


@pytest.mark.spread
@pytest.mark.slow
def test_several_replies_to_one_prompt(model: pyturbo.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)
    options: dict[str, Any] = {"temperature": 1.2, "seed": 2**64 - 1, "max_tokens": 6}
    replies = model.generate(ids, **options, n=3)
    alone = [model.generate(ids, **(options | {"seed": seed})) for seed in (2**64 - 1, 0, 1)]
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in alone]
    assert [reply.stats.prompt_tokens for reply in replies] == [len(ids), 0, 0]
    assert [reply.stats.cached_tokens for reply in replies] == [0, len(ids), len(ids)]
    assert isinstance(model.generate(ids, 2, n=1), list)


def test_several_replies_in_a_session(plain: pyturbo.Model) -> None:
    ids = plain.tokenizer.encode(PROMPT)
    session = plain.session(64)
    replies = plain.generate(ids, 4, n=2, session=session, regex="[ab]{9}")
    assert [reply.text for reply in replies] == [plain.generate(ids, 4, regex="[ab]{9}").text] * 2
    assert (session.position, session.pending) == (len(ids), [])
    chat = [{"role": "user", "content": "Hi"}]
    whole = plain.session(64)
    first = plain.generate(chat, 3, n=2, session=whole)
    again = plain.generate(chat, 3, n=2, session=whole)
    assert [reply.tokens for reply in first] == [reply.tokens for reply in again]
    assert again[0].stats.cached_tokens == whole.position
    for message, options in (
        ("n: expected an integer from 1 on, got 0", {"n": 0}),
        ("n: expected an integer", {"n": 1.5}),
        ("stats: expected none beside n", {"n": 2, "stats": pyturbo.Stats()}),
        ("prompt: expected at most", {"n": 2, "session": plain.session(2)}),
    ):
        with pytest.raises(ArgumentError, match=message):
            plain.generate(ids, **options)


@pytest.mark.slow
def test_a_real_model_fills_in_a_schema() -> None:
    path = smollm2.model_path()
    assert path is not None
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "is_capital": {"type": "boolean"}},
        "required": ["city", "is_capital"],
        "additionalProperties": False,
    }
    with pyturbo.load(path) as model:
        question = [{"role": "user", "content": "What is the capital of France? Answer as JSON."}]
        reply = model.generate(question, 60, schema=schema, temperature=0)
        assert json.loads(reply.text)["city"] == "Paris"
        assert reply.finish_reason == "stop"
        question = [{"role": "user", "content": "Is the sun hot? Answer yes or no."}]
        assert model.generate(question, 5, regex="yes|no", temperature=0).text in ("yes", "no")
