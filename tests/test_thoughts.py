"""Thoughts before an answer: constraints that hold for what follows them, and a budget that ends them.

The models are random: what they think is noise that does not end by itself. Thoughts are counted in the bytes
of all tokens, without the parsers of the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyturbo
from pyturbo.conversation import Conversation
from pyturbo.engine.generation import Options
from pyturbo.engine.reply import _Text
from pyturbo.engine.thought_budget import ThoughtBudget
from pyturbo.errors import ArgumentError
from pyturbo.text.dialects import ReplyGrammar
from text.dialects.published import TEMPLATES
from text.dialects.replies import TOOLS
from text.tiny_chat import TEMPLATE, write_model

QUESTION = [{"role": "user", "content": "Weather in Bern?"}]
HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", 3]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
LARK = 'start: "<" BODY ">"\nBODY: /[a-c]{4}/'
#: How a template may begin thoughts, and how a vocabulary may have their markers.
KINDS = ("added", "special", "spelled", "not begun", "harmony")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, pyturbo.Model]:
    return {kind: load(tmp_path_factory.mktemp("thoughts"), kind) for kind in KINDS}


def load(folder: Path, kind: str) -> pyturbo.Model:
    template, special = TEMPLATES["hermes think opened"], ()
    if kind == "harmony":
        template, special = TEMPLATES["harmony"], HARMONY
    if kind == "not begun":
        template = TEMPLATE + "{# <think></think> #}"
    made = write_model(folder / "model", 2, 1024, template=template, special=special)
    vocabulary = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))
    ends = []
    for token in vocabulary["added_tokens"]:
        if token["content"] in ("<think>", "</think>"):
            token["special"] = kind == "special"
            token["content"] = token["content"].replace("think", "k" if kind == "spelled" else "think")
        if token["content"] in ("<|call|>", "<|return|>", "<|im_end|>"):
            ends.append(token["id"])
    (made / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (made / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return pyturbo.load(made, "cpu")


def thought_tokens(model: pyturbo.Model, tokens: list[int], kind: str) -> tuple[int, bool]:
    """How many tokens begin within thoughts, before the marker that ends them; and whether there is one."""
    pieces = [model.tokenizer.token_bytes(token) for token in tokens]
    text = b"".join(pieces)
    places = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    opened, close = {
        "harmony": (rb"<\|channel\|>analysis<\|message\|>", rb"<\|end\|>"),
        "not begun": (rb"\A<think>", b"</think>"),
    }.get(kind, (rb"\A", b"</think>"))
    found = [match.span(1) for match in re.finditer(rb"(?s)(?:%s)(.*?)(?:%s|\Z)" % (opened, close), text)]
    count = sum(start <= place < end for start, end in found for place in places)
    return count, re.search(close, text) is not None


def fits(content: str, constraint: Mapping[str, Any]) -> None:
    if "schema" in constraint:
        value = json.loads(content)
        assert set(value) == {"a", "b"}
        assert type(value["a"]) is bool
        assert value["b"] in ("x", 3)
    if "regex" in constraint:
        assert re.fullmatch(constraint["regex"], content), content
    if "grammar" in constraint:
        assert re.fullmatch("<[a-c]{4}>", content), content


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "schema": {"schema": SCHEMA},
    "regex": {"regex": "[a-z<]{3,5}/[0-9]"},
    "grammar": {"grammar": LARK},
    "none": {},
}


@settings(max_examples=120)
@given(
    kind=st.sampled_from(KINDS),
    constraint=st.sampled_from(sorted(CONSTRAINTS)),
    budget=st.integers(0, 9),
    seed=st.integers(0, 2**32),
)
def test_any_budget_is_kept_and_the_answer_fits(
    models: Mapping[str, pyturbo.Model], kind: str, constraint: str, budget: int, seed: int
) -> None:
    model, chosen = models[kind], CONSTRAINTS[constraint]
    reply = model.generate(
        QUESTION, 150, temperature=1.0, seed=seed, reasoning_budget=budget, ignore_eos=not chosen, **chosen
    )
    count, closed = thought_tokens(model, reply.tokens, kind)
    assert count <= budget
    if kind not in ("not begun", "harmony"):
        assert closed
    if chosen:
        assert reply.finish_reason == "stop"
        fits(reply.message.content, chosen)


@pytest.mark.parametrize("kind", ["added", "special", "spelled"])
def test_a_budget_is_used_up_by_noise(models: Mapping[str, pyturbo.Model], kind: str) -> None:
    """Noise without unfinished characters has exactly as many tokens as it may have."""
    model = models[kind]
    bias = {"x": 1000.0}
    for budget in (0, 1, 7):
        reply = model.generate(QUESTION, 60, reasoning_budget=budget, logit_bias=bias, regex="[0-9]{3}")
        assert reply.reasoning == "x" * budget
        assert re.fullmatch("[0-9]{3}", reply.message.content)
        # Logprobs are those of the model, which would have gone on.
        assert len(reply.logprobs) == len(reply.tokens)
    free = model.generate(QUESTION, 30, logit_bias=bias, regex="[0-9]{3}")
    assert (free.reasoning, free.message.content, free.finish_reason) == ("x" * 30, "", "length")


def test_thoughts_that_the_prompt_has_not_begun_are_optional(models: Mapping[str, pyturbo.Model]) -> None:
    model = models["not begun"]
    plain = model.generate(QUESTION, 60, schema=SCHEMA, logit_bias={"{": 1000.0})
    assert (plain.reasoning, plain.text) == ("", plain.message.content)
    fits(plain.message.content, {"schema": SCHEMA})
    thinking = model.generate(
        QUESTION, 60, schema=SCHEMA, logit_bias={"<think>": 1000.0, "x": 999.0}, reasoning_budget=4
    )
    assert thinking.text.startswith("<think><think><think><think><think></think>")
    fits(thinking.message.content, {"schema": SCHEMA})
    none = model.generate(QUESTION, 60, schema=SCHEMA, logit_bias={"<think>": 1000.0}, reasoning_budget=0)
    assert none.reasoning == ""


def test_a_marker_that_has_begun_is_completed(models: Mapping[str, pyturbo.Model]) -> None:
    tokenizer = models["spelled"].tokenizer
    marker = tokenizer.encode("</think>", special=False)
    assert len(marker) > 2
    budget = ThoughtBudget(tokenizer, tokenizer.chat(QUESTION), 3)
    for token in [*tokenizer.encode("a", special=False), *marker[:2]]:
        assert not budget.spent
        budget.accept(token)
    assert budget.spent
    begun = tokenizer.decode(marker[:2])
    assert begun + tokenizer.decode(budget.closing()) == "</think>"


def test_a_template_that_has_ended_thoughts(models: Mapping[str, pyturbo.Model]) -> None:
    reply = models["added"].generate(QUESTION, 60, schema=SCHEMA, variables={"enable_thinking": False})
    assert reply.text == reply.message.content
    fits(reply.text, {"schema": SCHEMA})


def test_text_is_constrained_from_its_first_token(models: Mapping[str, pyturbo.Model]) -> None:
    reply = models["added"].generate("The tag <think>", 60, schema=SCHEMA, reasoning_budget=0)
    fits(reply.text, {"schema": SCHEMA})


@pytest.mark.parametrize("kind", ["added", "special", "spelled", "harmony"])
@pytest.mark.parametrize("seed", range(3))
def test_a_call_follows_the_thoughts(models: Mapping[str, pyturbo.Model], kind: str, seed: int) -> None:
    model = models[kind]
    unit = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "additionalProperties": False}
    tools = [{"name": "weather", "parameters": {**unit, "required": ["unit"]}}, TOOLS[1]]
    grammar = model.tokenizer.dialect.grammar(tools, "weather", model.prompt_text(QUESTION, tools))
    assert isinstance(grammar, ReplyGrammar)
    reply = model.generate(
        QUESTION, 200, temperature=1.0, seed=seed, tools=tools, grammar=grammar, reasoning_budget=5
    )
    (call,) = reply.tool_calls
    assert (call.name, call.complete) == ("weather", True)
    assert call.values()["unit"] in ("C", "F")
    assert thought_tokens(model, reply.tokens, kind)[0] <= 5


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_forks_and_conversations(models: Mapping[str, pyturbo.Model], kind: str) -> None:
    model = models[kind]
    options: dict[str, Any] = {"max_tokens": 90, "temperature": 1.0, "seed": 3, "reasoning_budget": 4}
    options["schema"] = SCHEMA
    alone = [model.generate(QUESTION, **(options | {"seed": seed})) for seed in (3, 4)]
    assert [reply.tokens for reply in model.generate(QUESTION, **options, n=2)] == [
        reply.tokens for reply in alone
    ]
    with pyturbo.Engine(model, context=512) as engine:
        streams = [engine.submit(QUESTION, **(options | {"seed": seed})) for seed in (3, 4)]
        for stream in streams:
            fits(stream.result().message.content, options)
    conversation = Conversation(model, 512)
    for text in ("Weather in Bern?", "And now?"):
        turn = conversation.reply(text, **options)
        tokens = [chunk.token for chunk in turn]
        fits(turn.message.content, options)
        assert thought_tokens(model, tokens, kind)[0] <= 4


def test_models_without_thoughts_keep_any_budget(tmp_path: Path) -> None:
    model = pyturbo.load(write_model(tmp_path / "model", 2), "cpu")
    assert model.generate(QUESTION, 9, reasoning_budget=0).tokens == model.generate(QUESTION, 9).tokens


@pytest.mark.parametrize("budget", [-1, 1.5, "3"])
def test_wrong_budgets(models: Mapping[str, pyturbo.Model], budget: Any) -> None:
    with pytest.raises(ArgumentError, match="reasoning_budget: expected an integer"):
        models["added"].stream(QUESTION, reasoning_budget=budget)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", ["It rains. stop\n\nOr not, <div> or <tool>.", "<div>stop\n\nrains<tool>"])
def test_stop_strings_are_for_answers(models: Mapping[str, pyturbo.Model], kind: str, answer: str) -> None:
    """Not for thoughts, and not for what is between these and an answer."""
    thoughts = "A stop, and\n\nmore: it rains <div> <tool>."
    if kind == "harmony":
        before = f"<|channel|>analysis<|message|>{thoughts}<|end|>"
        before += "<|start|>assistant<|channel|>final<|message|>"
    else:
        before = f"{'<think>' if kind == 'not begun' else ''}{thoughts}</think>\n\n"
    check_stops(models[kind], before, answer)
    if kind == "not begun":
        check_stops(models[kind], "", answer)


def check_stops(model: pyturbo.Model, before: str, answer: str) -> None:
    chat, tokens = str(model.prompt_text(QUESTION)), model.tokenizer.encode_inside(before + answer)
    for stop in ("stop", "\n\n", "rains", "<div", "<tool"):
        text = _Text(model.tokenizer, Options(stop=stop, chat=chat))
        found = ""
        for token in tokens:
            found += text.add(token)
            if text.stop_string is not None:
                break
        assert (text.stop_string, found) == (stop, before + answer.partition(stop)[0])
    text = _Text(model.tokenizer, Options(stop="stop", chat=chat, min_tokens=len(tokens)))
    assert "".join(map(text.add, tokens)) + text.finish() == before + answer
