"""Texts that take long to encode."""

from __future__ import annotations

import sys
import threading
import time

from pyturbo.text import Tokenizer
from text.vocabularies import byte_level, byte_level_gguf

LONG = "Once upon a time " * 20_000


def test_they_have_the_tokens_of_short_ones() -> None:
    tokenizer = Tokenizer(byte_level_gguf())
    assert tokenizer.encode(LONG) == byte_level().encode(LONG).ids


def test_other_threads_go_on_while_a_long_text_is_encoded() -> None:
    tokenizer, ended = Tokenizer(byte_level_gguf()), threading.Event()

    def encode() -> None:
        time.sleep(0.1)
        for _ in range(2):
            tokenizer.encode(LONG)
        ended.set()

    thread = threading.Thread(target=encode)
    began = last = time.monotonic()
    thread.start()
    gap = 0.0
    while not ended.is_set():
        time.sleep(sys.getswitchinterval())
        now = time.monotonic()
        gap, last = max(gap, now - last), now
    thread.join()
    assert gap < (last - began) / 3
