"""Grammars of replies, in the form of Lark that llguidance reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.text.dialects.tools import Tool

#: "auto", "required", or a tool: its name, or {"type": "function", "function": {"name": ...}}.
Choice = str | Mapping[str, Any]

#: What a regular expression between slashes cannot hold as it is, and what is escaped in it.
_ESCAPED = re.compile(r"\\.|[/\n]", re.DOTALL)

_DEFINITIONS = ("$defs", "definitions")  # of a schema, which references in it name


class ReplyGrammar(str):
    """A Lark grammar of whole replies, with thoughts and markers; `Dialect.grammar` returns it.

    As an option of a reply to a chat it stands for all of the reply; any other grammar for the answer.
    """

    __slots__ = ()


class Grammar:
    """Rules that are being collected. TEXT is any text, GAP up to two line breaks."""

    def __init__(self, special: Mapping[str, int]) -> None:
        """Take the texts of special tokens with their ids: in a grammar no other text stands for them."""
        self._special = special
        self._rules = {"TEXT": r"/(.|\n)*/", "GAP": r"/\n{0,2}/"}
        texts = sorted(map(re.escape, special), key=len, reverse=True)
        self._parts = re.compile(f"({'|'.join(texts)})") if texts else None

    def __str__(self) -> str:
        return "".join(f"{name}: {body}\n" for name, body in reversed(self._rules.items()))

    def rule(self, name: str, body: str) -> str:
        """Add a rule and return its name."""
        self._rules[name] = body
        return name.partition("[")[0]

    def literal(self, text: str) -> str:
        """Return a sequence that matches this text, and each special token in it as that token."""
        parts = [text] if self._parts is None else self._parts.split(text)
        return " ".join(
            f"<[{self._special[part]}]>" if part in self._special else _quoted(part) for part in parts if part
        )

    def until(self, name: str, end: str) -> str:
        """Add a rule for any text up to the first of a marker, with it, and return its name."""
        if end in self._special:  # the parser of a reply takes the marker spelled out for the token
            before = self.rule(f"{name.upper()}_TEXT", f"TEXT & ~(TEXT {_quoted(end)} TEXT)")
            return self.rule(name, f"{before} {self.literal(end)}")
        return self.rule(f"{name}[suffix={_quoted(end)}]", "TEXT")

    def text(self, name: str, rules: Sequence[str], end: str) -> str:
        """Return what matches a text that matches all of some regular expressions, a line break and a marker.

        They are one terminal, since a terminal takes as much as it can, and the text may have line breaks.
        """
        matched = " & ".join(f"/{_ESCAPED.sub(_escape, rule)}/" for rule in rules)
        text = f"({matched} & ~(TEXT {_quoted(end)} TEXT))"
        if end in self._special:
            before = self.rule(f"{name.upper()}_TEXT", f'{text} "\\n"')
            return f"{before} {self.literal(end)}"
        return self.rule(f"{name.upper()}_TEXT", f"{text} {_quoted(chr(10) + end)}")

    def json(self, schema: Mapping[str, Any], tool: Tool) -> str:
        """Return what matches JSON of a schema, whose references are to definitions of a tool.

        What llguidance cannot enforce is left out, unless the tool is strict.
        """
        defined = {name: tool.parameters[name] for name in _DEFINITIONS if name in tool.parameters}
        options = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
        return "%json " + json.dumps(
            {**defined, **schema, "x-guidance": {**options, "lenient": not tool.strict}}
        )


def arguments_schema(tool: Tool) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments: an object whatever it says, empty if it says nothing."""
    return {**(tool.parameters or {"additionalProperties": False}), "type": "object"}


def chosen(tools: Mapping[str, Tool], choice: Choice) -> list[Tool]:
    """Return the tools that a reply may call."""
    if not tools:
        raise ArgumentError("grammar: tools: expected at least one, got none")
    name: Any = choice
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
    elif choice in ("auto", "required"):
        return list(tools.values())
    if name not in tools:
        raise ArgumentError(f"grammar: choice: expected auto, required or a tool, got {shown(choice)}")
    return [tools[str(name)]]


def repeated(rule: str, choice: Choice) -> str:
    """Return calls in the number that a choice allows, without other text."""
    return f"{rule}+" if choice == "required" else rule


def either(grammar: Grammar, name: str, bodies: Sequence[str]) -> str:
    """Add a rule for one of several bodies, and return its name."""
    return grammar.rule(name, " | ".join(bodies))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escape(part: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n", "\\\n": r"\n"}.get(part.group(), part.group())
