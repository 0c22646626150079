"""Measure how much a model's predictions change with the format of its keys and values.

Text is read token by token, as in decode, so that all keys and values before the current token are in that
format. The distributions of the next token are compared.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from pyturbo.errors import ArgumentError, FileError
from pyturbo.files.write import as_bytes

#: Takes the number of tokens of a text; returns what reads a token and gives the logits of the next.
Start = Callable[[int], Callable[[int], NDArray[np.float32]]]


@dataclass(frozen=True)
class Quality:
    """The quality of one setting relative to the first one of its engine. Divergences are in nats."""

    kv: str
    bits: float  # of a value, with all that is kept beside the codes
    bytes_per_token: int  # of keys and values
    tokens: int  # predicted
    perplexity: float
    change: float  # of the perplexity, as a share of the first setting's
    divergence: float  # mean Kullback-Leibler
    agreement: float  # share of positions with the same likeliest token


@dataclass(frozen=True)
class Setting:
    """An engine with one format of keys and values. `opened` gives what reads texts with it."""

    name: str
    bits: float
    bytes_per_token: int
    opened: Callable[[], AbstractContextManager[Start]]


class Tally:
    """Sums up the loss of predictions, and their divergence from those of another setting."""

    def __init__(self) -> None:
        self.tokens = self.same = 0
        self.loss = self.divergence = 0.0

    def add(self, want: NDArray[np.float64], got: NDArray[np.float64], token: int) -> None:
        """Add the log probabilities of the next token by the two settings, and the token itself."""
        self.tokens += 1
        self.loss -= float(got[token])
        self.divergence += float(np.exp(want) @ (want - got))
        self.same += bool(want.argmax() == got.argmax())

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss / self.tokens)


class Comparison:
    """Compares settings of an engine over `windows` [count, tokens], each from a fresh state.

    The first that is measured is what the others are compared with; its logits are in a temporary file.
    Use it in a ``with`` statement.
    """

    def __init__(self, windows: NDArray[np.int32]) -> None:
        if windows.ndim != 2 or windows.size == 0 or windows.shape[1] < 2:
            raise ArgumentError(
                f"bench kv: windows: expected at least one of 2 tokens or more, got {windows.shape}"
            )
        self._windows = windows
        self._first: Tally | None = None
        self._exact = tempfile.TemporaryFile()  # noqa: SIM115, closed with the comparison

    def __enter__(self) -> Comparison:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exact.close()

    def measure(self, setting: Setting, tell: Callable[[str], None] = lambda text: None) -> Quality:
        """Read all windows with a setting."""
        tally = Tally()
        self._exact.seek(0)
        with setting.opened() as start:
            for i, window in enumerate(self._windows):
                tell(f"{setting.name}: window {i + 1} of {len(self._windows)}")
                step = start(len(window))
                for token, following in zip(window[:-1].tolist(), window[1:].tolist()):
                    logits = step(token)
                    got = log_softmax(logits)
                    want = got if self._first is None else log_softmax(self._next(logits.size))
                    tally.add(want, got, following)
                    if self._first is None:
                        self._keep(logits)
        first = self._first = self._first or tally
        return Quality(
            setting.name,
            setting.bits,
            setting.bytes_per_token,
            tally.tokens,
            tally.perplexity,
            tally.perplexity / first.perplexity - 1,
            tally.divergence / tally.tokens,
            tally.same / tally.tokens,
        )

    def _keep(self, logits: NDArray[np.float32]) -> None:
        try:
            self._exact.write(as_bytes(logits))
            self._exact.flush()
        except OSError as error:
            raise FileError(
                f"bench kv: {tempfile.gettempdir()}: cannot keep the logits of float32: {error}"
            ) from error

    def _next(self, vocab: int) -> NDArray[np.float32]:
        """Return the kept logits of the next token."""
        return np.frombuffer(self._exact.read(4 * vocab), np.float32)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max()
    x -= np.log(np.exp(x).sum())
    return x
