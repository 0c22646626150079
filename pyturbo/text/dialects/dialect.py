"""What the dialects of replies have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyturbo._messages import shown
from pyturbo.errors import ArgumentError
from pyturbo.text.dialects.grammar import Choice, Grammar, ReplyGrammar, chosen
from pyturbo.text.dialects.message import Message, json_object
from pyturbo.text.dialects.parser import ReplyParser, new_call_id
from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.think import CLOSE, OPEN, begun_thoughts, read_thoughts, written_thoughts
from pyturbo.text.dialects.tools import Tool, Tools, tools_of
from pyturbo.text.dialects.writer import Writer


@dataclass(frozen=True)
class Dialect:
    """How a family of models writes thoughts and calls. This one has no calls.

    Attributes:
        name: The family.
        thinks: Whether replies have thoughts between `<think>` and `</think>`.
        special: The markers that are special tokens of the vocabulary, with their ids.

    Examples:
        >>> from pyturbo.text.dialects import Message, ToolCall, dialect_of
        >>> dialect = dialect_of('<tool_call>{"name": ..., "arguments": ...}</tool_call>')
        >>> reply = dialect.compose(Message("Let me see.", tool_calls=[ToolCall("now")]))
        >>> print(reply)
        Let me see.
        <tool_call>
        {"name": "now", "arguments": {}}
        </tool_call>
        >>> parser = dialect.parser()
        >>> parts = parser.add(reply) + parser.finish()
        >>> parser.message.content, parser.message.tool_calls[0].name
        ('Let me see.', 'now')
    """

    name: ClassVar[str] = "plain"
    #: The markers of calls.
    call_markers: ClassVar[tuple[str, ...]] = ()
    #: Whether templates take a reply with calls back as it was written.
    verbatim: ClassVar[bool] = False

    thinks: bool = False
    special: Mapping[str, int] = field(default_factory=dict)

    @property
    def may_think(self) -> bool:
        """Whether replies may have thoughts."""
        return self.thinks

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts that a parser needs to see, whether they are special tokens or not."""
        return (*((OPEN, CLOSE) if self.thinks else ()), *self.call_markers)

    def parser(
        self, tools: Tools | None = None, prompt: str = "", new_id: Callable[[], str] = new_call_id
    ) -> ReplyParser:
        """Return a parser for one reply.

        `tools` gives values their types, where the text does not show them, and tells calls from other JSON.
        `prompt` is the text before the reply, which may have begun thoughts. `new_id` names calls.
        """
        known = tools_of(tools)
        if not isinstance(prompt, str):
            raise ArgumentError(f"parser: prompt: expected text, got {shown(prompt)}")
        return ReplyParser(
            lambda reader, writer: self._read(reader, writer, known), self.begun(prompt), new_id
        )

    def parse(
        self,
        text: str,
        tools: Tools | None = None,
        prompt: str = "",
        new_id: Callable[[], str] = new_call_id,
    ) -> Message:
        """Return a whole reply taken apart. The arguments are those of `parser`."""
        parser = self.parser(tools, prompt, new_id)
        parser.add(text)
        parser.finish()
        return parser.message

    def compose(self, message: Message, tools: Tools | None = None) -> str:
        """Return the reply that a message is. ArgumentError if there is none that reads as this message."""
        if not isinstance(message, Message):
            raise ArgumentError(f"compose: message: expected a Message, got {shown(message)}")
        text = self._written(message, [(call.name, call.values()) for call in message.tool_calls])
        if _essence(self.parse(text, tools)) != _essence(message):
            raise ArgumentError(
                f"compose: expected a message that {self.name} replies can have, got {shown(text)}"
            )
        return text

    def grammar(self, tools: Tools, choice: Choice = "auto", prompt: str = "") -> ReplyGrammar:
        """Return a Lark grammar, as llguidance reads it, of replies whose calls fit the tools.

        `choice` is "auto" (text, or calls, or both), "required" (at least one call), or the name of a tool,
        of which there is then one call. `prompt` is the text before the reply, which may have begun thoughts.
        """
        known = tools_of(tools)
        lark = self._grammar(chosen(known, choice), choice, Grammar(self.special), self.begun(prompt))
        return ReplyGrammar(lark)

    def around_answer(self, prompt: str = "") -> str | None:
        """Return a Lark grammar of replies: thoughts, then `@answer`, a grammar that the caller adds.

        `prompt` is the text before the reply, which may have begun thoughts; otherwise they are optional.
        None if an answer is the whole reply.
        """
        if not self.thinks or prompt.rstrip().endswith(CLOSE):
            return None
        grammar = Grammar(self.special)
        grammar.rule("start", f"{self._thoughts(grammar, self.begun(prompt))} @answer")
        return str(grammar)

    def closings(self, *, again: bool = False) -> tuple[str, ...]:
        """Return the texts that end thoughts, the best first; `again`: thoughts that there must not be."""
        return (CLOSE,)

    def remembered(
        self,
        text: str,
        tools: Tools | None = None,
        prompt: str = "",
        new_id: Callable[[], str] = new_call_id,
    ) -> dict[str, Any]:
        """Return a reply as a message of the chat that goes on; its text unchanged, if templates take that.

        The other arguments are those of `parser`.
        """
        if self.verbatim or not any(marker in text for marker in self.call_markers):
            return {"role": "assistant", "content": text}
        return self.parse(text, tools, prompt, new_id).to_dict()

    def begun(self, prompt: str) -> str:
        """Return the markers in a prompt that the reply goes on from."""
        return begun_thoughts(prompt) if self.thinks else ""

    def _read(self, reader: Reader, writer: Writer, tools: Mapping[str, Tool]) -> Step[None]:
        """Take a reply apart: thoughts, then text with calls in it."""
        at_start = True
        while True:
            if at_start:
                if self.thinks:
                    yield from read_thoughts(reader, writer)
                if (yield from self._read_unmarked_call(reader, writer, tools)):
                    continue
            marker = yield from reader.copy_until(self._openers(tools), writer.text)
            if not marker:
                return
            at_start = yield from self._read_call(marker, reader, writer, tools)
            if not at_start:
                writer.text(marker)

    def _openers(self, tools: Mapping[str, Tool]) -> Sequence[str]:
        """Return the markers that may begin a call within text."""
        return ()

    def _read_unmarked_call(self, reader: Reader, writer: Writer, tools: Mapping[str, Tool]) -> Step[bool]:
        """Take a call without a marker, where a reply begins; False, and nothing taken, if there is none."""
        yield from ()
        return False

    def _read_call(
        self, marker: str, reader: Reader, writer: Writer, tools: Mapping[str, Tool]
    ) -> Step[bool]:
        """Take a call after its marker; False, and nothing taken, if none follows."""
        yield from ()
        return False

    def _written(self, message: Message, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Return thoughts, text and calls in the order in which a reply has them."""
        text = written_thoughts(message.reasoning) if self.thinks else message.reasoning
        return text + message.content + self._written_calls(calls, follow_text=bool(message.content))

    def _written_calls(self, calls: Sequence[tuple[str, dict[str, Any]]], *, follow_text: bool) -> str:
        return ""

    def _grammar(self, tools: Sequence[Tool], choice: Choice, grammar: Grammar, begun: str) -> str:
        raise ArgumentError("grammar: expected a model whose calls have a known format, got one without")

    def _thoughts(self, grammar: Grammar, begun: str) -> str:
        """Return the rule of the thoughts before an answer."""
        if not self.thinks:
            return ""
        rest = grammar.until("thoughts", CLOSE)
        return f"{rest} GAP" if begun else f"({grammar.literal(OPEN)} {rest} GAP)?"


def compact(value: Any) -> str:
    """Return JSON as templates write it."""
    return json.dumps(value, ensure_ascii=False)


def _essence(message: Message) -> tuple[Any, ...]:
    """Return what two messages have in common that mean the same."""
    calls = [(call.name, json_object(call.arguments)) for call in message.tool_calls]
    return message.content, message.reasoning, calls
