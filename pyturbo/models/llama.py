"""Llama, and models of the same structure."""

from __future__ import annotations

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.checkpoint.file_layout import FileLayout, Gguf
from pyturbo.layers.attention import Attention
from pyturbo.layers.decoder import Decoder, Mlp
from pyturbo.layers.windows import upper_windows
from pyturbo.models import mixtral

LAYOUT = FileLayout(gguf=Gguf(names=mixtral.GGUF_NAMES))


def build(
    entries: Entries, weights: Weights, *, head_norms: bool = False, head_bias: bool | None = False
) -> Decoder:
    if "num_local_experts" in entries:
        return mixtral.build(entries, weights)  # GGUF files of Mixtral are called llama
    hidden, inner = entries.count("hidden_size"), entries.count("intermediate_size")
    windows = upper_windows(entries)
    return Decoder(
        entries,
        weights,
        mixer=lambda i, path: Attention(
            entries, weights, f"{path}.self_attn", head_norms=head_norms, window=windows[i]
        ),
        mlp=lambda i, path: Mlp(weights, f"{path}.mlp", hidden, inner),
        head_bias=head_bias,
    )
