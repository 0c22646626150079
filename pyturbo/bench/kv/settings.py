"""The settings to compare: pyturbo's formats of keys and values, and llama.cpp's types."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyturbo._device import Device
from pyturbo.bench.kv import llama
from pyturbo.bench.kv.quality import Comparison, Quality, Setting, Start
from pyturbo.engine.layout import Layout
from pyturbo.errors import ArgumentError
from pyturbo.layers.kv_cache import kv_format
from pyturbo.layers.step import KvFormat
from pyturbo.model import Model, load

WINDOW = 1024  # tokens
WINDOWS = 8
EXACT = "f32"  # what the others are compared with


@dataclass(frozen=True)
class Measurement:
    """The work for one row. The first one of an engine runs before its others."""

    setting: Setting
    comparison: Comparison

    def run(self, tell: Callable[[str], None] = lambda text: None) -> Quality:
        return self.comparison.measure(self.setting, tell)


@contextmanager
def measurements(
    path: Path,
    device: Device,
    texts: Sequence[str],
    count: int,
    tokens: int,
    formats: Sequence[KvFormat],
    caches: Sequence[llama.Cache],
) -> Iterator[list[Measurement]]:
    """Yield the measurements of the checkpoint at `path`, over `count` windows of text at most.

    Those of pyturbo's `formats` come first, then those of llama.cpp's `caches`. Each engine of which there
    are any begins with float32.
    """
    with ExitStack() as opened:
        exact = opened.enter_context(load(path, device, EXACT))
        tokens = min(tokens, exact.max_context)
        windows = windows_of(exact, texts, count, tokens)
        if not len(windows):
            raise ArgumentError(f"bench kv: text: expected at least a window of {tokens} tokens, got fewer")
        threads = int(device.properties.get("threads", os.cpu_count() or 1))
        engines = [_own(exact, path, device, tokens, formats)] if formats else []
        if caches:
            peer = opened.enter_context(llama.Llama(path, threads))
            engines.append(_peers(peer, tokens, caches, bytes_per_token(exact, EXACT, tokens)))
        work = []
        for settings in engines:
            comparison = opened.enter_context(Comparison(windows))
            work += [Measurement(setting, comparison) for setting in settings]
        yield work


def _own(exact: Model, path: Path, device: Device, tokens: int, formats: Sequence[KvFormat]) -> list[Setting]:
    names = dict.fromkeys([EXACT, *(kv.name for kv in formats)])
    return [own_setting(exact, kv, tokens, partial(load, path, device, kv)) for kv in names]


def own_setting(model: Model, kv: str, tokens: int, loaded: Callable[[], Model]) -> Setting:
    """Return pyturbo with a format of keys and values; `model` has the same layers, with any format."""

    @contextmanager
    def opened() -> Iterator[Start]:
        with loaded() as own:
            yield lambda context: own.session(context).step

    return Setting(kv, bits_per_value(model, kv, tokens), bytes_per_token(model, kv, tokens), opened)


def _peers(peer: llama.Llama, tokens: int, caches: Sequence[llama.Cache], exact_bytes: int) -> list[Setting]:
    """Return llama.cpp with each of its types; those of float32 take `exact_bytes` for a token."""
    return [
        Setting(
            cache.row, cache.bits, round(exact_bytes * cache.bits / 32), partial(peer.opened, cache, tokens)
        )
        for cache in dict.fromkeys([llama.EXACT, *caches])
    ]


def windows_of(model: Model, texts: Sequence[str], count: int, tokens: int) -> NDArray[np.int32]:
    """Return the first `count` windows of the texts, or fewer if there is less text."""
    ids = [token for text in texts for token in model.tokenizer.encode(text, special=False)]
    whole = min(count, len(ids) // tokens)
    return np.array(ids[: whole * tokens], np.int32).reshape(whole, tokens)


def bytes_per_token(model: Model, kv: str, tokens: int) -> int:
    """Return the bytes of one of `tokens` tokens in all layers: of keys and values, or of latents."""
    return round(_layout(model, kv, tokens).cache_bytes / tokens)


def bits_per_value(model: Model, kv: str, tokens: int) -> float:
    """Return the bits of one value in a cache of `tokens` tokens, with all that is kept beside the codes."""
    kept, plain = (_layout(model, name, tokens).cache_bytes for name in (kv, EXACT))
    return 32 * kept / plain


def _layout(model: Model, kv: str, tokens: int) -> Layout:
    return Layout.of(model.network, context=tokens, chunk=1, kv=kv_format(kv))
