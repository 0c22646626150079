"""Entries of a configuration that several layers read, with their defaults."""

from __future__ import annotations

from collections.abc import Collection

from pyturbo.checkpoint.entries import Entries

#: Kinds of layers in the entry `layer_types`.
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def max_context(entries: Entries) -> int:
    """Return the number of tokens that the model was made for."""
    return entries.count("max_position_embeddings", 4096)


def norm_eps(entries: Entries) -> float:
    """Return what norms add to the mean square."""
    eps = entries.number("rms_norm_eps", 1e-6)
    if eps < 0:
        raise entries.wrong("rms_norm_eps", "a number that is not negative")
    return eps


def layer_types(entries: Entries, known: Collection[str], default: list[str]) -> list[str]:
    """Return the kind of each layer, one of `known`; `default` if the configuration does not list them."""
    count = entries.count("num_hidden_layers")
    kinds = entries.list_of("layer_types", str, default)
    if len(kinds) != count or not set(kinds) <= set(known):
        raise entries.wrong("layer_types", f"{count} of {' or '.join(known)}")
    return kinds
