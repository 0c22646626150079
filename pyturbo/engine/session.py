"""One conversation with a model."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._arguments import index
from pyturbo._guard import Guard
from pyturbo._program import Cursor
from pyturbo._sampling import top_logprobs
from pyturbo.engine import session_file
from pyturbo.engine.chooser import Chooser
from pyturbo.engine.graph import Output
from pyturbo.engine.onward import Lead
from pyturbo.engine.profile import Profile
from pyturbo.engine.runner import Runner
from pyturbo.engine.state import State
from pyturbo.errors import ArgumentError, StateError, TurboError

_STATE = ("_cursor", "_state")  # what a closed session does not have


@dataclass(frozen=True)
class Memory:
    """Bytes in use. Weights and scratch belong to the model and serve all of its sessions.

    Attributes:
        weights: Weights that a step reads, and tables of positions; `pyturbo info` shows the same.
        scratch: Results between launches.
        state: The state of this conversation.
        pieces: The state by kind, such as `k`, `v`, `k_scales` and `memory`, added up over the layers.
        experts: Slots for experts that are read when they are needed; weights are then all others.
    """

    weights: int
    scratch: int
    state: int
    pieces: dict[str, int]
    experts: int = 0


class Session:
    """A conversation: a position, and one block of memory with its state. `Model.session` makes it.

    Sessions of one model may be used from several threads, each session from one at a time: while it is in
    use, anyone else gets a StateError. Only `cancel` may be called at any time. Leaving its `with` statement
    closes it.

    Attributes:
        context: How many tokens it has room for.
        notes: Data of the caller, such as messages: JSON that is saved with the session.
        read_seconds: The time that reading has taken so far, without steps that were shared with others.
        read_tokens: The tokens that were read in this time.
        timings: A `Profile` that every launch and every read of an expert is timed into, or None.

    Examples:
        >>> model = pyturbo.load()
        >>> session = model.session(context=64)
        >>> logits = session.prefill(model.tokenizer.encode("Once upon a"))
        >>> model.tokenizer.decode([int(logits.argmax())])
        ' time'
        >>> other = session.fork()
        >>> _ = other.step(int(logits.argmax()))
        >>> session.position, other.position
        (3, 4)
    """

    def __init__(self, runner: Runner, context: int) -> None:
        self._runner, self._guard = runner, Guard()
        self._cursor = Cursor()
        self._state = self._allocated(context)
        self.context = context
        self._pending = (0, -1)  # a position, and the token that was sampled there
        self._lead: Lead | None = None
        # How many of its first tokens are unchanged since the prefix store last saw it.
        self._settled = 0
        self._failure: str | None = None
        self.notes: dict[str, Any] = {}
        self.timings: Profile | None = None
        self.read_seconds, self.read_tokens = 0.0, 0

    def _allocated(self, context: int) -> State:
        """Return an empty state with room for `context` tokens."""
        layout = self._runner.layout(context)
        return State(layout, self._runner.allocate(layout))

    def __enter__(self) -> Session:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except StateError:  # another use is not at its end
            if error is None:
                raise

    def close(self) -> None:
        """Give back the memory of the state. Reading, saving or forking it is then a StateError.

        Arrays that show the state keep its memory until they are gone. Closing twice is fine.
        """
        with self._guard.use():
            with suppress(TurboError):
                self._settle()
            self._lead = None
            for name in _STATE:
                vars(self).pop(name, None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in _STATE:
                raise StateError("the session is closed")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _require_open(self) -> None:
        self._state  # noqa: B018

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return "_state" not in vars(self)

    def __repr__(self) -> str:
        if self.closed:
            return "Session(closed)"
        state = "" if self._failure is None else ", failed"
        return f"Session(position={self.position}, context={self.context}, nbytes={self.nbytes}{state})"

    @property
    def max_context(self) -> int:
        """The most tokens that `grow` can give it room for."""
        return int(self._runner.network.context)

    @property
    def largest_piece(self) -> int:
        """The most tokens that it reads at once together with other conversations."""
        return self._runner.piece

    def is_of(self, runner: Runner) -> bool:
        """Return whether it is a conversation with that model."""
        return self._runner is runner

    def require_free(self) -> None:
        """Raise a StateError while another thread uses the session, or if it is closed."""
        with self._guard.use():
            self._require_open()

    @property
    def position(self) -> int:
        """How many tokens have been read."""
        return self._cursor.position

    @property
    def tokens(self) -> NDArray[np.int32]:
        """The tokens that have been read."""
        return self._state.tokens[: self.position]

    @property
    def pending(self) -> list[int]:
        """The token that was sampled last, if it has not been read yet.

        On a GPU a greedy or top-k reply reads most tokens before it yields them; nothing is pending then.
        """
        position, token = self._pending
        return [token] if position == self.position > 0 else []

    def _leave(self, token: int | None) -> None:
        """Record a token that was sampled here and has not been read yet; None clears it."""
        self._pending = (0, -1) if token is None else (self.position, token)

    @property
    def _leads(self) -> Lead | None:
        """The lead of the reply under way, if the session leads."""
        return self._lead if self._lead is not None and self._lead.end == self.position else None

    def _begin_reply(self) -> None:
        """Forget the reply before, with which the session may lead."""
        self._settle()
        self._lead = None

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Views of every piece of the state, by name. The next step reads what is written there.

        While a reply is under way on a GPU, views from before its last chunk may be changing.

        On a device with memory of its own they are copies, which cannot be written to.

        Examples:
            >>> session = pyturbo.load().session(context=64)
            >>> session.state["model.layers.3.self_attn.k"].shape  # [context, heads, dim]
            (64, 2, 64)
            >>> session.state["model.layers.0.linear_attn.memory"].shape  # [heads, value dim, key dim]
            (4, 128, 128)
        """
        self._settle()
        return self._state.views()

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self._state.layout.nbytes

    def prefill(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Read tokens; return the logits of the last one, float32 [vocab], a view that the next call changes.

        After `cancel` it raises CancelledError; the chunks that were complete by then have been read.
        """
        with self._guard.use():
            return self._advance_to_logits(token_ids)

    def step(self, token_id: int) -> NDArray[np.float32]:
        """Read one token; return its logits, a view that the next call changes."""
        with self._guard.use():
            return self._advance_to_logits([index("token_id", token_id)], "token_id")

    @property
    def logits(self) -> NDArray[np.float32]:
        """The logits of the token read last, float32 [vocab]: a view that the next call changes."""
        if self.position == 0:
            raise StateError("logits: expected a session that has read a token")
        self._settle()
        return self._state.logits()

    def read(self, token_ids: ArrayLike) -> Iterator[int]:
        """Read tokens in chunks and yield the position after each, for showing progress.

        The state may still be changing until the iterator ends or is closed.
        """
        with self._guard.use():
            for _ in self._advance(self._runner.check_ids(token_ids)):
                yield self.position

    def cancel(self) -> bool:
        """Stop what this session does, from any thread, within one token or one chunk of a prompt.

        A reply ends; `prefill`, `step` and `read` raise CancelledError. The session can go on from there.
        Returns False if nothing was under way.
        """
        return self._guard.cancel()

    def rewind(self, position: int) -> int:
        """Forget every token after the first `position`. Returns how many tokens were read again for it.

        Keys and values are cut, and only the last token is read again, for its logits. The memory of a delta
        net and a window that has gone round have no earlier state: there everything up to `position` is
        read again, which a `fork` taken in time avoids. Of compressed keys and values up to 16 before
        `position` that were exact may be so no longer.

        Examples:
            >>> model = pyturbo.load()
            >>> session = model.session(context=64)
            >>> logits = session.prefill([443, 457, 261, 413]).copy()
            >>> _ = session.prefill([5, 6, 7])
            >>> _ = session.rewind(4)
            >>> session.position, bool((session.logits == logits).all())
            (4, True)
        """
        count = index("rewind: position", position)
        with self._guard.use():
            self._require_whole()
            if count > self.position:
                raise ArgumentError(f"rewind: position: expected at most {self.position}, got {count}")
            tokens = self.tokens[:count].copy()
            unread = tokens[self._keep(tokens) - len(self.pending) :]
            if unread.size:
                self._advance_over(unread)
            return len(unread)

    @property
    def can_be_cut(self) -> bool:
        """Whether `rewind` reads only one token again: there is neither a delta net nor a full window."""
        return self._state.layout.can_be_cut(self.position)

    def _keep(self, ids: Sequence[int] | NDArray[np.int32]) -> int:
        """Forget what is not the beginning of `ids`, for a caller that holds the session and reads the rest.

        Returns how many tokens are left. If later ones were cut off, the last of these is pending, since its
        logits are gone.
        """
        self._require_whole()
        self._lead = None
        wanted = np.asarray(ids[: self.position], np.int32)
        different = np.flatnonzero(wanted != self.tokens[: len(wanted)])
        count = int(different[0]) if different.size else len(wanted)
        self._leave(None)
        if count == self.position:
            return count
        self._settled = min(self._settled, max(0, count - 1))
        if count < 2 or not self.can_be_cut:
            self._failure = "an interrupt while it forgot what it had read"
            self._state.clear()
            self._cursor.position = 0
            self._failure = None
            return 0
        self._pending = (count - 1, int(wanted[count - 1]))
        self._cursor.position = count - 1
        return count

    def grow(self, context: int) -> None:
        """Give the conversation room for `context` tokens in all; what it has read stays.

        Arrays that show its state, `logits` among them, show the old memory: ask for them again.
        """
        room = index("grow: context", context)
        with self._guard.use():
            if not self.context <= room <= self.max_context:
                raise ArgumentError(
                    f"grow: context: expected {self.context} to {self.max_context}, got {room}"
                )
            self._settle()
            larger = self._allocated(room)
            larger.copy(self._state, self.position)
            vars(self).update(_state=larger, context=room)  # all at once, whatever interrupts

    def _advance_to_logits(self, token_ids: ArrayLike, what: str = "token_ids") -> NDArray[np.float32]:
        """Read tokens, which messages call `what`, as `prefill` does, for a caller that holds the session."""
        self._advance_over(token_ids, what)
        return self.logits

    def _advance_over(self, token_ids: ArrayLike, what: str = "token_ids") -> None:
        """Do the same without a look at the logits."""
        self._advance_all(self._runner.check_ids(token_ids, what))

    def _advance_all(self, ids: NDArray[np.int32]) -> None:
        """Do the same with tokens that are known to be of the vocabulary."""
        for _ in self._advance(ids):
            pass

    def _sample(self, chooser: Chooser) -> tuple[int, float]:
        """Draw a token and its logprob, from the largest logits where they suffice."""
        lead = self._leads
        if lead is not None:
            return lead.choice(self.tokens, chooser.sample_top(lead.drawn_from))
        top = self._state.top
        drawn = None if top is None else chooser.sample_top(top)
        return chooser.sample(self.logits) if drawn is None else drawn

    def _likeliest(self, n: int) -> list[tuple[int, float]]:
        """Return the n most likely tokens where the last one was drawn, with their logprobs."""
        lead = self._leads
        top = self._state.top if lead is None else lead.drawn_from
        likeliest = None if top is None else top.logprobs(n)
        return top_logprobs(self.logits, n) if likeliest is None else likeliest

    def _advance(
        self, ids: NDArray[np.int32], output: Output = "last"
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Yield the outputs of each chunk, for a caller that holds the session.

        Without room for all of the tokens nothing changes.
        """
        self._require_room(len(ids))
        self._lead = None
        end = self.position + len(ids)
        self._state.put(self.position, ids)
        try:
            while self.position < end:
                self._guard.check()
                first, begin = self.position, time.perf_counter()
                outputs = self._replay(end - self.position, output)
                self.read_seconds += time.perf_counter() - begin
                self.read_tokens += self.position - first
                yield outputs
        finally:
            with self._failing():  # chunks before the last may still be at work where this is left early
                self._runner.device.synchronize()

    def _replay(self, tokens: int, output: Output) -> list[NDArray[np.float32]]:
        """Read the next of `tokens` tokens with one program. No reference to it is left behind."""
        state = self._state
        with self._runner.program(self.context, tokens, output) as (count, graph), self._failing():
            state.changed()
            count = graph.fitting(count, self._runner.least_chunk, state.block, self.position)
            if self.timings is None:
                outputs = graph.run(count, state.block, self._cursor, count == tokens)
            else:
                experts = self._runner.expert_memory
                outputs = graph.profile(count, state.block, self._cursor, self.timings, experts)
            if count == tokens:
                state.top = graph.top()
            return outputs

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Mark the session as failed by an error inside: its state is neither before nor after a token."""
        try:
            yield
        except TurboError as error:
            self._failure = self._failure or str(error)
            raise

    def _require_whole(self) -> None:
        if self._failure is not None:
            raise StateError(f"the session cannot go on after: {self._failure}")
        self._settle()

    def _require_room(self, tokens: int) -> None:
        self._require_whole()
        if self.position + tokens > self.context:
            raise ArgumentError(
                f"context: expected at most {self.context} tokens, got {self.position} and {tokens} more"
            )

    def _settle(self) -> None:
        """Wait for what a lead reads."""
        if self._lead is not None and not self._lead.settled:
            with self._failing():
                self._state.top = self._lead.step.found().top
            self._lead.settled = True

    def memory(self) -> Memory:
        """Return the bytes of weights, scratch, state and slots for experts."""
        pieces: dict[str, int] = {}
        for name, (_, shape, dtype) in self._state.layout.pieces.items():
            kind = name.rpartition(".")[2]
            pieces[kind] = pieces.get(kind, 0) + int(np.prod(shape)) * dtype.itemsize
        with self._runner.program(self.context, 1, "last") as (_, graph):
            experts = 0 if self._runner.experts is None else self._runner.experts.nbytes
            return Memory(graph.weight_bytes, self._runner.scratch_bytes, self.nbytes, pieces, experts)

    def profile(self) -> Profile:
        """Time every launch, and every read of an expert, in one more step on a copy of this conversation.

        The step reads the `pending` token; without one the last token once more, or token 0 if none was read.
        """
        other = self.fork()
        other._cursor.position = min(self.position, self.context - 1)
        other.timings = profile = Profile()
        other.step(int([0, *self.tokens[-1:], *self.pending][-1]))
        return profile

    def save(self, path: str | PathLike[str]) -> None:
        """Write the conversation to a file, which `Model.load_session` reads.

        Only a session or an empty file is replaced. The size of the file follows from the tokens that have
        been read, not from the context.
        """
        with self._guard.use():
            self._require_whole()
            saved = session_file.Saved(
                self.context, self._runner.traits.chunk, self.position, self.pending, self.notes
            )
            session_file.write(path, self._runner, saved, self._state.layout, self._state.block)

    def fork(self) -> Session:
        """Return an independent copy at this position. `copy.copy` and `copy.deepcopy` do the same."""
        with self._guard.use():
            return self._forked()

    def _forked(self) -> Session:
        """Fork, for a caller that holds the session."""
        other = Session(self._runner, self.context)
        other._take(self)
        return other

    def _take(self, other: Session) -> None:
        """Become a copy of a session with the same context, for a caller that holds both."""
        self._settle()
        other._settle()
        self._cursor.position = other.position
        self._pending, self._failure = other._pending, other._failure
        self.notes = other._copied_notes()
        self._state.copy(other._state, other.position)

    def _copied_notes(self) -> dict[str, Any]:
        try:
            return copy.deepcopy(self.notes)
        except Exception as error:  # of objects that JSON does not have
            raise ArgumentError(
                f"notes: expected what JSON can hold, which can be copied: {error}"
            ) from error

    def __copy__(self) -> Session:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise StateError(
            "a session cannot be pickled: save(path) keeps it, Model.load_session(path) reads it"
        )


def load(runner: Runner, path: str | PathLike[str], context: int | None) -> Session:
    """Read the conversation that `Session.save` wrote; `context` None is the one it had."""
    with session_file.Reader(path, runner) as file:
        saved = file.saved
        room = saved.context if context is None else index("load_session: context", context)
        if not saved.position <= room <= runner.network.context:
            raise ArgumentError(
                f"load_session: context: expected {saved.position}, the tokens that {file.path} has, to "
                f"{runner.network.context}, got {room}"
            )
        session = Session(runner, room)
        file.fill(session._state.layout, session._state.block)
        session._state.refresh()
        session._cursor.position = saved.position
        session._pending = (saved.position, saved.pending[0]) if saved.pending else (0, -1)
    session.notes = saved.notes
    return session


def at_position(runner: Runner, context: int, position: int) -> Session:
    """Return a session as if it had read `position` tokens: they are 0, and so are their keys and values.

    Steps take as long as after real tokens, so that long contexts can be measured without reading them.
    """
    session = Session(runner, context)
    session._cursor.position = position
    return session


def outputs(runner: Runner, token_ids: ArrayLike, output: Output) -> Iterator[list[NDArray[np.float32]]]:
    """Read tokens from a fresh state; yield the outputs of each chunk."""
    ids = runner.check_ids(token_ids)
    return Session(runner, len(ids))._advance(ids, output)
