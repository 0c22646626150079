"""The program of several conversations, which read a token each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo._device import Device
from pyturbo._program import Cursor, Program
from pyturbo._sampling import TopLogits
from pyturbo.engine.graph import record_layers
from pyturbo.engine.layout import Layout
from pyturbo.engine.state import State
from pyturbo.engine.top_memory import TopMemory, top_memory
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat, Member, Step, Steps
from pyturbo.recording import Recorder
from pyturbo.symbols import symbol


class BatchGraph:
    """One recorded program: a token each of conversations with these layouts, in their order.

    The tokens go through each linear layer and each expert together. Launches that use the state of a
    conversation are recorded for each, side by side.
    """

    def __init__(
        self,
        device: Device,
        network: Decoder,
        kv: KvFormat,
        layouts: Sequence[Layout],
        pause: Callable[[], None] | None = None,
    ) -> None:
        """Record the program. `pause` is called where that may wait."""
        names = [f"state{i}" for i in range(len(layouts))]
        self._positions = [f"position{i}" for i in range(len(layouts))]
        limits = {name: layout.context for name, layout in zip(self._positions, layouts)}
        recorder = Recorder(device, limits, blocks=names)
        recorder.pause = pause or recorder.pause
        self._top = _record(
            recorder,
            network,
            Steps(
                tuple(
                    Member(Step(1, symbol(position), layout.tensors(name), kv), i)
                    for i, (position, layout, name) in enumerate(zip(self._positions, layouts, names))
                ),
                len(layouts),
            ),
        )
        self.program: Program = recorder.program
        self.scratch_bytes = recorder.scratch_bytes

    def __repr__(self) -> str:
        return f"BatchGraph({self.program!r}, scratch_bytes={self.scratch_bytes})"

    def run(self, states: Sequence[State], cursors: Sequence[Cursor]) -> None:
        """Read the token of each state at its cursor, and move the cursors past them."""
        symbols: dict[str, Any] = dict(zip(self._positions, cursors))
        self.program.run([state.block for state in states], advance=1, ahead=True, **symbols)

    def top(self, i: int) -> TopLogits | None:
        """Return the largest logits of conversation i; None if the host looks at all logits."""
        return None if self._top is None else self._top.read(i)


def _record(recorder: Recorder, network: Decoder, steps: Steps) -> TopMemory | None:
    """Record the program; return where the largest logits are."""
    with recorder:
        with recorder.label("embed"):
            x = steps.each(lambda step: network.embedding.embed(step.state["tokens"].rows(step.position)))
        stream, _ = record_layers(recorder, network, x, steps)
        with recorder.label("head"):
            h, _ = stream.normed(network.norm)
            logits = network.head.apply(h)
            for i, member in enumerate(steps.members):
                with recorder.into(member.step.state["logits"]):
                    ops.gather_rows(logits, np.array([i], np.int32))
            top = top_memory(recorder.device, network, len(steps.members))
            if top is not None:
                top.record(recorder, logits)
    return top
