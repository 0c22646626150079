"""The programs of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyturbo._arrays import Array
from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._program import Cursor, Program
from pyturbo._sampling import TopLogits
from pyturbo.engine.layout import Layout
from pyturbo.engine.onward import Begun, Onward, Rule
from pyturbo.engine.profile import Profile
from pyturbo.engine.top_memory import TopMemory, finds_top, top_memory
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat, Step, Steps
from pyturbo.layers.stream import Known, Stream
from pyturbo.recording import Extent, Recorder, SizeRecorder
from pyturbo.streaming.memory import ExpertMemory
from pyturbo.symbols import Part, symbol

#: The results of a program: logits of the last token, logits of all, the output of each layer, or the normed
#: state that logits are computed from.
Output = Literal["last", "all", "layers", "hidden"]

#: Estimated seconds of a launch with which a display may have to wait for a GPU.
LONGEST = 0.1


def scratch_bytes(
    device: Device, network: Decoder, kv: KvFormat, layout: Layout, limit: int, output: Output
) -> int:
    """Return the `scratch_bytes` of a graph, from a network whose weights need no memory."""
    limits = _limits(device, network, layout, limit, output)
    recorder = SizeRecorder(device, limits, blocks=("state",))
    _record(recorder, network, kv, layout, limit, output)
    return recorder.scratch_bytes


def _limits(device: Device, network: Decoder, layout: Layout, limit: int, output: Output) -> dict[str, int]:
    """Return the largest values of the symbols of a program."""
    goes_on = limit == 1 and output == "last" and finds_top(device, network)
    more = {"tokens": limit} if limit > 1 else Onward.SYMBOLS if goes_on else {}
    return {"position": layout.context} | more


def _record(
    recorder: Recorder, network: Decoder, kv: KvFormat, layout: Layout, limit: int, output: Output
) -> tuple[list[Any], TopMemory | Onward | None]:
    """Record a program; return the outputs that are not in the state, and where the largest logits are."""
    tokens: Extent = symbol("tokens") if limit > 1 else 1
    top: TopMemory | Onward | None = None
    with recorder:
        step = Step(tokens, symbol("position"), layout.tensors("state"), kv)
        with recorder.label("embed"):
            x = network.embedding.embed(step.state["tokens"].rows(step.position, tokens))
        stream, layers = record_layers(recorder, network, x, step, kept=output == "layers")
        with recorder.label("head"):
            if output == "last" and limit > 1:
                stream = Known(stream.total().rows(tokens - 1))
            h, _ = stream.normed(network.norm)
            if output == "hidden":
                return [h], top
            if output == "all":
                return [network.head.apply(h)], top
            if output == "last":
                with recorder.into(step.state["logits"]):
                    network.head.apply(h)
                top = _record_top(recorder, network, step, limit)
    return layers, top


def _record_top(recorder: Recorder, network: Decoder, step: Step, limit: int) -> TopMemory | Onward | None:
    """Record how the largest logits are found, where programs do that, and in a step the token after it."""
    logits = step.state["logits"]
    if limit > 1:
        top = top_memory(recorder.device, network)
        if top is not None:
            top.record(recorder, logits)
        return top
    if not finds_top(recorder.device, network):
        return None
    onward = Onward(recorder.device, network.vocab)
    onward.record(recorder, logits, step.state["tokens"].rows(step.position + 1))
    return onward


def record_layers(
    recorder: Recorder, network: Decoder, x: Any, step: Step | Steps, *, kept: bool = False
) -> tuple[Stream, list[Any]]:
    """Record all layers -> the stream after them, and the output of each if these are `kept`."""
    stream: Stream = Known(x)
    outputs = []
    for layer in network.layers:
        with recorder.label(layer.name.removeprefix("model.")):
            stream = layer(stream, step)
            if kept:
                outputs.append(stream.total())
                stream = Known(outputs[-1])
        recorder.pause()
    return stream, outputs


class Graph:
    """One recorded program of a network, for one token or for up to `limit`.

    The logits of a last token go to the state; other outputs, and the largest logits, stay in memory of the
    program, where the next replay overwrites them.
    """

    def __init__(
        self,
        device: Device,
        network: Decoder,
        kv: KvFormat,
        layout: Layout,
        limit: int,
        output: Output,
        slabs: Sequence[Array] = (),
    ) -> None:
        """Record the program. What lies in `slabs`, memory for experts, does not count as weights."""
        recorder = Recorder(device, _limits(device, network, layout, limit, output), blocks=("state",))
        self._single, self._context = limit == 1, layout.context
        #: Outputs, which keep their memory.
        self._kept, top = _record(recorder, network, kv, layout, limit, output)
        #: Where the largest logits are: those of a chunk, and those of a step.
        self._top: TopMemory | None = None if isinstance(top, Onward) else top
        self.onward: Onward | None = top if isinstance(top, Onward) else None
        self.program: Program = recorder.program
        self.scratch_bytes = recorder.scratch_bytes
        self.weight_bytes = recorder.constant_bytes - sum(recorder.constant_bytes_in(slab) for slab in slabs)

    def __repr__(self) -> str:
        return (
            f"Graph({self.program!r}, weight_bytes={self.weight_bytes}, scratch_bytes={self.scratch_bytes})"
        )

    def fitting(self, count: int, least: int, state: Buffer, position: int) -> int:
        """Return how many of `count` tokens to read at a position.

        They are the more the better, but no launch over more than `least` should hold the device for long.
        """
        while count > least:
            parts = self.parts(count, state, position)
            if max(part.seconds for part in parts) <= LONGEST:
                break
            count = max(least, count // 2)
        return count

    def parts(self, count: int, state: Buffer, position: int) -> list[Part]:
        """Return how the device would divide a replay that reads `count` tokens at a position."""
        return self.program.parts([state], **self._symbols(count, position))

    def run(self, count: int, state: Buffer, cursor: Cursor, wait: bool) -> list[NDArray[np.float32]]:
        """Read `count` tokens of the state at the cursor, and move it past them.

        Returns copies of the outputs kept here. Without `wait` a device may still be at work on return.
        """
        wait = wait or self._single or bool(self._kept)
        symbols = self._symbols(count, cursor)
        ahead: bool | dict[str, int] = self._single if self.onward is None else self.onward.begin()
        self.program.run([state], wait=wait, advance=count, ahead=ahead, **symbols)
        return self._copies(count)

    def begin(self, state: Buffer, cursor: Cursor, rule: Rule | None) -> Begun:
        """Begin to read the token at the cursor, and move it past that, in a program that goes `onward`.

        With a rule the token after it is chosen, if the state has room for that.
        """
        assert self.onward is not None
        rule = rule if cursor.position + 1 < self._context else None
        symbols, ahead = self.onward.symbols(rule), self.onward.begin(rule)
        self.program.run([state], wait=False, advance=1, ahead=ahead, position=cursor, **symbols)
        return self.onward.begun()

    def top(self) -> TopLogits | None:
        """Return the largest logits of the token that was read last, after a replay with `wait`.

        None if the host looks at all logits.
        """
        if self.onward is not None:
            return self.onward.last()
        return None if self._top is None else self._top.read(0)

    def profile(
        self,
        count: int,
        state: Buffer,
        cursor: Cursor,
        profile: Profile,
        experts: ExpertMemory | None,
    ) -> list[NDArray[np.float32]]:
        """Do the same, and add launches and reads of experts to a profile."""
        if experts is not None:
            experts.trace(True)
        try:
            symbols = self._symbols(count, cursor)
            if self.onward is not None:
                self.onward.begin()
            timed = self.program.timeline([state], advance=count, **symbols)
        finally:
            reads = [] if experts is None else experts.trace(False)
        profile.add(count, timed, self.program.listing(), self.program.loops(), reads)
        return self._copies(count)

    def _symbols(self, count: int, position: Cursor | int) -> dict[str, Any]:
        """Return the symbols of a replay that chooses no token."""
        if not self._single:
            return {"position": position, "tokens": count}
        return {"position": position} | ({} if self.onward is None else self.onward.symbols())

    def _copies(self, count: int) -> list[NDArray[np.float32]]:
        return [tensor.memory.view((count, tensor.shape[1])).read() for tensor in self._kept]
