"""What is measured of a device: operations at the sizes of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyturbo.bench.gpu.timing import Call
from pyturbo.bench.gpu.torch_peer import TorchPeer

Shape = tuple[int, int]  # [out, in]
Peer = Callable[[TorchPeer], float]


@dataclass(frozen=True)
class Goal:
    """What a case should reach; one of the figures.

    Attributes:
        us: Microseconds on an H200.
        read: A share of the speed at which the device reads.
        torch: At most the time of torch.
        like: A case whose bytes per second are to be reached to 80 %.
    """

    us: float | None = None
    read: float | None = None
    torch: bool = False
    like: str | None = None


@dataclass(frozen=True)
class Case:
    """An operation at one size.

    Attributes:
        name: Of the operation, with its sizes.
        call: Records it.
        flops: Floating-point operations, for those that are not bound by memory.
        peer: Returns the seconds that torch takes for the same.
        goal: What it should reach.
    """

    name: str
    call: Call
    flops: float = 0.0
    peer: Peer | None = None
    goal: Goal | None = None


@dataclass(frozen=True)
class Sizes:
    """The sizes of the cases: those of models of 8 to 35 billion parameters, and of one with latents.

    Attributes:
        reads: Bytes that are read in order. Small ones take a few microseconds, in which a device does not
            get up to speed: no product of that size can be faster.
        matrices: [out, in] of products with one token.
        few: Tokens of several conversations that are read together.
        prompt: Tokens of a chunk of a prompt.
        product: [out, in] of the products with these.
        hidden, inner, experts, chosen: Of experts.
        heads, kv_heads, dim: Of attention.
        latent_heads, rank, rope: Of latent attention.
        key_heads, value_heads, delta_dim: Of the delta net.
        contexts: Keys that one token attends to.
        prompt_context: Keys that a chunk attends to.
        vocab: Logits.
    """

    reads: tuple[int, ...] = (1 << 20, 1 << 23, 1 << 25)
    matrices: tuple[Shape, ...] = (
        (4096, 4096),
        (12288, 4096),
        (1024, 4096),
        (4096, 1024),
        (248_320, 4096),
    )
    few: tuple[int, ...] = (2, 8, 32)
    prompt: int = 512
    product: Shape = (4096, 4096)
    hidden: int = 2048
    inner: int = 512
    experts: int = 256
    chosen: int = 8
    heads: int = 16
    kv_heads: int = 2
    dim: int = 256
    latent_heads: int = 128
    rank: int = 512
    rope: int = 64
    key_heads: int = 16
    value_heads: int = 32
    delta_dim: int = 128
    contexts: tuple[int, ...] = (8192, 131_072)
    prompt_context: int = 8192
    vocab: int = 248_320


#: Small enough for a processor and for tests.
QUICK = Sizes(
    reads=(1 << 17,),
    matrices=((64, 512), (128, 256)),
    prompt=40,
    product=(64, 256),
    hidden=256,
    inner=64,
    experts=8,
    chosen=2,
    heads=4,
    kv_heads=2,
    dim=64,
    latent_heads=4,
    rank=128,
    rope=32,
    key_heads=2,
    value_heads=4,
    delta_dim=64,
    contexts=(128,),
    prompt_context=128,
    vocab=2048,
)
