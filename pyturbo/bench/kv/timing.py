"""Time attention of one token by context and by format of keys and values.

The time is that of the launches that a decode step records: rotations, attention, and appending the new rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._program import Program
from pyturbo.engine.layout import Layout
from pyturbo.layers.head_inputs import HeadInputs
from pyturbo.layers.step import KvFormat, KvHeads, KvLatents, Piece, Step
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol

CONTEXTS = (1024, 8192, 32768)


@dataclass(frozen=True)
class Shape:
    """Attention with keys and values of their own for some of the heads."""

    heads: int
    kv_heads: int
    dim: int

    def __str__(self) -> str:
        return f"{self.heads} heads, {self.kv_heads} for keys, dim {self.dim}"

    @property
    def _cached(self) -> KvHeads:
        return KvHeads("layer", self.kv_heads, self.dim, biased=False)

    def state(self, kv: KvFormat, context: int) -> dict[str, Piece]:
        return kv.state(self._cached, context, chunk=1)

    def attend(self, device: Device, kv: KvFormat, step: Step) -> None:
        q, k, v = (_vectors(device, count, self.dim) for count in (self.heads, *2 * (self.kv_heads,)))
        kv.attend(self._cached, step, HeadInputs(q, k, v, step.position), self.dim**-0.5)


@dataclass(frozen=True)
class LatentShape:
    """Latent attention: all heads share one row."""

    heads: int
    rank: int
    rope: int

    def __str__(self) -> str:
        return f"{self.heads} heads, latents of {self.rank} and {self.rope}"

    @property
    def _cached(self) -> KvLatents:
        return KvLatents("layer", self.rank, self.rope)

    def state(self, kv: KvFormat, context: int) -> dict[str, Piece]:
        return kv.latent_state(self._cached, context)

    def attend(self, device: Device, kv: KvFormat, step: Step) -> None:
        q, q_rope = (_vectors(device, self.heads, dim) for dim in (self.rank, self.rope))
        latent, rope_key = (_vectors(device, 1, dim).reshape(1, dim) for dim in (self.rank, self.rope))
        kv.attend_latents(self._cached, step, q, q_rope, latent, rope_key, self.rank**-0.5)


SHAPES = (Shape(16, 2, 256), Shape(32, 8, 128), LatentShape(128, 512, 64))


@dataclass(frozen=True)
class Timing:
    """The best of several runs."""

    shape: Shape | LatentShape
    context: int
    kv: str
    microseconds: float


def measure(
    device: Device,
    formats: Sequence[KvFormat],
    contexts: Sequence[int] = CONTEXTS,
    repeats: int = 15,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Timing]:
    """Time the formats in turns, so that other load on the machine affects all of them."""
    timings = []
    for shape in SHAPES:
        for context in contexts:
            tell(f"{shape}: {context} tokens")
            works = [_decode(device, shape, context, kv) for kv in formats]
            rounds = [[_seconds(*work, context - 1) for work in works] for _ in range(repeats)]
            for kv, seconds in zip(formats, zip(*rounds)):
                timings.append(Timing(shape, context, kv.name, 1e6 * min(seconds)))
    return timings


def _decode(device: Device, shape: Shape | LatentShape, context: int, kv: KvFormat) -> tuple[Program, Buffer]:
    """Record the program of one layer, and fill a cache with random vectors."""
    layout = Layout(context, shape.state(kv, context))
    rng = np.random.default_rng(0)
    block = device.empty(layout.nbytes, np.uint8)
    for name, (_, size, dtype) in layout.pieces.items():
        codes = dtype == np.uint32
        values = rng.integers(0, 2**32, size, np.uint32) if codes else rng.standard_normal(size, np.float32)
        if name.endswith("recent_keys"):  # the tokens before the last one have their exact rows
            tokens = np.arange(max(0, context - 1 - size[0]), context - 1)
            values[tokens % size[0]] = tokens
        layout.piece(block, name).write(values)
    with Recorder(device, {"position": context}, blocks=("state",)) as recorder:
        step = Step(1, symbol("position"), layout.tensors("state"), kv)
        shape.attend(device, kv, step)
    return recorder.program, block


def _vectors(device: Device, heads: int, dim: int) -> Tensor:
    memory = device.empty((1, heads, dim))
    memory.write(np.random.default_rng(heads).standard_normal(memory.shape))
    return Tensor(memory, memory.shape, np.float32)


def _seconds(program: Program, block: Buffer, position: int) -> float:
    begin = time.perf_counter()
    program.run([block], position=position)
    return time.perf_counter() - begin
