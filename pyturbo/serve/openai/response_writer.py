"""Replies as OpenAI's Responses have them: items, whole or as events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from pyturbo.serve.replies.accounts import prompt_tokens, timings
from pyturbo.serve.replies.blocks import Block, Blocks, Change
from pyturbo.serve.replies.replies import Replies
from pyturbo.serve.replies.sse import comment, event
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.shelf import Served

_PREFIXES = {"thoughts": "rs", "text": "msg", "call": "fc"}  # of the ids of items
_DELTAS = {
    "thoughts": "response.reasoning_text",
    "text": "response.output_text",
    "call": "response.function_call_arguments",
}


class ResponseWriter:
    """Writes a reply: thoughts, text and calls are an item each."""

    def __init__(self, echoed: Mapping[str, Any]) -> None:
        """Take what the response repeats of its request."""
        self._echoed, self._blocks = echoed, Blocks()
        self._id, self._created, self._sent = uuid.uuid4().hex, int(time.time()), 0
        self._model = ""

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for the reply, and return it."""
        self._model, self._blocks = served.name, await Blocks.whole(replies)
        return JSONResponse(self._ended(replies))

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as the reply goes on."""
        self._model = served.name
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", response=self._response("in_progress"))
        async for found in replies.events():
            if found.progress is not None:
                yield comment("prompt {}/{}".format(*found.progress))
            for change in self._blocks.add(found):
                for piece in self._pieces_of(change):
                    yield piece
        response = self._ended(replies)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        code = "invalid_prompt" if error.status == 400 else "server_error"
        response = self._response("failed") | {"error": {"code": code, "message": str(error)}}
        return self._event("response.failed", response=response)

    def _ended(self, replies: Replies) -> dict[str, Any]:
        cut = self._blocks.finish == "length"
        return self._response("incomplete" if cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": _usage(replies, self._blocks),
            "timings": timings(replies.streams[0]),
        }

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._model,
            "output": [self._item(block) for block in self._blocks.all],
            "usage": None,
            **self._echoed,
        }

    def _item(self, block: Block) -> dict[str, Any]:
        """Return a block as an item that has ended."""
        status = "completed" if block.complete else "incomplete"
        item = {"id": self._item_id(block), "status": status}
        if block.kind == "call":
            called = {"call_id": block.id, "name": block.name, "arguments": block.text}
            return {"type": "function_call", **item, **called}
        content = [_part(block, block.text)]
        if block.kind == "text":
            return {"type": "message", "role": "assistant", **item, "content": content}
        return {"type": "reasoning", **item, "summary": [], "content": content, "encrypted_content": None}

    def _item_id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self._id}_{block.index}"

    def _pieces_of(self, change: Change) -> list[bytes]:
        """Return the events of a change."""
        block, delta = change.block, _DELTAS[change.block.kind]
        if change.step == "more":
            return [self._about(block, f"{delta}.delta", delta=change.piece, **_logprobs(block))]
        if change.step == "begin":
            return self._begun(block)
        name = "arguments" if block.kind == "call" else "text"
        pieces = [self._about(block, f"{delta}.done", **{name: block.text}, **_logprobs(block))]
        if block.kind != "call":
            pieces.append(self._about(block, "response.content_part.done", part=_part(block, block.text)))
        return [*pieces, self._moved(block, "done", self._item(block))]

    def _begun(self, block: Block) -> list[bytes]:
        empty: dict[str, Any] = {"arguments": ""} if block.kind == "call" else {"content": []}
        pieces = [self._moved(block, "added", self._item(block) | {"status": "in_progress"} | empty)]
        if block.kind != "call":
            pieces.append(self._about(block, "response.content_part.added", part=_part(block, "")))
        return pieces

    def _moved(self, block: Block, step: str, item: Mapping[str, Any]) -> bytes:
        return self._event(f"response.output_item.{step}", output_index=block.index, item=item)

    def _about(self, block: Block, kind: str, **fields: Any) -> bytes:
        """Return an event of what is in an item."""
        place = {"item_id": self._item_id(block), "output_index": block.index}
        if block.kind != "call":
            place["content_index"] = 0
        return self._event(kind, **place, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sent += 1
        return event({"type": kind, "sequence_number": self._sent - 1, **fields}, kind)


def _part(block: Block, text: str) -> dict[str, Any]:
    if block.kind == "thoughts":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], **_logprobs(block)}


def _logprobs(block: Block) -> dict[str, Any]:
    """Return the list that clients want beside text; no request can ask for logprobs."""
    return {"logprobs": []} if block.kind == "text" else {}


def _usage(replies: Replies, blocks: Blocks) -> dict[str, Any]:
    """Return tokens as OpenAI's Responses count them."""
    stats, prompt = replies.streams[0].stats, prompt_tokens(replies.streams[0])
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.tokens,
        "output_tokens_details": {"reasoning_tokens": blocks.thought_tokens},
        "total_tokens": prompt + stats.tokens,
    }
