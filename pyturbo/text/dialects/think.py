"""Thoughts between <think> and </think>, at the beginning of a reply or after a call."""

from __future__ import annotations

import re

from pyturbo.text.dialects.reader import Reader, Step
from pyturbo.text.dialects.writer import Writer

OPEN, CLOSE = "<think>", "</think>"
_TURN = re.compile("<[|\uff5c]")  # begins the tokens that separate turns


def read_thoughts(reader: Reader, writer: Writer) -> Step[None]:
    """Take all thoughts at the start of the text. Within an answer the tags are text."""
    while True:
        place = yield from reader.after_spaces()
        if not (yield from reader.is_at(place, OPEN)):
            return
        reader.take(place + len(OPEN))
        writer.begin_thoughts()
        if (yield from reader.copy_until((CLOSE,), writer.reasoning)):
            writer.end_thoughts()


def begun_thoughts(prompt: str) -> str:
    """Return the tag that a prompt ends with, or that it opened within the reply that it begins."""
    place = prompt.rfind(OPEN)
    tail = prompt[place + len(OPEN) :]
    return "" if place < 0 or CLOSE in tail or _TURN.search(tail) else OPEN


def written_thoughts(reasoning: str) -> str:
    """Return thoughts as a reply has them."""
    return f"{OPEN}\n{reasoning}\n{CLOSE}\n\n" if reasoning else ""
