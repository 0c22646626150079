"""Chats with tools and thoughts, with replies that are written here and not by the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyturbo
from pyturbo.conversation import Conversation
from pyturbo.engine.generation import Options
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text.dialects import (
    Message,
    Reasoning,
    Text,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    joined,
)
from scripted import Scripted
from text.dialects.published import TEMPLATES
from text.dialects.replies import TOOLS
from text.tiny_chat import write_model
from text.vocabularies import byte_level

HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>")
QUESTION = [{"role": "user", "content": "Weather in Bern?"}]
QWEN_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
HARMONY_CALL = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Bern"}'
)

Script = Callable[[pyturbo.Model, str, str], None]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    """A model whose template begins the thoughts of a reply."""
    folder = tmp_path_factory.mktemp("qwen") / "model"
    template, end = TEMPLATES["hermes think opened"], token_of("<|im_end|>")
    return pyturbo.load(write_model(folder, 2, 1024, template=template, eos_token_id=[end]), "cpu")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    """A model whose markers are special tokens."""
    folder, first = tmp_path_factory.mktemp("gpt_oss") / "model", token_of("</think>") + 1
    ends = [first + HARMONY.index(end) for end in ("<|call|>", "<|return|>")]
    made = write_model(folder, 2, 1024, template=TEMPLATES["harmony"], special=HARMONY, eos_token_id=ends)
    return pyturbo.load(made, "cpu")


def token_of(text: str) -> int:
    return int(byte_level().token_to_id(text))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    def write(model: pyturbo.Model, text: str, end: str) -> None:
        tokens = model.tokenizer.encode(text + end, special=False)
        assert tokens[-1] in model.eos_ids
        monkeypatch.setattr(Options, "sampler", lambda self, *more: Scripted(tokens))

    return write


def test_a_reply_has_thoughts_and_calls(qwen: pyturbo.Model, script: Script) -> None:
    reply = f"I see.\n</think>\n\nLet me look.\n{QWEN_CALL}"
    script(qwen, reply, "<|im_end|>")
    done = qwen.generate(QUESTION, tools=TOOLS)
    assert (done.message.content, done.reasoning, done.text) == ("Let me look.", "I see.", reply)
    (call,) = done.tool_calls
    assert (call.name, call.values(), call.complete) == ("weather", {"city": "Bern"}, True)


def test_parts_arrive_one_by_one(qwen: pyturbo.Model, script: Script) -> None:
    script(qwen, f"I see.\n</think>\n\n{QWEN_CALL}", "<|im_end|>")
    reply = qwen.stream(QUESTION, tools=TOOLS)
    parts = list(reply.parts())
    assert len(parts) > 6
    thoughts, begin, arguments, end = joined(parts)
    assert thoughts == Reasoning("I see.")
    assert isinstance(begin, ToolCallBegin)
    assert arguments == ToolCallArguments(0, '{"city": "Bern"}')
    assert end == ToolCallEnd(0, complete=True)
    assert reply.message.tool_calls[0].id == begin.id


def test_parts_can_be_asked_for_at_any_time(qwen: pyturbo.Model, script: Script) -> None:
    script(qwen, f"I see.\n</think>\n\n{QWEN_CALL}", "<|im_end|>")
    reply = qwen.stream(QUESTION, tools=TOOLS)
    for _ in range(4):
        next(reply)
    assert "I see.".startswith(reply.message.reasoning)
    assert not reply.message.tool_calls
    assert [type(part) for part in joined(reply.parts())] == [
        Reasoning,
        ToolCallBegin,
        ToolCallArguments,
        ToolCallEnd,
    ]
    assert list(reply.parts()) == []
    script(qwen, f"I see.\n</think>\n\n{QWEN_CALL}", "<|im_end|>")
    reply = qwen.stream(QUESTION, tools=TOOLS)
    next(reply)
    reply.close()
    assert reply.message.tool_calls == []


def test_special_tokens_are_markers_of_a_chat(gpt_oss: pyturbo.Model, script: Script) -> None:
    script(gpt_oss, HARMONY_CALL, "<|call|>")
    done = gpt_oss.generate(QUESTION, tools=TOOLS)
    assert done.text == HARMONY_CALL
    assert (done.message.content, done.reasoning) == ("", "Hm.")
    assert done.tool_calls[0].values() == {"city": "Bern"}
    script(gpt_oss, HARMONY_CALL, "<|call|>")
    assert "<|" not in gpt_oss.generate("text that is continued").text


def test_a_call_that_has_no_room_is_incomplete(qwen: pyturbo.Model, script: Script) -> None:
    script(qwen, f"</think>{QWEN_CALL}", "<|im_end|>")
    tokens = len(qwen.tokenizer.encode(f"</think>{QWEN_CALL}", special=False))
    done = qwen.generate(QUESTION, tokens - 20, tools=TOOLS)
    assert done.finish_reason == "length"
    (call,) = done.tool_calls
    assert not call.complete
    with pytest.raises(FormatError, match="weather: expected a JSON object of arguments, got"):
        call.values()


def test_a_constrained_reply_is_a_call(tmp_path: Path) -> None:
    """Of a model with random weights, which has no choice but that of an argument."""
    model = pyturbo.load(write_model(tmp_path / "model", 2, 1024, template=TEMPLATES["hermes"]), "cpu")
    unit = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "additionalProperties": False}
    tools = [{"name": "weather", "parameters": {**unit, "required": ["unit"]}}]
    grammar = model.tokenizer.dialect.grammar(tools, "weather", model.prompt_text(QUESTION, tools))
    done = model.generate(QUESTION, 100, tools=tools, grammar=grammar)
    (call,) = done.tool_calls
    assert (call.name, call.complete, done.message.content) == ("weather", True, "")
    assert call.values()["unit"] in ("C", "F")


def test_the_template_has_tools_and_variables(qwen: pyturbo.Model) -> None:
    text = qwen.prompt_text(QUESTION, TOOLS, {"enable_thinking": False})
    assert '"The weather of a place."' in text
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert qwen.prompt_text(QUESTION, []) == qwen.prompt_text(QUESTION) == qwen.tokenizer.chat(QUESTION)
    alone = qwen.prompt_text(QUESTION, [TOOLS[0]["function"]])
    assert alone == qwen.prompt_text(QUESTION, TOOLS[:1])
    assert qwen.prompt_text("a") == "a"


def test_a_rendered_chat_is_a_prompt(qwen: pyturbo.Model, script: Script) -> None:
    script(qwen, f"</think>{QWEN_CALL}", "<|im_end|>")
    text = qwen.tokenizer.chat(QUESTION, tools=TOOLS)
    assert qwen.prompt_ids(text) == qwen.tokenizer.encode(text, special=False)
    assert qwen.generate(text).tool_calls[0].name == "weather"


@pytest.mark.parametrize("name", ["tools", "variables"])
def test_other_prompts_have_no_template(qwen: pyturbo.Model, name: str) -> None:
    given: dict[str, Any] = {"tools": TOOLS} if name == "tools" else {"variables": {"x": 1}}
    for prompt in ("a", [1, 2]):
        with pytest.raises(ArgumentError, match=f"{name}: expected messages as the prompt"):
            qwen.generate(prompt, **given)


def test_a_reply_to_text_is_text(qwen: pyturbo.Model, script: Script) -> None:
    script(qwen, "a</think>b", "<|im_end|>")
    done = qwen.generate("The tag")
    assert done.message == Message("a</think>b")
    script(qwen, "ab", "<|im_end|>")
    assert joined(qwen.stream("The tag").parts()) == [Text("ab")]


def test_a_conversation_answers_calls(qwen: pyturbo.Model, script: Script, tmp_path: Path) -> None:
    """The reply is kept as it was written, so that the next turn reads only what is new."""
    conversation = Conversation(qwen, 1024, tools=TOOLS)
    written = f"I see.\n</think>\n\n{QWEN_CALL}"
    script(qwen, written, "<|im_end|>")
    reply = conversation.reply("Weather in Bern?")
    *_, end = reply.parts()
    assert end == ToolCallEnd(0, complete=True)
    result = {"role": "tool", "tool_call_id": reply.message.tool_calls[0].id, "content": "sunny"}
    conversation.save(tmp_path / "chat.session")
    conversation = Conversation.load(qwen, tmp_path / "chat.session")
    assert conversation.tools == TOOLS
    script(qwen, "Done.\n</think>\n\nIt is sunny.", "<|im_end|>")
    list(conversation.reply([result]))
    assert [message["role"] for message in conversation.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    text = qwen.tokenizer.decode(conversation.session.tokens, skip_special=False)
    assert '"The weather of a place."' in text
    assert text.count(QWEN_CALL) == 1
    assert "<|im_start|>tool\nsunny<|im_end|>" in text


def test_a_conversation_in_channels_goes_on(gpt_oss: pyturbo.Model, script: Script) -> None:
    """The template wants calls and thoughts apart, and refuses a reply as it was written."""
    conversation = Conversation(gpt_oss, 1024, tools=TOOLS)
    script(gpt_oss, HARMONY_CALL, "<|call|>")
    reply = conversation.reply("Weather in Bern?")
    list(reply)
    called = conversation.messages[-1]
    assert called == reply.message.to_dict()
    assert called["reasoning_content"] == "Hm."
    script(gpt_oss, "<|channel|>final<|message|>Sunny.", "<|return|>")
    list(conversation.reply([{"role": "tool", "content": "sunny"}]))
    assert conversation.messages[-1] == {"role": "assistant", "content": "Sunny."}
    script(gpt_oss, "<|channel|>final<|message|>Bye.", "<|return|>")
    list(conversation.reply("Thanks."))
    tokens = conversation.session.tokens
    text = gpt_oss.tokenizer.decode(tokens, skip_special=False)
    assert 'to=functions.weather<|channel|>commentary json<|message|>{"city": "Bern"}<|call|>' in text
    assert list(tokens).count(gpt_oss.tokenizer.dialect.special["<|channel|>"]) == 4


def test_an_engine_has_parts_too(gpt_oss: pyturbo.Model, script: Script) -> None:
    async def parts() -> list[Any]:
        return [part async for part in engine.submit(QUESTION, tools=TOOLS, max_tokens=200).aparts()]

    script(gpt_oss, HARMONY_CALL, "<|call|>")
    want = [
        (type(part), getattr(part, "text", None))
        for part in joined(gpt_oss.stream(QUESTION, tools=TOOLS).parts())
    ]
    with pyturbo.Engine(gpt_oss, context=1024) as engine:
        for ask in (lambda: engine.submit(QUESTION, tools=TOOLS).parts(), lambda: asyncio.run(parts())):
            script(gpt_oss, HARMONY_CALL, "<|call|>")
            assert [(type(part), getattr(part, "text", None)) for part in joined(ask())] == want
        script(gpt_oss, HARMONY_CALL, "<|call|>")
        done = engine.submit(QUESTION, tools=TOOLS).result()
        assert (done.reasoning, done.tool_calls[0].values()) == ("Hm.", {"city": "Bern"})
        with pytest.raises(ArgumentError, match="submit: expected options among .*, got markers"):
            engine.submit(QUESTION, markers=())
        with pytest.raises(ArgumentError, match="tools: expected messages as the prompt"):
            engine.submit("a", tools=TOOLS)


@pytest.mark.parametrize("said", [[], ["a"], [{"role": "tool"}], 3, {"role": "tool", "content": "a"}])
def test_what_is_said_is_text_or_messages(qwen: pyturbo.Model, said: Any) -> None:
    with pytest.raises(ArgumentError, match="reply: text: expected text or messages, got"):
        Conversation(qwen, 128).reply(said)


def test_damaged_tools_in_a_file_are_refused(qwen: pyturbo.Model, tmp_path: Path) -> None:
    conversation = Conversation(qwen, 128)
    conversation.tools = [{"name": 3}]
    conversation.save(tmp_path / "chat.session")
    with pytest.raises(FormatError, match=r"chat.session: tools\[0\]: name: expected text, got 3"):
        Conversation.load(qwen, tmp_path / "chat.session")
