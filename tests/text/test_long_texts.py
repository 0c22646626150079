"""Texts that take long to encode."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter

from pyturbo.text import Tokenizer
from text.vocabularies import byte_level, byte_level_gguf

LONG = "Once upon a time " * 20_000


def test_they_have_the_tokens_of_short_ones() -> None:
    tokenizer = Tokenizer(byte_level_gguf())
    assert tokenizer.encode(LONG) == byte_level().encode(LONG).ids


def test_other_threads_go_on_while_a_long_text_is_encoded() -> None:
    """This one wakes up several times during one of its calls."""
    tokenizer, calls, seen = Tokenizer(byte_level_gguf()), [0], Counter[int]()

    def encode() -> None:
        for _ in range(10):
            calls[0] += 1  # odd while it encodes
            tokenizer.encode(LONG)
            calls[0] += 1

    thread = threading.Thread(target=encode)
    thread.start()
    while thread.is_alive():
        time.sleep(sys.getswitchinterval())
        seen[calls[0]] += 1
    assert max(count for call, count in seen.items() if call % 2) > 3
