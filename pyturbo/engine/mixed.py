"""The program of many conversations, of which each replay takes some: steps, and pieces of prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pyturbo import ops
from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._program import Cursor, Program
from pyturbo._sampling import TopLogits
from pyturbo.engine.graph import record_layers
from pyturbo.engine.layout import Layout
from pyturbo.engine.state import State
from pyturbo.engine.top_memory import TopMemory, top_memory
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat, Member, Step, Steps
from pyturbo.layers.stream import Known, Stream
from pyturbo.recording import Recorder, Strand
from pyturbo.symbols import symbol


class Room(NamedTuple):
    """Places of a replay: `steps` for one token each, and `prompts` for up to `piece` tokens each."""

    steps: int
    prompts: int
    piece: int

    @property
    def conversations(self) -> int:
        return self.steps + self.prompts


class Reading(NamedTuple):
    """Tokens that a conversation reads at its cursor."""

    state: State
    cursor: Cursor
    tokens: int
    ends: bool  # whether somebody wants the logits of the last one


class MixedGraph:
    """One recorded program for conversations of one layout.

    All tokens go through each linear layer and each expert together. Launches that use the state of a
    conversation are recorded for each place that the program has; replays leave out those of empty places.
    """

    def __init__(
        self,
        device: Device,
        network: Decoder,
        kv: KvFormat,
        layout: Layout,
        room: Room,
        pause: Callable[[], None] | None = None,
    ) -> None:
        """Record the program. `pause` is called where that may wait."""
        self._room, count = room, room.conversations
        names = [f"state{i}" for i in range(count)]
        limits = {"tokens": room.steps + room.prompts * room.piece, "heads": count}
        for i in range(count):
            prompt = i >= room.steps
            limits |= {f"position{i}": layout.context, f"reads{i}": room.piece if prompt else 1}
            if prompt:
                limits |= {f"row{i}": limits["tokens"], f"head{i}": count, f"ends{i}": 1}
        self._zeros = dict.fromkeys(limits, 0)
        recorder = Recorder(device, limits, blocks=names)
        recorder.pause = pause or recorder.pause
        members = [_member(i, layout.tensors(name), kv, room) for i, name in enumerate(names)]
        self._top = _record(recorder, network, Steps(tuple(members), symbol("tokens")))
        self._heads: list[int] = []  # rows of the logits of the last replay
        self.program: Program = recorder.program
        self.scratch_bytes = recorder.scratch_bytes

    def __repr__(self) -> str:
        return f"MixedGraph({self.program!r}, scratch_bytes={self.scratch_bytes})"

    def run(self, readings: Sequence[Reading]) -> None:
        """Read the tokens of each state at its cursor, and move the cursors past them.

        Single tokens come first, then pieces of prompts, in numbers that there is room for.
        """
        symbols: dict[str, Any] = {**self._zeros}
        blocks: list[Buffer | None] = [None] * self._room.conversations
        advance, self._heads = {}, []
        singles = sum(reading.tokens == 1 for reading in readings)
        for number, (state, cursor, tokens, ends) in enumerate(readings):
            i = number  # the place in the program
            if tokens > 1:
                i = self._room.steps + number - singles
                symbols |= {f"row{i}": symbols["tokens"], f"head{i}": symbols["heads"], f"ends{i}": ends}
            symbols |= {f"position{i}": cursor, f"reads{i}": tokens}
            advance[f"position{i}"], blocks[i] = tokens, state.block
            self._heads.append(symbols["heads"])
            symbols["tokens"] += tokens
            symbols["heads"] += ends
        ahead = symbols["tokens"] == len(readings)
        self.program.run(blocks, advance=advance, ahead=ahead, **symbols)

    def top(self, i: int) -> TopLogits | None:
        """Return the largest logits of reading i, which ended; None if the host looks at all logits."""
        return None if self._top is None else self._top.read(self._heads[i])


def _member(i: int, tensors: Any, kv: KvFormat, room: Room) -> Member:
    """Return place i of a program."""
    position, reads = symbol(f"position{i}"), f"reads{i}"
    if i < room.steps:
        return Member(Step(1, position, tensors, kv), i, reads)
    return Member(Step(symbol(reads), position, tensors, kv), symbol(f"row{i}"), reads)


def _record(recorder: Recorder, network: Decoder, steps: Steps) -> TopMemory | None:
    """Record the program; return where the largest logits are."""
    with recorder:
        with recorder.label("embed"):
            x = steps.each(
                lambda step: network.embedding.embed(step.state["tokens"].rows(step.position, step.tokens))
            )
        stream, _ = record_layers(recorder, network, x, steps)
        with recorder.label("head"), recorder.when("heads"):
            if not steps.single:
                stream = _last_rows(recorder, stream, steps)
            h, _ = stream.normed(network.norm)
            logits = network.head.apply(h)
            top = top_memory(recorder.device, network, len(steps.members), logits.shape[0])
            if top is not None:
                top.record(recorder, logits)
        with recorder.label("head"):
            for i, member in enumerate(steps.members):
                head, ends = _head(i, member)
                with recorder.when(ends), recorder.into(member.step.state["logits"]):
                    _copied(logits.rows(head))
    return top


def _head(i: int, member: Member) -> tuple[Any, str | None]:
    """Return the row of the logits of place i, and the symbol that is 0 if it has none."""
    return (i, member.when) if member.step.single else (symbol(f"head{i}"), f"ends{i}")


def _last_rows(recorder: Recorder, stream: Stream, steps: Steps) -> Stream:
    """Record the rows of those tokens whose logits are wanted."""
    with recorder.when(None):
        x = stream.total()
    strands = []
    for i, member in enumerate(steps.members):
        head, ends = _head(i, member)
        row = x.rows(member.first + member.step.tokens - 1)
        strands.append(Strand(partial(_copied, row), head, 1, ends))
    return Known(recorder.stack(strands, symbol("heads")))


def _copied(row: Any) -> Any:
    return ops.gather_rows(row, np.zeros(1, np.int32))
