"""Replies as choices, which chat completions and completions of text share."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from pyturbo.serve.openai.sampling_fields import SamplingFields
from pyturbo.serve.replies import accounts
from pyturbo.serve.replies.replies import Event, Replies
from pyturbo.serve.replies.sse import comment, event
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.shelf import Served
from pyturbo.text.dialects import Reasoning

Choice = dict[str, Any]


class ChoiceWriter(ABC):
    """Writes replies; what a choice is like, its subclasses say.

    Attributes:
        PREFIX: How ids begin.
        WHOLE: What a response is called.
        PIECE: What an event of a stream is called.
    """

    PREFIX: str
    WHOLE: str
    PIECE: str

    def __init__(self, fields: SamplingFields) -> None:
        self._id, self._created = f"{self.PREFIX}-{uuid.uuid4().hex}", int(time.time())
        self._includes_usage = fields.includes_usage
        self._thoughts = 0  # tokens so far that are thoughts

    @abstractmethod
    def whole_choice(self, served: Served, index: int, events: Sequence[Event]) -> Choice:
        """Return a reply that has ended."""

    @abstractmethod
    def first_choices(self, served: Served, replies: Replies) -> list[Choice]:
        """Return what streams begin with, before anything is known of a reply."""

    @abstractmethod
    def next_choices(self, served: Served, found: Event) -> list[Choice]:
        """Return what an event adds to a reply. At the end of the reply that is something."""

    async def whole(self, served: Served, replies: Replies) -> Response:
        """Wait for all replies, and return them."""
        events: list[list[Event]] = [[] for _ in replies.streams]
        async for found in replies.events():
            events[found.index].append(found)
            self._count(found)
        choices = [self.whole_choice(served, i, known) for i, known in enumerate(events)]
        return JSONResponse(
            self._object(served, self.WHOLE, choices)
            | {"usage": self._usage(replies), "timings": accounts.timings(replies.streams[0])}
        )

    async def pieces(self, served: Served, replies: Replies) -> AsyncGenerator[bytes, None]:
        """Yield events as replies go on."""
        for choice in self.first_choices(served, replies):
            yield self._piece(served, choice)
        async for found in replies.events():
            if found.progress is not None:
                yield comment("prompt {}/{}".format(*found.progress))
                continue
            self._count(found)
            choices = self.next_choices(served, found)
            for choice in choices:
                ended = found.finish is not None and choice is choices[-1]
                timings = {"timings": accounts.timings(replies.streams[found.index])} if ended else {}
                yield self._piece(served, choice, timings)
        if self._includes_usage:
            yield event(self._object(served, self.PIECE, []) | {"usage": self._usage(replies)})
        yield event("[DONE]")

    def failed(self, error: RequestError) -> bytes:
        """Return the last event of a stream that fails."""
        return event(error.openai())

    def _count(self, found: Event) -> None:
        if found.chunk is not None:
            self._thoughts += any(isinstance(part, Reasoning) for part in found.parts)

    def _usage(self, replies: Replies) -> dict[str, Any]:
        details = {"completion_tokens_details": {"reasoning_tokens": self._thoughts}}
        return accounts.usage(replies.streams) | details

    def _piece(self, served: Served, choice: Choice, more: Mapping[str, Any] | None = None) -> bytes:
        usage = {"usage": None} if self._includes_usage else {}
        return event(self._object(served, self.PIECE, [choice]) | usage | dict(more or {}))

    def _object(self, served: Served, kind: str, choices: Sequence[Choice]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": served.name,
            "system_fingerprint": served.fingerprint,
            "choices": choices,
        }
