"""A model's programs, and where the state of a conversation lies in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyturbo._native import Buffer
from pyturbo._program import Cursor, Program
from pyturbo.models._decoder import Piece, Step, apply, embed
from pyturbo.profile import Profile
from pyturbo.recording import Extent, Recorder, Tensor
from pyturbo.symbols import Place, symbol

if TYPE_CHECKING:
    from pyturbo.model import Model

#: Element type of the key and value caches by the name a user gives.
KV_TYPES = {"f32": np.float32, "f16": np.float16}

#: Tokens of one replay while a prompt is read.
CHUNK = 128

#: What a program leaves behind: logits of the last token, logits of all, or what leaves each layer.
Output = Literal["last", "all", "layers"]

_ALIGNMENT = 256  # of each piece of a conversation's state


class Layout:
    """Where each piece of a conversation's state lies in its one block of memory."""

    def __init__(self, pieces: dict[str, Piece]) -> None:
        self.pieces: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        self.nbytes = 0
        for name, (shape, dtype) in pieces.items():
            self.pieces[name] = (self.nbytes, shape, np.dtype(dtype))
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT

    @staticmethod
    def of(model: Model, context: int) -> Layout:
        """What the layers keep for so many tokens, and the tokens themselves."""
        pieces: dict[str, Piece] = {"tokens": ((context,), np.int32)}
        return Layout(pieces | model.network.state(context, KV_TYPES[model.kv]))

    def tensors(self) -> dict[str, Tensor]:
        return {
            name: Tensor(Place("state", offset, math.prod(shape) * dtype.itemsize, dtype), shape, dtype)
            for name, (offset, shape, dtype) in self.pieces.items()
        }

    def views(self, block: Buffer) -> dict[str, NDArray[Any]]:
        return {
            name: block.view(shape, dtype, offset=offset).numpy()
            for name, (offset, shape, dtype) in self.pieces.items()
        }


class Graph:
    """One recorded program of a model, for one token or for up to `limit`.

    The logits of a last token go to memory that each replay brings; other outputs stay in memory of the
    program, where the next replay overwrites them.
    """

    def __init__(self, model: Model, context: int, limit: int, output: Output) -> None:
        device, network = model.device, model.network
        tokens: Extent = symbol("tokens") if limit > 1 else 1
        names = {"position": context, "tokens": limit} if limit > 1 else {"position": context}
        blocks = ("state", "logits") if output == "last" else ("state",)
        with Recorder(device, names, blocks) as recorder:
            step = Step(tokens, symbol("position"), Layout.of(model, context).tensors())
            with recorder.label("embed"):
                x = embed(network.embedding, step.state["tokens"].rows(step.position, tokens))
            layers = []
            for layer in network.layers:
                with recorder.label(layer.name.removeprefix("model.")):
                    x = layer(x, step)
                if output == "layers":
                    layers.append(x)
            with recorder.label("head"):
                h = network.final_norm(x.rows(tokens - 1) if output == "last" else x)
                logits = apply(network.head, h) if output == "all" else None
                if output == "last":
                    place = Place("logits", 0, network.vocab * 4, np.float32)
                    with recorder.into(Tensor(place, (1, network.vocab), np.float32)):
                        apply(network.head, h)
        self.program: Program = recorder.program
        self.scratch_bytes, self.weight_bytes = recorder.scratch_bytes, recorder.constant_bytes
        self._kept = layers if logits is None else [logits]  # holding a tensor keeps its memory
        self._outputs: list[NDArray[np.float32]] = [
            tensor.memory.view((limit, tensor.shape[1])).numpy() for tensor in self._kept
        ]

    def run(
        self, count: int, blocks: list[Buffer], cursor: Cursor, wait: bool, profile: Profile | None = None
    ) -> list[NDArray[np.float32]]:
        """Reads `count` tokens of the state at the cursor, which moves behind them; copies of the outputs kept here.

        Without `wait` a device may still be at work when this returns.
        """
        symbols = {"position": cursor.position, "tokens": count}
        symbols = {name: symbols[name] for name in self.program.symbols}
        if profile is None:
            wait = wait or bool(self._outputs)
            self.program.run(blocks, wait=wait, cursor=cursor, advance=count, **symbols)
        else:
            profile.add(self.program.profile(blocks, cursor=cursor, advance=count, **symbols))
        return [output[:count].copy() for output in self._outputs]
