"""The chunk size of a prompt: what a device reads well, and what a model gains from more.

Where a launch over a whole chunk would run too long, `Graph.fitting` reads a smaller one, of at least
`least_chunk` tokens.
"""

from __future__ import annotations

import math
from typing import Any

from pyturbo._device import Device
from pyturbo._traits import Traits
from pyturbo.engine.graph import scratch_bytes
from pyturbo.engine.layout import Layout
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat

#: Chunks are twice as large, up to this many tokens, if experts are streamed: each is read once for a chunk.
_LARGEST_STREAMED = 1024

#: Chunks are made larger for the sake of experts up to this many tokens.
_LARGEST_OF_EXPERTS = 2048

#: The part of a working set that results between the launches of a larger chunk may take.
_SHARE = 1 / 32


def reading_traits(network: Decoder, device: Device, kv: KvFormat, *, streamed: bool) -> Traits:
    """Return the traits of a device, with chunks of the size for a model that streams its experts or not.

    Larger chunks have the same results, but for compressed keys and values: those of a chunk are compressed
    after it.
    """
    traits = device.traits
    if kv.codec is not None:
        return traits
    chunk = max(_filling(network, traits), least_chunk(traits, streamed=streamed))
    while chunk > traits.chunk and not _has_room(network, device, kv, chunk):
        chunk -= traits.chunk
    return traits._replace(chunk=chunk)


def least_chunk(traits: Traits, *, streamed: bool) -> int:
    """Return how many tokens are read at once wherever there are as many, if there is room for them."""
    return max(traits.chunk, min(2 * traits.chunk, _LARGEST_STREAMED)) if streamed else traits.chunk


def _filling(network: Decoder, traits: Traits) -> int:
    """Return the chunk, a multiple of the device's, of which each expert has half a bucket's worth of rows.

    With more, an expert's rows often lie in one tile more, so that tiles are hardly fuller.
    """
    sparse: list[Any] = [layer.mlp for layer in network.layers if hasattr(layer.mlp, "experts")]
    rows = traits.bucket_tokens / 2
    tokens = max((rows * mlp.experts.count / mlp.k for mlp in sparse), default=0)
    return min(math.ceil(tokens / traits.chunk) * traits.chunk, _LARGEST_OF_EXPERTS)


def _has_room(network: Decoder, device: Device, kv: KvFormat, chunk: int) -> bool:
    if device.working_set is None:
        return True
    layout = Layout.of(network, min(chunk, network.context), chunk, kv)
    return scratch_bytes(device, network, kv, layout, chunk, "last") <= device.working_set * _SHARE
