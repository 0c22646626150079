"""Networks of delta nets, with a layer of full attention at regular intervals."""

from __future__ import annotations

from collections.abc import Callable

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.attention import Attention
from pyturbo.layers.decoder import Mixer
from pyturbo.layers.delta_net import DeltaNet, Projections

_KINDS = ("linear_attention", "full_attention")


def layer_kinds(entries: Entries) -> list[str]:
    """Return the kind of each layer: as the configuration lists them, or full attention at each interval."""
    count = entries.count("num_hidden_layers")
    interval = entries.count("full_attention_interval", 4)
    default = [_KINDS[(i + 1) % interval == 0] for i in range(count)]
    kinds = entries.list_of("layer_types", str, default)
    if len(kinds) != count or not set(kinds) <= set(_KINDS):
        raise entries.wrong("layer_types", f"{count} of {' or '.join(_KINDS)}")
    return kinds


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
        if kinds[i] == "full_attention":
            return Attention(entries, weights, f"{path}.self_attn", head_norms=True, gated=gated)
        path = f"{path}.linear_attn"
        return DeltaNet(entries, weights, path, projections(entries, weights, path))

    return mixer
