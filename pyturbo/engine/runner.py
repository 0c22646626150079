"""A network on a device: what all sessions of a model share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._fork import open_in_children
from pyturbo._messages import shown
from pyturbo.checkpoint.origin import Origin
from pyturbo.engine.batch import BatchGraph
from pyturbo.engine.budget import Budget
from pyturbo.engine.chunks import least_chunk, reading_traits
from pyturbo.engine.graph import Graph, Output, scratch_bytes
from pyturbo.engine.layout import Layout
from pyturbo.engine.mixed import MixedGraph, Room
from pyturbo.errors import AllocationError, ArgumentError, StateError
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.step import KvFormat
from pyturbo.streaming import ExpertMemory, ExpertUse, StreamedExperts

#: Programs that are kept of one conversation, of several, and of many; each has its own scratch memory.
MAX_GRAPHS, MAX_BATCHES, MAX_MIXED = 8, 32, 8

#: Programs of several and of many whose size is known.
MAX_SIZES = 256

#: Conversations that the smallest program of many has room for. Products of fewer tokens have other kernels.
MANY = 8

#: Prompts that a program of many reads a piece of, and the most tokens of a piece. Longer ones gain nothing.
PROMPTS, PIECE = 8, 64

_SCRATCH = "results between launches"

_G = TypeVar("_G", Graph, BatchGraph, MixedGraph)


class _Owner:
    """Stands for results that are being collected."""


def conversation_bytes(
    network: Decoder, device: Device, kv: KvFormat, context: int, *, streamed: bool
) -> int:
    """Return the memory of a conversation with its programs: for a token, and for a chunk of a prompt.

    The weights of the network need no memory.
    """
    chunk = reading_traits(network, device, kv, streamed=streamed).chunk
    layout = Layout.of(network, min(context, network.context), chunk, kv)
    scratch = (scratch_bytes(device, network, kv, layout, limit, "last") for limit in {1, chunk})
    return layout.nbytes + sum(scratch)


class Runner:
    """A network, its device, and the programs recorded for it, which sessions replay.

    Programs share scratch memory, so one thread at a time holds a program. After `close`, asking for one is a
    StateError.

    Attributes:
        device: Where the programs run.
        kv: How keys and values are kept.
        origin: The files that the weights come from.
        budget: The memory that the model may take; None if nothing limits it.
        expert_memory: Where the experts of a packed checkpoint are used from; None for others, or if closed.
        traits: What the device is good at: how programs read tokens.
        least_chunk: Tokens of a prompt that are read at once wherever there are as many.
    """

    def __init__(
        self,
        network: Decoder,
        device: Device,
        kv: KvFormat,
        origin: Origin,
        budget: Budget | None = None,
        expert_memory: ExpertMemory | None = None,
    ) -> None:
        Layout.of(network, 1, 1, kv)  # refuses what these layers cannot keep that way
        self.device, self.kv, self.origin, self.budget = device, kv, origin, budget
        #: Counts states and programs; None if they are in memory of the device, which is limited by itself.
        self._counts = budget if device.memory is None else None
        self.expert_memory = expert_memory or self.experts
        streamed = budget is not None and budget.experts is not None
        self.traits = reading_traits(network, device, kv, streamed=streamed)
        self.least_chunk = min(least_chunk(device.traits, streamed=streamed), self.traits.chunk)
        #: Reentrant: a signal handler may close the model while its thread records or replays.
        self._lock = open_in_children(threading.RLock)
        self._network: Decoder | None = network
        #: Programs of one conversation, of several and of many; the one used last is at the end.
        self._graphs: dict[tuple[int, int, Output], Graph] = {}
        self._batches: dict[tuple[int, ...], BatchGraph] = {}
        self._mixed: dict[tuple[int, Room], MixedGraph] = {}
        #: Bytes of programs of several conversations and of many: none is recorded in vain again.
        self._sizes: dict[Any, int] = {}
        #: Bytes of the programs of a conversation by its context.
        self._program_bytes: dict[int, int] = {}

    @property
    def network(self) -> Decoder:
        """The layers, with their weights."""
        if self._network is None:
            raise StateError("the model is closed")
        return self._network

    @property
    def experts(self) -> StreamedExperts | None:
        """The experts that are read when they are needed; None if all weights are in memory."""
        return None if self.budget is None else self.budget.experts

    def expert_use(self, before: ExpertUse | None = None) -> ExpertUse | None:
        """Return how often experts were needed since `before`; None if all weights are in memory."""
        if self.experts is None:
            return None
        return self.experts.use if before is None else self.experts.use - before

    def require_open(self) -> None:
        """Raise a StateError if the model is closed."""
        self.network  # noqa: B018

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._network is None

    def close(self) -> None:
        """Give back programs, weights and files, once a replay of another thread is over."""
        with self._lock:
            self._network = self.expert_memory = None
            self._graphs.clear()
            self._batches.clear()
            self._mixed.clear()
            try:
                if self.budget is not None:
                    self.budget.close()
            finally:
                self.origin.close()

    def context_for(self, tokens: int) -> int:
        """Return a context for `tokens` tokens: one of few sizes, since each has programs of its own."""
        return min(max(512, 1 << (tokens - 1).bit_length()), self.network.context)

    def layout(self, context: int) -> Layout:
        """Lay out the state of a conversation of up to `context` tokens."""
        return Layout.of(self.network, context, self.traits.chunk, self.kv)

    def allocate(self, layout: Layout) -> Buffer:
        """Return memory for a conversation."""
        block = layout.allocate(self.device)  # takes no memory before it is written to
        if self._counts is not None:
            with self._lock:
                self.require_open()
                self._take(self._counts, "context", layout.nbytes, block)
        return block

    @contextmanager
    def room(self, what: str, nbytes: int) -> Iterator[None]:
        """Have memory for results, which messages call `what`, while they are collected."""
        if self.budget is None:
            yield
            return
        owner = _Owner()
        with self._lock:
            self.require_open()
            self._take(self.budget, what, nbytes, owner)
        yield

    def count(self, what: str, nbytes: int, owner: Any) -> None:
        """Count memory of the host, which messages call `what`, for as long as `owner` lives."""
        if self.budget is not None:
            with self._lock:
                self.require_open()
                self.budget.take(what, nbytes, owner)

    def require_room(self, context: int) -> None:
        """Raise an AllocationError if there is no memory for a conversation of that many tokens.

        Its programs are recorded, and stay.
        """
        with self._lock:
            block = self.allocate(self.layout(context))
            self.record(context)
            del block
            if self.budget is not None:
                self.budget.share()

    def record(self, context: int) -> None:
        """Record the programs for a conversation of that many tokens."""
        for tokens in (1, self.traits.chunk):
            with self.program(context, tokens, "last"):
                pass

    @property
    def most_bytes(self) -> int | None:
        """The most bytes of a conversation with its programs; None if no budget limits them."""
        return None if self._counts is None else self._counts.most

    def program_bytes(self, context: int) -> int:
        """Return the memory of the programs that a conversation of that many tokens cannot do without."""
        if context not in self._program_bytes:
            layout, limits = self.layout(context), {1, self.traits.chunk}
            self._program_bytes[context] = sum(
                scratch_bytes(self.device, self.network, self.kv, layout, limit, "last") for limit in limits
            )
        return self._program_bytes[context]

    def missing_bytes(self, nbytes: int, contexts: Collection[int]) -> int:
        """Return how much memory the budget lacks for a further state of `nbytes`; 0 if it does not.

        Each conversation of these contexts must be able to have its programs, if all others are given up.
        """
        if self._counts is None:
            return 0
        with self._lock:
            needed = nbytes + max(map(self.program_bytes, contexts))
            return max(0, needed - self._counts.room(self.scratch_bytes))

    def prepare(self, context: int) -> None:
        """Record the programs for a conversation of that many tokens, and have the device prepare them.

        The first reply would do the same.
        """
        for tokens in (1, self.traits.chunk):
            with self.program(context, tokens, "last") as (_, graph):
                graph.program.prepare()

    def prepare_batch(self, contexts: tuple[int, ...]) -> None:
        """Do the same for steps of several conversations, by their contexts in ascending order."""
        with self.batch(contexts) as graph:
            graph.program.prepare()

    @contextmanager
    def program(self, context: int, tokens: int, output: Output) -> Iterator[tuple[int, Graph]]:
        """Hold the program for the next of `tokens` tokens, with how many it reads. It is recorded once."""
        single = output == "last" and tokens <= self.traits.single
        # Logits of all tokens, or what each layer makes of them, take more memory than the rest.
        chunk = self.least_chunk if output in ("all", "layers") else self.traits.chunk
        limit = 1 if single else chunk
        slabs = () if self.experts is None else self.experts.slabs

        def record() -> Graph:
            return Graph(self.device, self.network, self.kv, self.layout(context), limit, output, slabs)

        with self._held(self._graphs, MAX_GRAPHS, (context, limit, output), record) as graph:
            yield min(tokens, limit), graph

    @contextmanager
    def batch(self, contexts: tuple[int, ...]) -> Iterator[BatchGraph]:
        """Hold the program for a token each of conversations with these contexts. It is recorded once."""

        with self._held(
            self._batches, MAX_BATCHES, contexts, lambda: self._new_batch(contexts), contexts
        ) as graph:
            yield graph

    def lacks_batch(self, contexts: tuple[int, ...]) -> bool:
        """Return whether that program is not recorded, but could be, as far as is known."""
        with self._lock:
            return contexts not in self._batches and self._may_fit(contexts, contexts)

    def longest_batch(self, contexts: tuple[int, ...]) -> int:
        """Return how many of the first of these contexts have a program that is recorded; 1 if none have."""
        with self._lock:
            return max((len(known) for known in self._batches if known == contexts[: len(known)]), default=1)

    def record_batch(self, contexts: tuple[int, ...], pause: Callable[[], None]) -> None:
        """Record that program, without holding up other threads, and call `pause` where that may wait."""
        graph = self._new_batch(contexts, pause)
        with self._held(self._batches, MAX_BATCHES, contexts, lambda: graph, contexts):
            pass

    def _new_batch(self, contexts: tuple[int, ...], pause: Callable[[], None] | None = None) -> BatchGraph:
        layouts = [self.layout(context) for context in contexts]
        return BatchGraph(self.device, self.network, self.kv, layouts, pause)

    @property
    def piece(self) -> int:
        """The most tokens of a piece that a program of many conversations reads."""
        return min(PIECE, self.traits.chunk)

    @contextmanager
    def mixed(self, context: int, steps: int, *, prompts: bool) -> Iterator[MixedGraph]:
        """Hold a program for many conversations of that context: one token each of `steps`, and `prompts`.

        One that is there serves fewer conversations, too. Where launches of single tokens are not joined, one
        without prompts would be the same.
        """
        with self._lock:
            room = self._mixed_room(context, steps, prompts=prompts)
            with self._held(
                self._mixed, MAX_MIXED, (context, room), lambda: self._new_mixed(context, room), [context]
            ) as graph:
                yield graph

    def lacks_mixed(self, context: int, steps: int, *, prompts: bool) -> bool:
        """Return whether that program is not recorded, but could be, as far as is known."""
        with self._lock:
            key = context, self._mixed_room(context, steps, prompts=prompts)
            return key not in self._mixed and self._may_fit(key, [context])

    def record_mixed(self, context: int, steps: int, pause: Callable[[], None], *, prompts: bool) -> None:
        """Record that program, without holding up other threads, and call `pause` where that may wait."""
        with self._lock:
            room = self._mixed_room(context, steps, prompts=prompts)
        graph = self._new_mixed(context, room, pause)
        with self._held(self._mixed, MAX_MIXED, (context, room), lambda: graph, [context]):
            pass

    def _mixed_room(self, context: int, steps: int, *, prompts: bool) -> Room:
        """Return the places of the program that serves that many steps; the smallest that there is."""
        count = PROMPTS if prompts or not self.traits.fused else 0
        known = [of.steps for at, of in self._mixed if (at, of.prompts) == (context, count)]
        most = max(MANY, 1 << (steps - 1).bit_length())
        return Room(min((n for n in known if n >= steps), default=most), count, self.piece)

    def _new_mixed(self, context: int, room: Room, pause: Callable[[], None] | None = None) -> MixedGraph:
        return MixedGraph(self.device, self.network, self.kv, self.layout(context), room, pause)

    @contextmanager
    def _held(
        self,
        graphs: dict[Any, _G],
        most: int,
        key: Any,
        record: Callable[[], _G],
        several: Collection[int] = (),
    ) -> Iterator[_G]:
        """Hold a program of `graphs`, which keep at most `most`; it is recorded if it is not there.

        One of `several` contexts makes reading faster, but programs of one conversation can do without it. So
        it takes no memory of those, and where it does not fit, it is not recorded again to find that out.
        """
        self.device.require_open()
        with self._lock:
            graph = graphs.pop(key, None)
            if graph is None:
                self._require(key, several)
                while len(graphs) >= most:
                    graphs.pop(next(iter(graphs)))
                graph = record()
                if several:
                    while len(self._sizes) >= MAX_SIZES:
                        self._sizes.pop(next(iter(self._sizes)))
                    self._sizes[key] = graph.scratch_bytes
                    self._require(key, several)
                if self._counts is not None:
                    self._take(self._counts, _SCRATCH, graph.scratch_bytes, graph, several)
            self.require_open()  # a signal handler may have closed it meanwhile
            graphs[key] = graph
            if self.budget is not None:
                self.budget.share()
            yield graph

    def _take(self, budget: Budget, what: str, nbytes: int, owner: Any, needed: Collection[int] = ()) -> None:
        """Count memory for `owner`. Programs are given up for it, since they can be recorded again.

        Those of one conversation with a `needed` context are not.
        """
        unneeded = self._unneeded(needed)
        while True:
            try:
                budget.take(what, nbytes, owner)
                return
            except AllocationError:
                if not unneeded:
                    raise
                graphs, key, _ = unneeded.pop(0)
                graphs.pop(key, None)

    def _require(self, key: Any, several: Collection[int]) -> None:
        """Raise an AllocationError, before any program is given up, if that would not make enough room.

        That is known of programs of `several` contexts that were recorded before.
        """
        if self._counts is not None and key in self._sizes:
            unneeded = sum(nbytes for _, _, nbytes in self._unneeded(several))
            self._counts.require(_SCRATCH, self._sizes[key], unneeded)

    def _may_fit(self, key: Any, several: Collection[int]) -> bool:
        try:
            self.require_open()
            self._require(key, several)
        except (AllocationError, StateError):
            return False
        return True

    def _unneeded(self, needed: Collection[int]) -> list[tuple[dict[Any, Any], Any, int]]:
        """Return which programs may be given up, the first one first: where it is, its key and its bytes."""
        kinds: tuple[dict[Any, Any], ...] = (self._mixed, self._batches, self._graphs)
        return [
            (graphs, key, graph.scratch_bytes)
            for graphs in kinds
            for key, graph in [*graphs.items()]
            if graphs is not self._graphs or key[0] not in needed
        ]

    @property
    def scratch_bytes(self) -> int:
        """Memory for results between launches, of all programs recorded so far."""
        self.device.require_open()
        with self._lock:
            kinds: tuple[dict[Any, Any], ...] = (self._graphs, self._batches, self._mixed)
            return sum(graph.scratch_bytes for graphs in kinds for graph in graphs.values())

    def check_ids(self, token_ids: ArrayLike, what: str = "token_ids") -> NDArray[np.int32]:
        """Return token ids as an array; an ArgumentError for anything but tokens of the vocabulary.

        `what` is the name of the argument in messages.
        """
        try:
            ids = np.asarray(token_ids)
        except ValueError as error:
            raise ArgumentError(f"{what}: expected a list of integers: {error}") from None
        if ids.shape == (0,):
            raise ArgumentError(f"{what}: expected at least one token, got none")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ArgumentError(f"{what}: expected a list of integers, got {shown(token_ids)}")
        vocab = self.network.vocab
        if ids.min() < 0 or ids.max() >= vocab:
            wrong = ids[(ids < 0) | (ids >= vocab)][0]
            raise ArgumentError(f"{what}: expected 0 to {vocab - 1}, got {wrong}")
        return ids.astype(np.int32)
