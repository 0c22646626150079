"""Parts of replies as blocks."""

from __future__ import annotations

from pyturbo.engine.generation import Chunk
from pyturbo.serve.replies.blocks import Blocks
from pyturbo.serve.replies.replies import Event
from pyturbo.text.dialects import Part, Reasoning, Text, ToolCallArguments, ToolCallBegin, ToolCallEnd


def token(*parts: Part, finish: str | None = None, stop: str | None = None) -> Event:
    return Event(0, Chunk("", 0, 0.0, None, (), stop), parts, finish)


def steps(blocks: Blocks, event: Event) -> list[tuple[int, str, str]]:
    return [(change.block.index, change.step, change.piece) for change in blocks.add(event)]


def test_a_block_ends_before_the_next_begins() -> None:
    blocks = Blocks()
    assert steps(blocks, token(Reasoning("a"))) == [(0, "begin", ""), (0, "more", "a")]
    assert steps(blocks, token(Reasoning("b"), Text(""), Text("c"))) == [
        (0, "more", "b"),
        (0, "end", ""),
        (1, "begin", ""),
        (1, "more", "c"),
    ]
    call = (ToolCallBegin(0, "now", "c1"), ToolCallArguments(0, "{}"), ToolCallEnd(0, complete=True))
    assert steps(blocks, token(*call)) == [
        (1, "end", ""),
        (2, "begin", ""),
        (2, "more", "{}"),
        (2, "end", ""),
    ]
    assert steps(blocks, token(Text("d"), finish="stop")) == [
        (3, "begin", ""),
        (3, "more", "d"),
        (3, "end", ""),
    ]
    assert [(block.kind, block.text) for block in blocks.all] == [
        ("thoughts", "ab"),
        ("text", "c"),
        ("call", "{}"),
        ("text", "d"),
    ]
    assert all(block.complete for block in blocks.all)
    assert (blocks.calls, blocks.finish, blocks.stop_string) == (True, "stop", None)


def test_what_is_cut_off_is_not_complete() -> None:
    blocks = Blocks()
    blocks.add(token(Text("a")))
    blocks.add(token(ToolCallBegin(0, "now", "c1"), ToolCallArguments(0, "{")))
    assert steps(blocks, Event(0, finish="length")) == [(1, "end", "")]
    assert [block.complete for block in blocks.all] == [True, False]
    assert not blocks.calls
    malformed = Blocks()
    malformed.add(token(ToolCallBegin(0, "now", "c1"), ToolCallEnd(0, complete=False), finish="tool_calls"))
    assert not malformed.calls


def test_tokens_of_thoughts_are_counted_with_their_markers() -> None:
    blocks = Blocks()
    thoughts = [token(), token(Reasoning("a")), token(Reasoning("b")), token()]
    for event in [*thoughts, token(Text("c")), token(), Event(0, progress=(1, 2)), token(Reasoning("d"))]:
        blocks.add(event)
    assert blocks.thought_tokens == 5
    blocks.add(token(Text("e"), finish="stop", stop="!"))
    assert (blocks.thought_tokens, blocks.stop_string) == (5, "!")
