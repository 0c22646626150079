"""Replies as Anthropic's interface has them: blocks, whole or as events."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import JSONResponse, Response

from pyturbo.serve.replies.accounts import prompt_tokens, timings
from pyturbo.serve.replies.blocks import Block, Blocks, Change
from pyturbo.serve.replies.replies import Replies
from pyturbo.serve.replies.sse import event
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects.message import json_object

#: Clients want thoughts to be signed, and send the signature back. It is not looked at.
_SIGNATURE = "unsigned"


class MessageWriter:
    """Writes a reply as the API has it."""

    def __init__(self) -> None:
        self._id = f"msg_{uuid.uuid4().hex}"

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for the reply, and return it."""
        blocks = await Blocks.whole(replies)
        return JSONResponse(
            self._message(served, replies, blocks)
            | _stop(blocks)
            | {"content": [_content(block) for block in blocks.all if block.complete or block.kind != "call"]}
            | {"timings": timings(replies.streams[0])}
        )

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as the reply goes on."""
        blocks = Blocks()
        yield _event("message_start", message=self._message(served, replies, blocks))
        async for found in replies.events():
            if found.progress is not None:
                yield _event("ping")
            for change in blocks.add(found):
                for piece in _pieces_of(change):
                    yield piece
        usage = _usage(replies, blocks)
        yield _event("message_delta", delta=_stop(blocks), usage=usage, timings=timings(replies.streams[0]))
        yield _event("message_stop")

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        return event(error.anthropic(), "error")

    def _message(self, served: Served, replies: Replies, blocks: Blocks) -> dict[str, Any]:
        """Return a message without content."""
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": served.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(replies, blocks),
        }


def _usage(replies: Replies, blocks: Blocks) -> dict[str, Any]:
    """Return tokens as Anthropic counts them: a prompt is what was read and what was known already."""
    stream = replies.streams[0]
    known = stream.stats.cached_tokens
    return {
        "input_tokens": prompt_tokens(stream) - known,
        "cache_read_input_tokens": known,
        "cache_creation_input_tokens": 0,
        "output_tokens": stream.stats.tokens,
        "output_tokens_details": {"thinking_tokens": blocks.thought_tokens},
    }


def _stop(blocks: Blocks) -> dict[str, Any]:
    """Return why a reply ended."""
    if blocks.stop_string is not None:
        reason = "stop_sequence"
    elif blocks.finish == "length":
        reason = "max_tokens"
    else:
        reason = "tool_use" if blocks.calls else "end_turn"
    return {"stop_reason": reason, "stop_sequence": blocks.stop_string, "stop_details": None}


def _content(block: Block) -> dict[str, Any]:
    """Return a block as messages have it."""
    if block.kind == "text":
        return {"type": "text", "text": block.text, "citations": None}
    if block.kind == "thoughts":
        return {"type": "thinking", "thinking": block.text, "signature": _SIGNATURE}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": json_object(block.text) or {}}


def _pieces_of(change: Change) -> list[bytes]:
    """Return the events of a change."""
    block = change.block
    if change.step == "begin":
        return [_event("content_block_start", index=block.index, content_block=_begun(block))]
    if change.step == "more":
        return [_delta(block, _more(block, change.piece))]
    signed = {"type": "signature_delta", "signature": _SIGNATURE}
    ended = [_delta(block, signed)] if block.kind == "thoughts" else []
    return [*ended, _event("content_block_stop", index=block.index)]


def _begun(block: Block) -> dict[str, Any]:
    """Return a block that has only begun, which is not signed yet."""
    content = _content(replace(block, text=""))
    return content | {"signature": ""} if block.kind == "thoughts" else content


def _more(block: Block, piece: str) -> dict[str, Any]:
    if block.kind == "text":
        return {"type": "text_delta", "text": piece}
    if block.kind == "thoughts":
        return {"type": "thinking_delta", "thinking": piece}
    return {"type": "input_json_delta", "partial_json": piece}


def _delta(block: Block, delta: Mapping[str, Any]) -> bytes:
    return _event("content_block_delta", index=block.index, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
