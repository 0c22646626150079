"""Beginnings of stories for an engine, and how to wait for one."""

from __future__ import annotations

import time
from typing import Any

PROMPTS = ("Once upon a time", "The cat sat on the", "One day, Tim and his dog went to the", "Lily was sad")


def until(condition: Any) -> None:
    """Wait until something becomes true."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
