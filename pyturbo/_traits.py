"""The strengths of a device, and its memory."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Traits(NamedTuple):
    """Properties of a kind of device by which the engine chooses programs; its native code states them.

    Traits decide how a model is run, not what it computes.

    Attributes:
        chunk: Tokens of a prompt per replay; `pyturbo.engine.chunks` makes it larger for some models.
            Interrupts are handled between replays.
        single: Prompts of at most this many tokens are read one token per replay.
        attention_blocks: Parts that the keys of a query are split into, at most. The number is fixed, so that
            one recorded launch serves every context.
        attention_groups: Threadgroups that fill the device, where each reads a part of the keys of a head of
            256 values: there are no more parts than these need, or of latents than twice as many need. 0
            where there are always as many. An opened NVIDIA GPU has as many as multiprocessors, one of Apple
            four times as many as cores.
        product_groups: Threadgroups of products with one token, of 128 threads that need few registers, that
            the device runs at once; 0 where this is not known.
        chunkwise_tokens: Fewest tokens for which the chunkwise delta net is faster than the recurrent one.
        pass_experts: Experts that are read from disk are computed as they arrive, at least so many at once if
            as many are still to come.
        bucket_tokens: Fewest tokens of a step of several conversations that are sorted by expert, so that
            each expert is read once; fewer are multiplied one by one. Rows of an expert that fill a tile.
        few_tokens: Most tokens of a product for which there is a kernel that reads the weights once for
            every 8 of them; 0 where fewer than 8 are multiplied one by one, and more in tiles.
        top_logits: How many of the largest logits a program finds for the host, which then seldom needs all
            of them; 0 where the host itself looks at all logits.
        fused: Whether programs use kernels that join several others, for fewer launches and
            waits. Where these take little time, the kernels that are joined are faster.
        host_memory: Host memory that kernels use in place: "any"; whole "pages", while other memory is
            copied; "none" on a device with memory of its own.
    """

    chunk: int
    single: int
    attention_blocks: int
    attention_groups: int
    product_groups: int
    chunkwise_tokens: int
    pass_experts: int
    bucket_tokens: int
    few_tokens: int
    top_logits: int
    fused: bool
    host_memory: Literal["any", "pages", "none"]


class DeviceMemory(NamedTuple):
    """Memory of a device, in bytes."""

    total: int
    free: int
