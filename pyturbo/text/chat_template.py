"""Chat templates: Jinja, in a sandbox, with the functions and variables that transformers gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pyturbo.checkpoint._shown import shown
from pyturbo.errors import ArgumentError, FormatError

_RESERVED = {"add_generation_prompt": "generate", "messages": "messages"}


class ChatTemplate:
    """A template that turns messages into the text of a prompt."""

    def __init__(self, text: str, named_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._named_tokens = named_tokens
        try:
            self._template = environment.from_string(text)
        except (TemplateError, RecursionError) as error:
            raise FormatError(f"chat_template: not a template: {error}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], generate: bool, variables: Mapping[str, Any]
    ) -> str:
        """The prompt; `generate` asks for the beginning of the reply."""
        check_messages(messages)
        for name in _RESERVED.keys() & variables.keys():
            raise ArgumentError(f"chat: {name}: expected the argument {_RESERVED[name]} instead")
        everything = {"tools": None, "documents": None, **self._named_tokens, **variables}
        try:
            return self._template.render(
                everything, messages=list(messages), add_generation_prompt=bool(generate)
            )
        except Exception as error:  # a template is a program: it may fail in any way
            raise ArgumentError(f"chat: the template refuses: {error}") from error


def check_messages(messages: Any) -> None:
    """Refuses what is not a list of messages, each with a role and content."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise ArgumentError(f"chat: messages: expected a list of messages, got {shown(messages)}")
    for i, message in enumerate(messages):
        where = f"chat: messages[{i}]"
        if not isinstance(message, Mapping):
            raise ArgumentError(f"{where}: expected a mapping with role and content, got {shown(message)}")
        if not isinstance(message.get("role"), str):
            raise ArgumentError(f"{where}: role: expected text, got {shown(message.get('role'))}")
        content = message.get("content")
        if content is None and "tool_calls" in message:
            continue
        if not isinstance(content, (str, list, tuple)):
            raise ArgumentError(f"{where}: content: expected text or a list of parts, got {shown(content)}")


class _Generation(Extension):
    """{% generation %} marks what the assistant wrote, for training; here it is only a block."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it stands, where Jinja's own filter would escape HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 (templates may pass it by name)
    return datetime.now().strftime(format)
