"""Sliding windows: layers that see only the most recent tokens."""

from __future__ import annotations

from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.config import FULL, SLIDING, layer_types, max_context


def layer_windows(entries: Entries, default: list[str]) -> list[int]:
    """Return the number of tokens that each layer sees, the current one included; 0: all.

    `default` are the kinds of the layers where the configuration does not list them.
    """
    kinds = layer_types(entries, (FULL, SLIDING), default)
    if SLIDING not in kinds:
        return [0] * len(kinds)
    if not entries.flag("use_sliding_window", True):
        raise entries.wrong("use_sliding_window", f"true beside layers of {SLIDING}")
    window = min(entries.count("sliding_window"), max_context(entries))
    return [window if kind == SLIDING else 0 for kind in kinds]


def upper_windows(entries: Entries, first: int | None = None) -> list[int]:
    """Return windows as Qwen has them: if windows are used, all layers from `first` on have one.

    `first` defaults to the configuration's `max_window_layers`, the number of layers in front of these.
    """
    used, layers = entries.flag("use_sliding_window", False), range(entries.count("num_hidden_layers"))
    first = entries.count_or_none("max_window_layers", 28) if first is None else first
    return layer_windows(entries, [SLIDING if used and i >= first else FULL for i in layers])
