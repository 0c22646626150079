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

from pyturbo.errors import ArgumentError, FormatError


class ChatTemplate:
    """A template that turns messages into the text of a prompt."""

    def __init__(self, text: str, named_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.text = text
        self._named_tokens = named_tokens
        try:
            self._template = environment.from_string(text)
        except (TemplateError, RecursionError) as error:
            raise FormatError(f"chat_template: not a template: {error}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], generate: bool, variables: Mapping[str, Any]
    ) -> str:
        """The prompt; `generate` asks for the beginning of the reply."""
        everything = {"tools": None, "documents": None, **self._named_tokens, **variables}
        try:
            return self._template.render(
                everything, messages=list(messages), add_generation_prompt=bool(generate)
            )
        except Exception as error:  # a template is a program: it may fail in any way
            raise ArgumentError(f"chat: the template refuses: {error}") from error


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
