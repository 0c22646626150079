"""Replies with calls as the families of models write them, whole, cut off and malformed."""
# ruff: noqa: E501 (a reply is best read in one line)

from __future__ import annotations

import json
from typing import Any

import pytest

from pyturbo.errors import ArgumentError, FormatError, StateError
from pyturbo.text.dialects import (
    Dialect,
    Message,
    Text,
    ToolCall,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    joined,
)
from pyturbo.text.dialects.deepseek import CALL, CALL_END, CALLS, CALLS_END, SEPARATOR
from text.dialects.replies import DIALECTS, TOOLS, parts_of

BERN = '{"city": "Bern"}'
CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)

#: Dialect, reply, content, and each call: name, arguments, whether it is complete.
WHOLE: list[tuple[str, str, str, list[tuple[str, Any]]]] = [
    ("hermes", '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>', "", [("weather", {"city": "Bern"})]),
    ("hermes", '<tool_call>{"arguments": {"city": "Bern"}, "name": "weather"}</tool_call>', "", [("weather", {"city": "Bern"})]),
    ("hermes", 'So.\n<tool_call>\n{"name": "now"}\n</tool_call>\n', "So.", [("now", {})]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', "", [("now", {})]),
    ("hermes", '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Bern\\"}"}</tool_call>', "", [("weather", {"city": "Bern"})]),
    ("hermes", '<tool_call>{"name": "a", "arguments": {"x": "</tool_call>{"}}</tool_call>', "", [("a", {"x": "</tool_call>{"})]),
    ("hermes", '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": {}}</tool_call>', "", [("a", {}), ("b", {})]),
    ("hermes", '<tool_call>{"name": "a", "arguments": {}}', "", [("a", {})]),
    ("hermes", '<tool_call>{"name": "a", "arguments": {}</tool_call>', "", [("a", {})]),
    ("hermes", '<tool_call>{"type": "function", "function": {"name": "a", "arguments": {"x": 1}}}</tool_call>', "", [("a", {"x": 1})]),
    ("hermes", CODER, "", [("weather", {"city": "Bern", "days": 2})]),
    ("qwen_coder", CODER, "", [("weather", {"city": "Bern", "days": 2})]),
    ("qwen_coder", CODER.removeprefix("<tool_call>\n"), "", [("weather", {"city": "Bern", "days": 2})]),
    ("qwen_coder", "<tool_call><function=weather><parameter=city>Bern</parameter></function></tool_call>", "", [("weather", {"city": "Bern"})]),
    ("qwen_coder", "<tool_call><function=weather><parameter=city>\n a\nb \n\n</parameter></function></tool_call>", "", [("weather", {"city": " a\nb \n"})]),
    ("qwen_coder", "<tool_call><function=weather><parameter=exact>\nTrue\n</parameter></function></tool_call>", "", [("weather", {"exact": True})]),
    ("qwen_coder", '<tool_call><function=weather><parameter=tags>\n["</parameter>"]\n</parameter></function></tool_call>', "", [("weather", {"tags": ["</parameter>"]})]),
    ("qwen_coder", "<tool_call><function=weather><parameter=days>\nmany\n</parameter></function></tool_call>", "", [("weather", {"days": "many"})]),
    ("qwen_coder", "<tool_call><function=weather><parameter=limit>\nNone\n</parameter></function></tool_call>", "", [("weather", {"limit": None})]),
    ("qwen_coder", "<tool_call><function=other><parameter=x>\n2\n</parameter></function></tool_call>", "", [("other", {"x": "2"})]),
    ("qwen_coder", "<tool_call>\n<function=now>\n</function>\n</tool_call>", "", [("now", {})]),
    ("deepseek", f"{CALLS}{CALL}weather{SEPARATOR}{BERN}{CALL_END}{CALLS_END}", "", [("weather", {"city": "Bern"})]),
    ("deepseek", f"So.\n\n{CALLS}{CALL}now{SEPARATOR}{{}}{CALL_END}{CALL}now{SEPARATOR}{{}}{CALL_END}{CALLS_END}", "So.", [("now", {}), ("now", {})]),
    ("deepseek", f"{CALLS}{CALL}function{SEPARATOR}weather\n```json\n{BERN}\n```{CALL_END}{CALLS_END}", "", [("weather", {"city": "Bern"})]),
    ("deepseek", f"{CALL}now{SEPARATOR}{{}}{CALL_END}", "", [("now", {})]),
    ("llama3", '{"name": "weather", "parameters": {"city": "Bern"}}', "", [("weather", {"city": "Bern"})]),
    ("llama3", '<|python_tag|>{"name": "other", "parameters": {}}', "", [("other", {})]),
    ("llama3", '{"type": "function", "name": "now", "parameters": {}}', "", [("now", {})]),
    ("llama3", '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}', "", [("now", {}), ("now", {})]),
    ("llama3", 'I will.<|python_tag|>{"name": "now", "parameters": {}}', "I will.", [("now", {})]),
    ("harmony", '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Bern"}<|call|>', "", [("weather", {"city": "Bern"})]),
    ("harmony", ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Bern"}', "", [("weather", {"city": "Bern"})]),
    ("harmony", "<|channel|>commentary<|message|>So.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|constrain|>json<|message|>{}<|call|>", "So.", [("now", {})]),
    ("harmony", "<|channel|>commentary to=functions.now <|constrain|>json<|message|><|call|>", "", [("now", {})]),
    ("harmony", '<|channel|>analysis to=browser.search code<|message|>{"query": "<|end|>"}<|call|>', "", [("browser.search", {"query": "<|end|>"})]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reply", "content", "calls"), WHOLE)
def test_whole_calls(name: str, reply: str, content: str, calls: list[tuple[str, Any]]) -> None:
    message = DIALECTS[name].parse(reply, TOOLS)
    assert (message.content, message.reasoning) == (content, "")
    assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == calls
    assert all(call.complete for call in message.tool_calls)
    assert len({call.id for call in message.tool_calls}) == len(calls)


#: Replies that look like calls and are none: they are text as they are.
NONE = [
    ("hermes", "<tool_call>weather</tool_call>"),
    ("hermes", "<tool_call>\n{'name': 'weather'}\n</tool_call>"),
    ("hermes", '<tool_call>{"name": "weather", "color": 1}</tool_call>'),
    ("hermes", '<tool_call>{"name": "weather", "argum'),
    ("hermes", '<tool_call>{"name": 3, "arguments": {}}</tool_call>'),
    ("hermes", "<tool_call>"),
    ("hermes", '{"name": "weather", "arguments": {}}'),
    ("qwen_coder", "<tool_call>\n<function=>\n</function>"),
    ("qwen_coder", "<tool_call>\n<function=weather"),
    ("qwen_coder", "<function=nobody></function>"),
    ("deepseek", f"{CALLS}weather{CALLS_END}"),
    ("deepseek", f"{CALLS}{CALL}weather{CALL_END}{CALLS_END}"),
    ("deepseek", f"{CALLS}{CALL}function{SEPARATOR}weather\n{BERN}"),
    ("deepseek", f"{CALLS}{CALL}{SEPARATOR}{BERN}"),
    ("llama3", '{"name": "Ann", "parameters": {"age": 3}}'),
    ("llama3", '{"answer": 42}'),
    ("llama3", "<|python_tag|>print(1)"),
    ("llama3", '{"name": "weather", "parameters": '),
    ("harmony", "<|channel|>analysis to=functions.weather"),
    ("harmony", "<|start|>user<|message|>Hi<|end|>"),
    ("harmony", "<|channel|>gossip<|message|>Hi"),
]


@pytest.mark.parametrize(("name", "reply"), NONE)
def test_what_is_no_call_is_text(name: str, reply: str) -> None:
    assert parts_of(DIALECTS[name], [reply], tools=TOOLS) == [Text(reply)]


#: Calls that begin well: the name, the arguments as far as they go, and the text after the fault.
BROKEN = [
    ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Be', "weather", '{"city": "Be', ""),
    ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": <b>', "weather", '{"city": ', "<b>"),
    ("qwen_coder", "<tool_call><function=weather><parameter=city>\nBe", "weather", '{"city": "Be', ""),
    ("qwen_coder", "<tool_call><function=weather><parameter=days>\n1", "weather", '{"days": "1', ""),
    ("qwen_coder", "<tool_call><function=weather>Bern</function>", "weather", "{", "Bern</function>"),
    ("deepseek", f'{CALLS}{CALL}weather{SEPARATOR}{{"city": "Be', "weather", '{"city": "Be', ""),
    ("llama3", '{"name": "weather", "parameters": {"city": "Be', "weather", '{"city": "Be', ""),
    ("harmony", '<|channel|>commentary to=functions.weather<|message|>{"city": "Be', "weather", '{"city": "Be', ""),
    ("harmony", "<|channel|>analysis to=python code<|message|>print(1)<|call|>", "python", "print(1)", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reply", "function", "arguments", "rest"), BROKEN)
def test_calls_that_are_cut_off_or_malformed_are_incomplete(
    name: str, reply: str, function: str, arguments: str, rest: str
) -> None:
    parts = parts_of(DIALECTS[name], [reply], tools=TOOLS)
    begin, *middle = parts
    assert begin == ToolCallBegin(0, function, "#0")
    assert middle[:2] == [ToolCallArguments(0, arguments), ToolCallEnd(0, complete=False)]
    assert middle[2:] == ([Text(rest)] if rest else [])
    call = DIALECTS[name].parse(reply, TOOLS).tool_calls[0]
    with pytest.raises(FormatError, match=f"{function}: expected a JSON object of arguments, got"):
        call.values()


@pytest.mark.parametrize("name", ["hermes", "qwen_coder", "deepseek", "llama3", "harmony"])
def test_arguments_arrive_while_they_are_written(name: str) -> None:
    """The name is known before the arguments begin, and half of a text before the rest of it."""
    dialect = DIALECTS[name]
    call = ToolCall("weather", json.dumps({"city": "a" * 40}))
    reply = dialect.compose(Message(tool_calls=[call]), TOOLS)
    parser = dialect.parser(TOOLS)
    parts = parser.add(reply[: reply.index("a" * 30) + 20])
    assert isinstance(parts[0], ToolCallBegin)
    assert "a" * 20 in "".join(part.fragment for part in parts if isinstance(part, ToolCallArguments))


def test_channels() -> None:
    harmony = DIALECTS["harmony"]
    reply = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    )
    assert harmony.parse(reply) == Message("Yes.", "Hm.")
    assert harmony.parse("Yes.", prompt="<|start|>assistant<|channel|>final<|message|>") == Message("Yes.")
    assert harmony.parse("Hm.", prompt="<|start|>assistant<|channel|>analysis<|message|>I ") == Message(
        "", "Hm."
    )
    assert harmony.parse("Yes.", prompt="<|start|>user<|message|>Hi<|end|><|start|>assistant") == Message(
        "Yes."
    )
    glued = "<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes."
    assert harmony.parse(glued) == Message("Yes.", "Hm.")


def test_values_with_alternatives() -> None:
    union = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    choices = {"enum": [1, "1a", True]}
    tools = [{"name": "f", "parameters": {"properties": {"u": union, "c": choices, "n": {"type": "number"}}}}]

    def value(key: str, text: str) -> Any:
        reply = f"<tool_call><function=f><parameter={key}>\n{text}\n</parameter></function></tool_call>"
        return DIALECTS["qwen_coder"].parse(reply, tools).tool_calls[0].values()[key]

    assert [value("u", "2"), value("u", "two"), value("u", '"2"')] == [2, "two", '"2"']
    assert [value("c", "1"), value("c", "1a"), value("c", "true")] == [1, "1a", True]
    assert [value("n", "1.5"), value("n", "1e999"), value("n", "NaN")] == [1.5, "1e999", "NaN"]


def test_a_message_becomes_a_dictionary() -> None:
    calls = [ToolCall("a", "{}", "x"), ToolCall("b", "{", "y", complete=False)]
    assert Message("Hi", "Hm", calls).to_dict() == {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "Hm",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "a", "arguments": "{}"}}],
    }
    assert Message("", "", calls[1:]).to_dict() == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hermes", Message("<tool_call>{}")),
        ("plain", Message("a", tool_calls=[ToolCall("now")])),
        ("plain", Message("a", "b")),
        ("qwen_coder", Message(tool_calls=[ToolCall("weather", '{"city": "</parameter>"}')])),
    ],
)
def test_a_message_that_no_reply_has_is_refused(name: str, message: Message) -> None:
    if name == "hermes":
        assert DIALECTS[name].compose(message) == message.content  # it looks like a call, and is none
        message = Message('<tool_call>{"name": "a", "arguments": {}}')
    with pytest.raises(ArgumentError, match=f"compose: expected a message that {name} replies can have, got"):
        DIALECTS[name].compose(message, TOOLS)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("weather", "tools: expected a list of tools, got 'weather'"),
        ([3], r"tools\[0\]: expected a mapping with a function, got 3"),
        ([{"function": 3}], r"tools\[0\]: expected a mapping with a function, got"),
        ([{"function": {}}], r"tools\[0\]: name: expected text, got None"),
        ([{"name": "a", "parameters": []}], r"tools\[0\]: parameters: expected a JSON schema, got \[\]"),
        (
            [{"name": "a"}, {"name": "a"}],
            r"tools\[1\]: expected another name than 'a', which there is already",
        ),
    ],
)
def test_wrong_tools_are_refused(tools: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Dialect().parser(tools)


def test_wrong_text_is_refused() -> None:
    with pytest.raises(ArgumentError, match="parser: prompt: expected text, got 3"):
        Dialect().parser(prompt=3)  # type: ignore[arg-type]
    parser = Dialect().parser()
    with pytest.raises(ArgumentError, match="add: text: expected text, got b'a'"):
        parser.add(b"a")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="compose: message: expected a Message, got 'a'"):
        Dialect().compose("a")  # type: ignore[arg-type]
    parser.finish()
    with pytest.raises(StateError, match="add: the reply has ended"):
        parser.add("a")


def test_neighbours_are_joined() -> None:
    parts = [Text("a"), ToolCallArguments(0, "b"), ToolCallArguments(0, "c"), Text("d"), Text("e")]
    assert joined(parts) == [Text("a"), ToolCallArguments(0, "bc"), Text("de")]
