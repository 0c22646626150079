"""How much of a prompt is read while others wait for their next token."""

from __future__ import annotations

#: Pieces from here on are a multiple of this, but for the last of a prompt: chunkwise kernels work on 32
#: tokens at a time.
GRAIN = 32

#: Smaller ones are a multiple of this: the products of fewer tokens are slower.
LEAST = 8

_KEPT = 0.5  # of the old speed when a new one is measured


class Pace:
    """The size of pieces, such that each takes at most `seconds`, from the speed of those before.

    A piece is at least `LEAST` tokens, and one grain while the speed is not known. Programs of single tokens
    read none of it, because these round otherwise: a rest that they would read is added to the piece before.

    Attributes:
        seconds: The bound.
        step_seconds: How long the last step took. A piece may take as long.
        chunk: The most tokens that a program reads.
    """

    def __init__(self, seconds: float, chunk: int, single: int, *, whole: bool) -> None:
        """Take the bound, the most tokens that a program reads, and how many are read one by one.

        `whole`: a piece is as large as a program reads, whatever time it takes, because the size of pieces
        changes the results.
        """
        self.seconds, self.chunk, self._single = seconds, chunk, single
        self.step_seconds = 0.0
        self._grain = chunk if whole else min(GRAIN, chunk)
        self._least = self._grain if whole else min((single // LEAST + 1) * LEAST, self._grain)
        self._speed: float | None = None  # tokens per second

    @property
    def allowed(self) -> int:
        """How many tokens to read while others wait."""
        seconds = max(self.seconds, self.step_seconds)
        allowed = self._grain if self._speed is None else int(seconds * self._speed)
        unit = self._grain if allowed >= self._grain else self._least
        return max(unit, min(allowed // unit * unit, self.chunk))

    def piece(self, unread: int) -> int:
        """Return how many of the `unread` tokens of a prompt to read while others wait."""
        count = self.allowed
        return unread if unread <= count + self._single else count

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a piece that was read."""
        if seconds > 0:
            speed = tokens / seconds
            self._speed = speed if self._speed is None else _KEPT * self._speed + (1 - _KEPT) * speed
