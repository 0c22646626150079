"""What is worth keeping of states: by the time that it saves, the bytes that it takes, and its last use."""

from __future__ import annotations

import math

#: Copies of states while a prompt is read may take this share of the time that reading takes.
_SHARE = 0.02

#: The copies made of one prompt may take this share of a store.
_PART = 0.25

#: Seconds in which something that is not used loses half of its value.
HALF_LIFE = 600.0

_WEIGHT = 0.25  # of a new measurement


class Pace:
    """How long reading a token and copying a byte of a state take here, as measured so far.

    Attributes:
        token: Seconds to read a token; None before the first prompt that is read alone.
        byte: Seconds to copy a byte; None before the first copy.
    """

    def __init__(self) -> None:
        self.token: float | None = None
        self.byte: float | None = None

    def read(self, tokens: int, seconds: float) -> None:
        """Take a measurement: `tokens` were read within `seconds`."""
        self.token = _mean(self.token, seconds / tokens)

    def copied(self, nbytes: int, seconds: float) -> None:
        """Take a measurement: `nbytes` were copied within `seconds`."""
        self.byte = _mean(self.byte, seconds / nbytes)

    def spacing(self, chunk: int, tokens: int, nbytes: int, most: int) -> int:
        """Return the tokens from one copy of `nbytes` to the next while a prompt of `tokens` is read.

        They are whole chunks. A store has `most` bytes.
        """
        least = tokens * nbytes / (_PART * most)
        if self.token and self.byte:
            least = max(least, nbytes * self.byte / (_SHARE * self.token))
        return chunk * max(1, math.ceil(least / chunk))


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)


def value(tokens: int, nbytes: int, idle: float) -> float:
    """Return the tokens that need not be read again, per byte; half as much for each HALF_LIFE of `idle`.

    All tokens of a model take about the same time, so it ranks by time saved.
    """
    return tokens / max(nbytes, 1) * math.exp(-math.log(2) * idle / HALF_LIFE)
