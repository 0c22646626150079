"""Networks of delta nets, with a layer of full attention at regular intervals."""

from __future__ import annotations

from collections.abc import Callable

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.attention import Attention
from pyturbo.layers.config import FULL, LINEAR, layer_types
from pyturbo.layers.decoder import Mixer
from pyturbo.layers.delta_net import DeltaNet, Projections


def layer_kinds(entries: Entries) -> list[str]:
    """Return the kind of each layer: as the configuration lists them, or full attention at each interval."""
    interval, count = entries.count("full_attention_interval", 4), entries.count("num_hidden_layers")
    default = [LINEAR if (i + 1) % interval else FULL for i in range(count)]
    return layer_types(entries, (LINEAR, FULL), default)


def mixers(
    entries: Entries,
    weights: Weights,
    projections: Callable[[Entries, Weights, str], Projections] = Projections.read,
) -> Callable[[int, str], Mixer]:
    """Return a function that makes the mixer of a layer; `projections` reads those of a delta net."""
    if entries.flag("use_sliding_window", False):
        raise entries.wrong("use_sliding_window", "false")
    kinds = layer_kinds(entries)
    gated = entries.flag("attn_output_gate", True)

    def mixer(i: int, path: str) -> Mixer:
        if kinds[i] == FULL:
            return Attention(entries, weights, f"{path}.self_attn", head_norms=True, gated=gated)
        path = f"{path}.linear_attn"
        return DeltaNet(entries, weights, path, projections(entries, weights, path))

    return mixer
