"""Measure how much a model's predictions change with the format of its keys and values.

Text is read token by token, as in decode, so that all keys and values before the current token are in that
format. The distributions of the next token are compared.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyturbo._device import Device
from pyturbo.bench.kv import llama
from pyturbo.engine.layout import Layout
from pyturbo.errors import ArgumentError
from pyturbo.layers.kv_cache import KV_FORMATS, kv_format
from pyturbo.model import Model, load

WINDOW = 1024  # tokens
WINDOWS = 8


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
    peers: bool = False,
) -> list[Quality]:
    """Measure the checkpoint at `path` with each of `KV_FORMATS`, over `count` windows of text at most.

    `peers` adds llama.cpp's types, each compared with llama.cpp's own float32.
    """
    with ExitStack() as opened:
        models = [opened.enter_context(load(path, device, kv.name)) for kv in KV_FORMATS]
        tokens = min(tokens, models[0].max_context)
        windows = windows_of(models[0], texts, count, tokens)
        if not len(windows):
            raise ArgumentError(f"bench kv: text: expected at least a window of {tokens} tokens, got fewer")
        caches: list[llama.Cache] = []
        if peers:
            threads = int(device.properties.get("threads", os.cpu_count() or 1))
            caches = opened.enter_context(llama.Caches(path, tokens, threads)).caches
        return measure(models, windows, tell, caches)


def measure(
    models: Sequence[Model],
    windows: NDArray[np.int32],
    tell: Callable[[str], None] = lambda text: None,
    peers: Sequence[llama.Cache] = (),
) -> list[Quality]:
    """Measure models that differ in `kv` over `windows` [count, tokens], each from a fresh state.

    The caches of llama.cpp among `peers` are compared with the first of them.
    """
    if windows.ndim != 2 or windows.size == 0 or windows.shape[1] < 2:
        raise ArgumentError(
            f"bench kv: windows: expected at least one of 2 tokens or more, got {windows.shape}"
        )
    tallies = _tallies([_start(model) for model in models], windows, tell)
    tokens = windows.shape[1]
    rows = [
        _quality(model.kv, bits_per_value(model, tokens), bytes_per_token(model, tokens), tally, tallies[0])
        for model, tally in zip(models, tallies)
    ]
    byte = rows[0].bytes_per_token / rows[0].bits  # of a token, for each bit of a value
    tallies = _tallies([cache.start for cache in peers], windows, tell) if peers else []
    return rows + [
        _quality(cache.name, cache.bits, round(cache.bits * byte), tally, tallies[0])
        for cache, tally in zip(peers, tallies)
    ]


def _start(model: Model) -> Start:
    return lambda tokens: model.session(tokens).step


def _tallies(starts: Sequence[Start], windows: NDArray[np.int32], tell: Callable[[str], None]) -> list[Tally]:
    """Read the windows with all settings at once, and compare each with the first."""
    tallies = [Tally() for _ in starts]
    for i, window in enumerate(windows):
        tell(f"window {i + 1} of {len(windows)}")
        steps = [start(len(window)) for start in starts]
        for token, following in zip(window[:-1].tolist(), window[1:].tolist()):
            logs = [log_softmax(step(token)) for step in steps]
            for tally, got in zip(tallies, logs):
                tally.add(logs[0], got, following)
    return tallies


def _quality(kv: str, bits: float, bytes_per_token: int, tally: Tally, first: Tally) -> Quality:
    return Quality(
        kv,
        bits,
        bytes_per_token,
        tally.tokens,
        tally.perplexity,
        tally.perplexity / first.perplexity - 1,
        tally.divergence / tally.tokens,
        tally.same / tally.tokens,
    )


def windows_of(model: Model, texts: Sequence[str], count: int, tokens: int) -> NDArray[np.int32]:
    """Return the first `count` windows of the texts, or fewer if there is less text."""
    ids = [token for text in texts for token in model.tokenizer.encode(text, special=False)]
    whole = min(count, len(ids) // tokens)
    return np.array(ids[: whole * tokens], np.int32).reshape(whole, tokens)


def bytes_per_token(model: Model, tokens: int) -> int:
    """Return the bytes of one of `tokens` tokens in all layers: of keys and values, or of latents."""
    return round(_layout(model, tokens, model.kv).cache_bytes / tokens)


def bits_per_value(model: Model, tokens: int) -> float:
    """Return the bits of one value in a cache of `tokens` tokens, with all that is kept beside the codes."""
    kept, plain = (_layout(model, tokens, kv).cache_bytes for kv in (model.kv, "f32"))
    return 32 * kept / plain


def _layout(model: Model, tokens: int, kv: str) -> Layout:
    return Layout.of(model.network, context=tokens, chunk=1, kv=kv_format(kv))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x -= x.max()
    x -= np.log(np.exp(x).sum())
    return x
