"""POST /v1/embeddings: texts as vectors, as OpenAI's clients speak it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from pyturbo.engine.embedding import Pooling
from pyturbo.errors import ArgumentError, BusyError, CancelledError, ContextError
from pyturbo.serve.replies.replies import unless_gone
from pyturbo.serve.requests.body import Fields, read_body
from pyturbo.serve.requests.messages import refusal
from pyturbo.serve.server_state import CLIENT_GONE, state_of
from pyturbo.serve.shelf import Served

#: Fields that change no vector.
IGNORED = ("user",)

_PIECE = 32  # tokens that are read at once while replies wait for their next token
_WAITING = 64  # requests of one model that may wait for others


class EmbeddingFields(Fields):
    """The fields of a request. `pooling` is not OpenAI's; see `Model.embed`."""

    model: str | None = None
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    pooling: Pooling | None = None

    def tokens(self, served: Served, most: int) -> list[NDArray[np.int32]]:
        """Return the tokens of each text."""
        model = served.model
        several = isinstance(self.input, list) and not isinstance((self.input or [0])[0], int)
        if several and len(self.input) > most:
            raise refusal("input", f"expected at most {most} texts, got {len(self.input)}")
        hidden = len(model.network.norm.weight)
        if self.dimensions not in (None, hidden):
            raise refusal("dimensions", f"expected {hidden}, those of the model, got {self.dimensions}")
        try:
            listed = model.embedded_ids(self.input)
            served.engine.require_text(max(map(len, listed)))
            return listed
        except ContextError:
            raise
        except ArgumentError as error:
            raise refusal("input", str(error).removeprefix("texts: ")) from None


async def embeddings(request: Request) -> Response:
    """Return a vector for each text. A client that goes away ends the work after the piece being read."""
    state = state_of(request)
    fields = await read_body(request, EmbeddingFields, state.settings, *IGNORED)
    async with state.shelf.use(fields.model) as served:
        if served.embeddings >= _WAITING:
            raise BusyError("too many requests wait already")
        listed = await state.preparation.run(served, lambda: fields.tokens(served, state.settings.max_inputs))
        found = await unless_gone(
            request.receive, _vectors(served, listed, fields.pooling or state.settings.pooling)
        )
    if found is None:
        return Response(status_code=CLIENT_GONE)
    tokens = sum(map(len, listed))
    state.metrics.note_embedded(served.name, tokens)
    body = await asyncio.to_thread(_body, served.name, fields.encoding_format, found, tokens)
    return Response(body, media_type="application/json")


async def _vectors(
    served: Served, listed: Sequence[NDArray[np.int32]], pooling: Pooling
) -> list[NDArray[np.float32]]:
    """Read texts in turns with other requests, of which one text at a time is read."""
    found = []
    served.embeddings += 1
    try:
        for ids in listed:
            async with served.embedding:
                found.append(await _vector(served, ids, pooling))
    finally:
        served.embeddings -= 1
    return found


async def _vector(served: Served, ids: NDArray[np.int32], pooling: Pooling) -> NDArray[np.float32]:
    """Read a text, in small pieces while replies are under way."""
    gone = threading.Event()

    def check() -> None:
        if gone.is_set():
            raise CancelledError("the client went away")

    def piece() -> int | None:
        check()
        return _PIECE if served.engine.running else None

    def read() -> NDArray[np.float32]:
        with served.engine.reading(len(ids), check):
            return served.model.embed(ids, pooling, piece=piece)

    reading = asyncio.ensure_future(asyncio.to_thread(read))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        gone.set()
        await asyncio.wait({reading})  # a thread ends at its next piece
        reading.exception()
        raise


def _body(name: str, form: str, vectors: Sequence[NDArray[np.float32]], tokens: int) -> bytes:
    """Write the response; many numbers take a while."""
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": i, "embedding": _written(vector[0], form)}
        for i, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json.dumps({"object": "list", "data": data, "model": name, "usage": usage}).encode()


def _written(vector: NDArray[np.float32], form: str) -> str | list[float]:
    """Return numbers, or their bytes in little endian as base64."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if form == "base64" else vector.tolist()
