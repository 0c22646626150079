"""What replies took: tokens and times, and the likeliest tokens of each step."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from pyturbo.batching import Stream
from pyturbo.engine.generation import Chunk
from pyturbo.text import Tokenizer
from pyturbo.text.dialects import Part, Text


def usage(streams: Sequence[Stream]) -> dict[str, Any]:
    """Return the tokens of all replies to one prompt, as OpenAI counts them."""
    prompt, cached = prompt_tokens(streams[0]), streams[0].stats.cached_tokens
    completion = sum(stream.stats.tokens for stream in streams)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def prompt_tokens(stream: Stream) -> int:
    """Return the tokens of a prompt, whether they were read or known already."""
    return stream.progress[1]


def timings(stream: Stream) -> dict[str, Any]:
    """Return the tokens and times of one reply."""
    stats = stream.stats
    return {
        "queued_seconds": stream.queued_seconds or 0.0,
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "prompt_seconds": stats.prefill_seconds,
        "tokens": stats.tokens,
        "seconds": stats.decode_seconds,
        "tokens_per_second": stats.decode_speed,
    }


class ContentTokens:
    """Finds the tokens that are the content of a reply, without thoughts, calls, markers and its end.

    Tokens whose text becomes known at once, such as those of one character, are found together.
    """

    def __init__(self, ends: Collection[int]) -> None:
        """Take the tokens that end a reply."""
        self._ends = ends
        self._length = 0  # of the text so far, in characters
        self._held: list[Chunk] = []  # tokens whose text is not known
        self._undecided: deque[tuple[int, int, list[Chunk]]] = deque()  # where their text begins and ends

    def of(self, chunk: Chunk | None, parts: Sequence[Part]) -> list[Chunk]:
        """Return the tokens that parts make certain, after the next token of the reply."""
        if chunk is not None:
            self._take(chunk)
        found: list[Chunk] = []
        for begin, end in (part.span for part in parts if isinstance(part, Text)):
            while self._undecided and self._undecided[0][0] < end:
                _, last, chunks = self._undecided.popleft()
                found += chunks if last > begin else []
        return found

    def _take(self, chunk: Chunk) -> None:
        if chunk.finish_reason != "stop" or chunk.token not in self._ends:
            self._held.append(chunk)
        if chunk.text:
            begin, self._length = self._length, self._length + len(chunk.text)
            self._undecided.append((begin, self._length, self._held))
            self._held = []


def chat_logprobs(tokenizer: Tokenizer, chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return the logprobs of tokens of the content as chat completions have them."""
    content = [
        {
            **_token(tokenizer, chunk.token, chunk.logprob),
            "top_logprobs": [_token(tokenizer, token, logprob) for token, logprob in chunk.top],
        }
        for chunk in chunks
    ]
    return {"content": content, "refusal": None}


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    spelled = tokenizer.token_bytes(token)
    return {"token": spelled.decode("utf-8", "replace"), "logprob": logprob, "bytes": [*spelled]}


class Places:
    """Finds where the tokens of a reply begin in its text, in characters. A token may end within one."""

    def __init__(self) -> None:
        self._next, self._decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, spelled: bytes) -> int:
        """Return the place of the next token."""
        place = self._next
        self._next += len(self._decoder.decode(spelled))
        return place


def text_logprobs(tokenizer: Tokenizer, chunks: Sequence[Chunk], places: Places) -> dict[str, Any]:
    """Return the logprobs of tokens as completions of text have them."""
    spelled = [tokenizer.token_bytes(chunk.token) for chunk in chunks]
    top = [
        {tokenizer.token_bytes(token).decode("utf-8", "replace"): logprob for token, logprob in chunk.top}
        for chunk in chunks
    ]
    return {
        "tokens": [token.decode("utf-8", "replace") for token in spelled],
        "token_logprobs": [chunk.logprob for chunk in chunks],
        "top_logprobs": top,
        "text_offset": [places.of(token) for token in spelled],
    }
