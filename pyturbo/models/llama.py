"""Llama and the models that share its shape."""

from __future__ import annotations

from pyturbo.checkpoint import Checkpoint
from pyturbo.models._config import Entries
from pyturbo.models._decoder import Attention, Decoder, Layer, Mlp


def build(checkpoint: Checkpoint, head_norms: bool = False) -> Decoder:
    entries, weights = Entries(checkpoint), checkpoint.weights()
    hidden, heads = entries.count("hidden_size"), entries.count("num_attention_heads")
    kv_heads = entries.count("num_key_value_heads", heads)
    dim = entries.count("head_dim", hidden // heads)
    eps, inner = entries.number("rms_norm_eps"), entries.count("intermediate_size")
    inv_freq = entries.rope(dim)
    network = Decoder(weights, hidden, entries.count("vocab_size"), eps)
    for i in range(entries.count("num_hidden_layers")):
        path = f"model.layers.{i}"
        attention = Attention(weights, f"{path}.self_attn", hidden, heads, kv_heads, dim, inv_freq)
        if head_norms:
            attention.normalize(weights, eps)
        mlp = Mlp(weights, f"{path}.mlp", hidden, inner)
        network.layers.append(Layer(weights, path, hidden, eps, attention, mlp))
    return network
