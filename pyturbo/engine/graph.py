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
from pyturbo.engine.profile import Profile
from pyturbo.engine.top_memory import TopMemory, top_memory
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat, Step, Steps
from pyturbo.layers.stream import Known, Stream
from pyturbo.recording import Extent, Recorder, SizeRecorder
from pyturbo.streaming.memory import ExpertMemory
from pyturbo.symbols import symbol

#: The results of a program: logits of the last token, logits of all, the output of each layer, or the normed
#: state that logits are computed from.
Output = Literal["last", "all", "layers", "hidden"]

#: Estimated seconds of a launch with which a display may have to wait for a GPU.
LONGEST = 0.1


def scratch_bytes(
    device: Device, network: Decoder, kv: KvFormat, layout: Layout, limit: int, output: Output
) -> int:
    """Return the `scratch_bytes` of a graph, from a network whose weights need no memory."""
    recorder = SizeRecorder(device, _limits(layout, limit), blocks=("state",))
    _record(recorder, network, kv, layout, limit, output)
    return recorder.scratch_bytes


def _limits(layout: Layout, limit: int) -> dict[str, int]:
    """Return the largest values of the symbols of a program."""
    return {"position": layout.context} | ({"tokens": limit} if limit > 1 else {})


def _record(
    recorder: Recorder, network: Decoder, kv: KvFormat, layout: Layout, limit: int, output: Output
) -> tuple[list[Any], TopMemory | None]:
    """Record a program; return the outputs that are not in the state, and where the largest logits are."""
    tokens: Extent = symbol("tokens") if limit > 1 else 1
    top = None
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
                top = top_memory(recorder.device, network)
                if top is not None:
                    top.record(recorder, step.state["logits"])
    return layers, top


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
        recorder = Recorder(device, _limits(layout, limit), blocks=("state",))
        self._single = limit == 1
        #: Outputs, which keep their memory.
        self._kept, self._top = _record(recorder, network, kv, layout, limit, output)
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
            parts = self.program.parts([state], position=position, tokens=count)
            if max(part.seconds for part in parts) <= LONGEST:
                break
            count = max(least, count // 2)
        return count

    def run(self, count: int, state: Buffer, cursor: Cursor, wait: bool) -> list[NDArray[np.float32]]:
        """Read `count` tokens of the state at the cursor, and move it past them.

        Returns copies of the outputs kept here. Without `wait` a device may still be at work on return.
        """
        wait = wait or bool(self._kept)
        symbols = self._symbols(count, cursor)
        self.program.run([state], wait=wait, advance=count, ahead=self._single, **symbols)
        return self._copies(count)

    def top(self) -> TopLogits | None:
        """Return the largest logits of the token that was read last, after a replay with `wait`.

        None if the host looks at all logits.
        """
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
            timed = self.program.timeline([state], advance=count, **symbols)
        finally:
            reads = [] if experts is None else experts.trace(False)
        profile.add(count, timed, self.program.listing(), self.program.loops(), reads)
        return self._copies(count)

    def _symbols(self, count: int, cursor: Cursor) -> dict[str, Any]:
        return {"position": cursor} if self._single else {"position": cursor, "tokens": count}

    def _copies(self, count: int) -> list[NDArray[np.float32]]:
        return [tensor.memory.view((count, tensor.shape[1])).read() for tensor in self._kept]
