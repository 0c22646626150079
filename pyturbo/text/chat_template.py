"""Chat templates: Jinja, in a sandbox, with the functions and variables that transformers gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from pyturbo._once import once
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.text.chat_calls import CallForm, find_form
from pyturbo.text.template_budget import Budget, LimitError
from pyturbo.text.template_compiler import LONGEST
from pyturbo.text.template_parts import reads_parts
from pyturbo.text.template_sandbox import BudgetedEnvironment

_LONGEST_TEXT = 1000  # characters of an error, and of a date format


class ChatTemplate:
    """A template that turns messages into the text of a prompt. It may be used from several threads."""

    def __init__(self, text: str, named_tokens: Mapping[str, str]) -> None:
        if len(text) > LONGEST:
            raise FormatError(f"chat_template: expected at most {LONGEST} characters, got {len(text)}")
        self.text = text
        self._named_tokens = named_tokens
        self._environment = BudgetedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = self._environment.from_string(text)
        except FormatError:
            raise
        except Exception as error:  # Jinja parses and Python compiles, each with errors of its own
            raise FormatError(f"chat_template: not a template: {_short(error)}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], generate: bool, variables: Mapping[str, Any]
    ) -> str:
        """Return the prompt; `generate` asks for the beginning of the reply."""
        everything = {"tools": None, "documents": None, **self._named_tokens, **variables}
        everything |= {"messages": list(messages), "add_generation_prompt": bool(generate)}
        try:
            return self._environment.run(Budget(everything), lambda: self._template.render(everything))
        except LimitError as error:
            raise ArgumentError(f"chat: the template: {error}") from None
        except Exception as error:  # a template is a program: it may fail in any way
            raise ArgumentError(f"chat: the template refuses: {_short(error)}") from error

    @once
    def reads_parts(self) -> bool:
        """Return whether the template reads the parts of a message whose content is a list."""
        return reads_parts(self._environment.parse(self.text))

    @once
    def call_form(self) -> CallForm | None:
        """Return how the template takes messages with calls; None if it does not write them."""
        return find_form(self.text, lambda messages, tools: self.render(messages, True, {"tools": tools}))


class _Generation(Extension):
    """The tag {% generation %}, which marks replies for training; here it is an ordinary block."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 (templates may pass it by name)
    if len(format) > _LONGEST_TEXT:
        raise TemplateError(f"strftime_now: expected at most {_LONGEST_TEXT} characters, got {len(format)}")
    return datetime.now().strftime(format)


def _short(error: Exception) -> str:
    """Return the text of an error, shortened: it may come from the template."""
    text = str(error).strip() or type(error).__name__
    text = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
