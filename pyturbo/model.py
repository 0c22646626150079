"""A model on a device, and its conversations."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import models, session_file
from pyturbo._native import Buffer, Device, device_list
from pyturbo._program import Program
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.models._decoder import Piece, Step, embed
from pyturbo.recording import Extent, Recorder, Tensor
from pyturbo.symbols import Place, symbol

#: Element type of the key and value caches by the name a user gives.
KV_TYPES = {"f32": np.float32, "f16": np.float16}

#: Tokens of one replay while a prompt is read.
CHUNK = 128

_ALIGNMENT = 256  # of each piece of a conversation's state


def load(
    path: str | PathLike[str],
    device: Device | str | None = None,
    kv: str = "f16",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Model:
    """The model of a checkpoint: a directory of safetensors, or a GGUF file.

    Weights are mapped where the file allows it; `progress` is called with the bytes read of the others.
    """
    if kv not in KV_TYPES:
        raise ArgumentError(f"load: kv: expected one of {', '.join(KV_TYPES)}, got {kv!r}")
    if not isinstance(device, Device):
        device = Device(device_list()[0] if device is None else device, threads=threads)
    with open_checkpoint(path) as checkpoint:
        return Model(checkpoint.config, models.build(checkpoint, progress), device, kv)


class Layout:
    """Where each piece of a conversation's state lies in its one block of memory."""

    def __init__(self, pieces: dict[str, Piece]) -> None:
        self.pieces: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        self.nbytes = 0
        for name, (shape, dtype) in pieces.items():
            self.pieces[name] = (self.nbytes, shape, np.dtype(dtype))
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT

    def tensors(self) -> dict[str, Tensor]:
        return {
            name: Tensor(Place("state", offset, math.prod(shape) * dtype.itemsize, dtype), shape, dtype)
            for name, (offset, shape, dtype) in self.pieces.items()
        }


class Graph:
    """One recorded program of a model, with the memory it takes tokens from and leaves logits in.

    Holding the result of the recording keeps its memory from being used again.
    """

    def __init__(self, model: Model, context: int, limit: int, every: bool) -> None:
        """For one token, or for up to `limit`; the logits of every token, or of the last."""
        device, network = model.device, model.network
        self.limit = limit
        self.ids = device.empty(limit, np.int32)
        tokens: Extent = symbol("tokens") if limit > 1 else 1
        names = {"position": context, "tokens": limit} if limit > 1 else {"position": context}
        layout = Layout(network.state(context, KV_TYPES[model.kv]))
        with Recorder(device, names, blocks=("state",)) as recorder:
            step = Step(tokens, symbol("position"), layout.tensors())
            with recorder.label("embed"):
                x = embed(network.embedding, Tensor(self.ids, (tokens,), np.int32))
            for layer in network.layers:
                with recorder.label(layer.name):
                    x = layer(x, step)
            with recorder.label("head"):
                self._result = network.logits(x if every else x.rows(tokens - 1))
        self.program: Program = recorder.program
        rows = (limit if every else 1, network.vocab)
        self.logits: NDArray[np.float32] = self._result.memory.view(rows).numpy()

    def run(self, ids: NDArray[np.int32], state: Buffer, position: int) -> NDArray[np.float32]:
        self.ids.numpy()[: len(ids)] = ids
        symbols = {"position": position, "tokens": len(ids)} if self.limit > 1 else {"position": position}
        self.program.run([state], **symbols)
        return self.logits


class Model:
    """Weights and recorded programs, shared by any number of sessions. One replay at a time."""

    def __init__(self, config: dict[str, Any], network: Any, device: Device, kv: str) -> None:
        self.config, self.network, self.device, self.kv = config, network, device, kv
        self._graphs: dict[tuple[int, int, bool], Graph] = {}

    @property
    def max_context(self) -> int:
        """The most tokens a conversation can have."""
        return int(self.network.context)

    def session(self, context: int | None = None) -> Session:
        """A conversation with room for `context` tokens."""
        context = min(4096, self.max_context) if context is None else context
        if not 1 <= context <= self.max_context:
            raise ArgumentError(f"session: context: expected 1 to {self.max_context}, got {context}")
        return Session(self, context)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this model from others: its configuration, and the weights of all its norms."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        for norm in self.network.norms():
            digest.update(np.ascontiguousarray(norm).view(np.uint8).data)
        return digest.hexdigest()

    def restore(self, path: str | PathLike[str]) -> Session:
        """The conversation that :meth:`Session.save` wrote, exact to the byte."""
        place = Path(path)
        header, state = session_file.read(place, {"model": self.fingerprint, "kv": self.kv})
        context, position = header.get("context"), header.get("position")
        if not isinstance(context, int) or not isinstance(position, int) or not 0 <= position <= context:
            raise FormatError(f"{place}: expected a position within its context, got {position} of {context}")
        session = self.session(context)
        if state.nbytes != session.nbytes:
            raise FormatError(f"{place}: state: expected {session.nbytes} bytes, got {state.nbytes}")
        session.position = position
        session._block.numpy()[...] = state
        return session

    def logits(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """The logits of every position, from a fresh state: float32 [tokens, vocab]."""
        ids = self.check_ids(token_ids)
        session = self.session(len(ids))
        return np.concatenate([rows.copy() for rows in session.advance(ids, every=True)])

    def check_ids(self, token_ids: ArrayLike) -> NDArray[np.int32]:
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise ArgumentError(f"token_ids: expected a list of integers, got {ids.dtype} {list(ids.shape)}")
        if ids.min() < 0 or ids.max() >= self.network.vocab:
            wrong = ids[(ids < 0) | (ids >= self.network.vocab)][0]
            raise ArgumentError(f"token_ids: expected 0 to {self.network.vocab - 1}, got {wrong}")
        return ids.astype(np.int32)

    def graph(self, context: int, tokens: int, every: bool) -> Graph:
        """The program for one token or for a chunk of them; each is recorded once."""
        limit = 1 if tokens == 1 and not every else CHUNK
        key = (context, limit, every)
        if key not in self._graphs:
            self._graphs[key] = Graph(self, context, limit, every)
        return self._graphs[key]


class Session:
    """One conversation: a position, and one block of memory with all that the model remembers."""

    def __init__(self, model: Model, context: int) -> None:
        self.model, self.context, self.position = model, context, 0
        self._layout = Layout(model.network.state(context, KV_TYPES[model.kv]))
        self._block = model.device.empty(self._layout.nbytes, np.uint8)

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Views of every piece of the state."""
        return {
            name: self._block.view(shape, dtype, offset=offset).numpy()
            for name, (offset, shape, dtype) in self._layout.pieces.items()
        }

    def prefill(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Reads tokens; the logits of the last one, float32 [vocab], valid until the next call."""
        *_, last = self.advance(self.model.check_ids(token_ids), every=False)
        logits: NDArray[np.float32] = last[0]
        return logits

    def step(self, token_id: int) -> NDArray[np.float32]:
        """Reads one token; its logits, valid until the next call."""
        return self.prefill([token_id])

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self._layout.nbytes

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the conversation to a file; :meth:`Model.restore` reads it."""
        header = {
            "model": self.model.fingerprint,
            "kv": self.model.kv,
            "context": self.context,
            "position": self.position,
        }
        session_file.write(Path(path), header, self._block.numpy())

    def fork(self) -> Session:
        """An independent copy at this position."""
        other = Session(self.model, self.context)
        other.position = self.position
        other._block.numpy()[...] = self._block.numpy()
        return other

    def advance(self, ids: NDArray[np.int32], every: bool) -> Iterator[NDArray[np.float32]]:
        """The logits of each chunk: of all its tokens, or of its last. Without room nothing changes."""
        if self.position + len(ids) > self.context:
            raise ArgumentError(
                f"context: expected at most {self.context} tokens, got {self.position} and {len(ids)} more"
            )
        for chunk in _chunks(ids):
            graph = self.model.graph(self.context, len(chunk), every)
            rows = graph.run(chunk, self._block, self.position)
            self.position += len(chunk)
            yield rows[: len(chunk)] if every else rows


def _chunks(ids: NDArray[np.int32]) -> Sequence[NDArray[np.int32]]:
    return [ids[begin : begin + CHUNK] for begin in range(0, len(ids), CHUNK)]
