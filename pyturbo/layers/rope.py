"""Rotary position embedding: the rotary part of a head, its frequencies and its scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.config import max_context


@dataclass(frozen=True, eq=False)
class Rope:
    inv_freq: Array  # float32 [rotary_dim / 2]
    scale: float = 1.0  # a factor of the rotary part
    interleaved: bool = False  # whether pairs are neighbours, rather than half a head apart

    def __call__(self, x: Any, position: Any) -> Any:
        """Rotate x [tokens, heads, dim], whose first token is at `position`."""
        dim = 2 * len(self.inv_freq)
        return ops.rope(x, position, self.inv_freq, dim, self.scale, self.interleaved)

    @staticmethod
    def read(entries: Entries, head_dim: int, *, interleaved: bool = False) -> Rope:
        """Read the rotary part, its base, and how it is scaled to a longer context.

        Pairs are neighbours as `interleaved` says, unless the configuration has an entry for it.
        """
        given = entries.group("rope_parameters", "rope_scaling")
        part = given.number("partial_rotary_factor", entries.number("partial_rotary_factor", 1.0))
        dim = int(head_dim * part) if 0 < part <= 1 else 0
        if dim < 2 or dim % 2:
            raise entries.wrong("partial_rotary_factor", f"an even part of {head_dim}")
        theta = given.number("rope_theta", entries.number("rope_theta", 10000.0))
        if not 1 < theta < 1e15:
            raise (given if "rope_theta" in given else entries).wrong("rope_theta", "a base above 1")
        name = "rope_type" if "rope_type" in given else "type"
        kind = given.text(name, "default")
        if kind not in _KINDS:
            raise given.wrong(name, f"one of {', '.join(_KINDS)}")
        plain = theta ** (-np.arange(0, dim, 2) / dim)
        inv_freq, scale = _KINDS[kind](plain, theta, given, entries)
        return Rope(inv_freq.astype(np.float32), scale, entries.flag("rope_interleave", interleaved))


def _default(plain: Array, theta: float, given: Entries, entries: Entries) -> tuple[Array, float]:
    return plain, 1.0


def _linear(plain: Array, theta: float, given: Entries, entries: Entries) -> tuple[Array, float]:
    """Divide all positions by `factor`."""
    return plain / _positive(given, "factor"), 1.0


def _llama3(plain: Array, theta: float, given: Entries, entries: Entries) -> tuple[Array, float]:
    """Divide low frequencies by `factor`, keep high ones, and blend those between."""
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    if high <= low:
        raise given.wrong("high_freq_factor", f"more than {low}")
    turns = given.count("original_max_position_embeddings") * plain / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (blend + (1 - blend) / _positive(given, "factor")), 1.0


def _yarn(plain: Array, theta: float, given: Entries, entries: Entries) -> tuple[Array, float]:
    """Keep high frequencies, divide low ones by `factor`, and join them by a ramp."""
    context = max_context(entries)
    original = given.count("original_max_position_embeddings", context)
    factor = _positive(given, "factor", context / original)
    dim = 2 * len(plain)

    def pair_of(turns: float) -> float:
        return dim * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta))

    low, high = (
        pair_of(_positive(given, name, turns)) for name, turns in (("beta_fast", 32), ("beta_slow", 1))
    )
    if given.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    inv_freq = plain * (1 - ramp) + plain / factor * ramp
    return inv_freq, given.number("attention_factor", _growth(factor, given))


def _growth(factor: float, given: Entries) -> float:
    """Return the factor of sine and cosine in YaRN."""
    if "mscale" in given and "mscale_all_dim" in given:
        return _mscale(factor, given.number("mscale")) / _mscale(factor, given.number("mscale_all_dim"))
    return _mscale(factor, 1.0)


def _mscale(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def score_growth(entries: Entries) -> float:
    """Return the factor of all scores of latent attention in YaRN, not only of the rotary part."""
    given = entries.group("rope_parameters", "rope_scaling")
    if not given.number("mscale_all_dim", 0.0):
        return 1.0
    return _mscale(_positive(given, "factor"), given.number("mscale_all_dim")) ** 2


def _longrope(plain: Array, theta: float, given: Entries, entries: Entries) -> tuple[Array, float]:
    """Divide the frequency of each pair by a factor of its own, which short and long contexts share."""
    factors = given.list_of("long_factor", float)
    if len(factors) != len(plain) or min(factors) <= 0 or given.list_of("short_factor", float) != factors:
        raise given.wrong("long_factor", f"{len(plain)} positive factors, equal to short_factor")
    return plain / np.array(factors), given.number("attention_factor", 1.0)


def _positive(given: Entries, name: str, default: float | None = None) -> float:
    value = given.number(name, default)
    if not 1e-9 < value < 1e9:
        raise given.wrong(name, "a positive number")
    return value


_KINDS = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
