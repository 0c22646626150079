"""Measure how much a model's predictions change with the format of its keys and values.

Text is read token by token, as in decode, so that all keys and values before the current token are in that
format. The distributions of the next token are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyturbo._native import Device
from pyturbo.engine.layout import Layout
from pyturbo.errors import ArgumentError
from pyturbo.layers.kv_cache import KV_FORMATS, kv_format
from pyturbo.model import Model, load

WINDOW = 1024  # tokens
WINDOWS = 8


@dataclass(frozen=True)
class Quality:
    """The quality of one setting relative to the first one. Divergences are in nats."""

    kv: str
    bytes_per_token: int  # of keys and values
    tokens: int  # predicted
    perplexity: float
    change: float  # of the perplexity, as a share of the first setting's
    divergence: float  # mean Kullback-Leibler
    agreement: float  # share of positions with the same likeliest token


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


def compare(
    path: Path,
    device: Device,
    texts: Sequence[str],
    count: int,
    tokens: int,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Quality]:
    """Measure the checkpoint at `path` with each of `KV_FORMATS`, over `count` windows of text at most."""
    with ExitStack() as opened:
        models = [opened.enter_context(load(path, device, kv.name)) for kv in KV_FORMATS]
        windows = windows_of(models[0], texts, count, min(tokens, models[0].max_context))
        return measure(models, windows, tell)


def measure(
    models: Sequence[Model],
    windows: NDArray[np.int32],
    tell: Callable[[str], None] = lambda text: None,
) -> list[Quality]:
    """Measure models that differ in `kv` over `windows` [count, tokens], each from a fresh state."""
    if windows.ndim != 2 or windows.size == 0 or windows.shape[1] < 2:
        raise ArgumentError(
            f"bench kv: windows: expected at least one of 2 tokens or more, got {windows.shape}"
        )
    tallies = [Tally() for _ in models]
    for i, window in enumerate(windows):
        tell(f"window {i + 1} of {len(windows)}")
        sessions = [model.session(len(window)) for model in models]
        for token, following in zip(window[:-1].tolist(), window[1:].tolist()):
            logs = [log_softmax(session.step(token)) for session in sessions]
            for tally, got in zip(tallies, logs):
                tally.add(logs[0], got, following)
    return [
        Quality(
            model.kv,
            bytes_per_token(model),
            tally.tokens,
            tally.perplexity,
            tally.perplexity / tallies[0].perplexity - 1,
            tally.divergence / tally.tokens,
            tally.same / tally.tokens,
        )
        for model, tally in zip(models, tallies)
    ]


def windows_of(model: Model, texts: Sequence[str], count: int, tokens: int) -> NDArray[np.int32]:
    """Return the first `count` windows of the texts, or fewer if there is less text."""
    ids = [token for text in texts for token in model.tokenizer.encode(text, special=False)]
    whole = min(count, len(ids) // tokens)
    return np.array(ids[: whole * tokens], np.int32).reshape(whole, tokens)


def bytes_per_token(model: Model) -> int:
    """Return the bytes of keys and values, or of latents and rotary keys, of one token in all layers."""
    return Layout.of(model.network, context=1, chunk=1, kv=kv_format(model.kv)).token_bytes


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max()
    x -= np.log(np.exp(x).sum())
    return x
