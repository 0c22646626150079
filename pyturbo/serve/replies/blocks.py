"""A reply as blocks: stretches of thoughts, stretches of text, and calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pyturbo.serve.replies.replies import Event, Replies
from pyturbo.text.dialects import Part, Reasoning, Text, ToolCallArguments, ToolCallBegin

Kind = Literal["thoughts", "text", "call"]


@dataclass
class Block:
    """A part of a reply that clients see as one.

    Attributes:
        index: Its number in the reply, from 0.
        kind: What it is.
        text: The thoughts, the text, or the arguments of the call, as far as they are known.
        name: The function of a call.
        id: The name of a call.
        complete: Whether it is whole. One that is under way is not, nor one that was cut off, nor a call
            whose arguments are no JSON object.
    """

    index: int
    kind: Kind
    text: str = ""
    name: str = ""
    id: str = ""
    complete: bool = False


@dataclass(frozen=True)
class Change:
    """What happened to a block: it began, has a further piece of text, or ended."""

    block: Block
    step: Literal["begin", "more", "end"]
    piece: str = ""


@dataclass
class Blocks:
    """The blocks of one reply, in the order in which they begin; each ends before the next begins.

    Attributes:
        all: All blocks so far.
        finish: Why the reply ended, see `Event`.
        stop_string: The stop string that ended it, if one did.
        thought_tokens: How many of its tokens are thoughts, with their markers.
    """

    all: list[Block] = field(default_factory=list)
    finish: str | None = None
    stop_string: str | None = None
    thought_tokens: int = 0
    _open: Block | None = None
    _uncounted: int = 0  # tokens after the last part that was certain

    @classmethod
    async def whole(cls, replies: Replies) -> Blocks:
        """Wait for the end of the one reply to a request, and return its blocks."""
        blocks = cls()
        async for event in replies.events():
            blocks.add(event)
        return blocks

    @property
    def calls(self) -> bool:
        """Whether the reply calls a function."""
        return any(block.kind == "call" and block.complete for block in self.all)

    def add(self, event: Event) -> list[Change]:
        """Take what became known of the reply, and return what that changes."""
        changes = [change for part in event.parts for change in self._add(part)]
        self._count(event)
        if event.finish is not None:
            self.finish = event.finish
            changes += self._end(event.finish != "length")
        return changes

    def _add(self, part: Part) -> list[Change]:
        if isinstance(part, (Text, Reasoning)):
            return self._more("text" if isinstance(part, Text) else "thoughts", part.text)
        if isinstance(part, ToolCallBegin):
            return self._begin(Block(len(self.all), "call", name=part.name, id=part.id))
        if isinstance(part, ToolCallArguments):
            return self._more("call", part.fragment)
        return self._end(part.complete)

    def _begin(self, block: Block) -> list[Change]:
        ended = self._end(True)
        self.all.append(block)
        self._open = block
        return [*ended, Change(block, "begin")]

    def _more(self, kind: Kind, piece: str) -> list[Change]:
        if not piece:
            return []
        begun = []
        if self._open is None or self._open.kind != kind:
            begun = self._begin(Block(len(self.all), kind))
        block = self.all[-1]
        block.text += piece
        return [*begun, Change(block, "more", piece)]

    def _end(self, complete: bool) -> list[Change]:
        block, self._open = self._open, None
        if block is None:
            return []
        block.complete = complete
        return [Change(block, "end")]

    def _count(self, event: Event) -> None:
        """Count a token for the block that it belongs to; those before any block are of the first one."""
        if event.chunk is None:
            return
        self.stop_string = event.chunk.stop_string
        self._uncounted += 1
        if self.all:
            self.thought_tokens += self._uncounted if self.all[-1].kind == "thoughts" else 0
            self._uncounted = 0
