"""One conversation with a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo._arguments import index
from pyturbo._guard import Guard
from pyturbo._native import Buffer
from pyturbo._program import Cursor
from pyturbo.engine import session_file
from pyturbo.engine.graph import Layout, Output
from pyturbo.engine.profile import Profile
from pyturbo.errors import ArgumentError, StateError, TurboError

if TYPE_CHECKING:
    from pyturbo.model import Model


@dataclass(frozen=True)
class Memory:
    """Bytes in use. Weights and scratch belong to the model and serve all of its sessions.

    Attributes:
        weights: What a step reads of the checkpoint, and tables of positions; `pyturbo info` tells the same.
        scratch: Results between launches.
        state: What this conversation remembers.
        pieces: The state by kind, such as `k`, `v`, `k_norms` and `memory`, added up over the layers.
    """

    weights: int
    scratch: int
    state: int
    pieces: dict[str, int]


class Session:
    """A position, and one block of memory with all that the model remembers.

    Sessions of one model may be used from several threads, each session from one at a time: while it is in
    use, anyone else gets a StateError. Only `cancel` may be called at any time.

    Attributes:
        model: The model it is a conversation with.
        context: How many tokens it has room for.
        guard: Who uses it now.
        notes: What a caller keeps with the conversation, such as its messages: JSON, saved with it.
        timings: A `Profile` where every launch is timed into it, else None.

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

    def __init__(self, model: Model, context: int) -> None:
        self.model, self.guard = model, Guard()
        self._cursor = Cursor()
        self.context: int
        self._layout: Layout
        self._block: Buffer
        self._tokens: NDArray[np.int32]
        self._logits: NDArray[np.float32]
        vars(self).update(self._allocated(context))
        self._pending = (0, -1)  # a position, and the token that was sampled there
        self._failure: str | None = None
        self.notes: dict[str, Any] = {}
        self.timings: Profile | None = None

    def _allocated(self, context: int) -> dict[str, Any]:
        """Return the attributes of an empty session with room for `context` tokens."""
        layout = Layout.of(self.model.network, context, self.model.pace.chunk, self.model.kv)
        block = layout.allocate(self.model.device, context)
        tokens, logits = layout.view(block, "tokens"), layout.view(block, "logits")[0]
        return {"context": context, "_layout": layout, "_block": block, "_tokens": tokens, "_logits": logits}

    def __repr__(self) -> str:
        state = "" if self._failure is None else ", failed"
        return f"Session(position={self.position}, context={self.context}, nbytes={self.nbytes}{state})"

    @property
    def position(self) -> int:
        """How many tokens have been read."""
        return self._cursor.position

    @property
    def tokens(self) -> NDArray[np.int32]:
        """The tokens that have been read."""
        return self._tokens[: self.position]

    @property
    def pending(self) -> list[int]:
        """The token that was sampled here last, while it has not been read; else none."""
        position, token = self._pending
        return [token] if position == self.position > 0 else []

    def leave(self, token: int | None) -> None:
        """Notes that `token` was sampled here, for whoever goes on; None: that nothing was."""
        self._pending = (0, -1) if token is None else (self.position, token)

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """Views of every piece of the state, by name: what is written there is what the next step reads.

        Examples:
            >>> session = pyturbo.load().session(context=64)
            >>> session.state["model.layers.3.self_attn.k"].shape  # [context, heads, dim]
            (64, 2, 64)
            >>> session.state["model.layers.0.linear_attn.memory"].shape  # [heads, value dim, key dim]
            (4, 128, 128)
        """
        return {name: self._layout.view(self._block, name) for name in self._layout.pieces}

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return self._layout.nbytes

    def prefill(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Reads tokens; the logits of the last one, float32 [vocab], a view that the next call changes.

        After `cancel` it raises CancelledError, with the chunks read that were whole by then.
        """
        with self.guard.use():
            return self.advance_to_logits(token_ids)

    def step(self, token_id: int) -> NDArray[np.float32]:
        """Reads one token; its logits, a view that the next call changes."""
        return self.prefill([token_id])

    @property
    def logits(self) -> NDArray[np.float32]:
        """Of the token read last, float32 [vocab]: a view that the next call changes."""
        if self.position == 0:
            raise StateError("logits: expected a session that has read a token")
        return self._logits

    def read(self, token_ids: ArrayLike) -> Iterator[int]:
        """Reads tokens in chunks and gives the position after each, for those who show progress.

        The state may still be changing until this is at its end or closed.
        """
        with self.guard.use():
            for _ in self.advance(self.model.check_ids(token_ids)):
                yield self.position

    def cancel(self) -> bool:
        """Stops what this session does, from any thread, within one token or one chunk of a prompt.

        A reply ends; `prefill`, `step` and `read` raise CancelledError. The session can go on from there.
        Returns False where nothing was under way.
        """
        return self.guard.cancel()

    def rewind(self, position: int) -> int:
        """Forget every token after the first `position`. Returns how many tokens were read again for it.

        Keys and values are cut, and only the last token is read again, for its logits. The memory of a delta
        net and a window that has gone round have no earlier state: there everything up to `position` is
        read again, which a `fork` taken in time avoids.

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
        with self.guard.use():
            self._require_whole()
            if count > self.position:
                raise ArgumentError(f"rewind: position: expected at most {self.position}, got {count}")
            tokens = self.tokens[:count].copy()
            unread = tokens[self.keep(tokens) - len(self.pending) :]
            if unread.size:
                self.advance_to_logits(unread)
            return len(unread)

    @property
    def can_be_cut(self) -> bool:
        """Whether `rewind` reads only one token again: there is neither a delta net nor a full window."""
        return self._layout.can_be_cut(self.position)

    def keep(self, ids: Sequence[int] | NDArray[np.int32]) -> int:
        """Forget what is not the beginning of `ids`, for one who has the session already and reads the rest.

        Returns how many tokens are left. Where later ones were cut off the last of these is pending, since
        its logits are gone.
        """
        self._require_whole()
        wanted = np.asarray(ids[: self.position], np.int32)
        different = np.flatnonzero(wanted != self.tokens[: len(wanted)])
        count = int(different[0]) if different.size else len(wanted)
        self.leave(None)
        if count == self.position:
            return count
        if count < 2 or not self.can_be_cut:
            self._failure = "an interrupt while it forgot what it had read"
            self._layout.clear(self._block.numpy())
            self._cursor.position = 0
            self._failure = None
            return 0
        self._pending = (count - 1, int(wanted[count - 1]))
        self._cursor.position = count - 1
        return count

    def grow(self, context: int) -> None:
        """Give the conversation room for `context` tokens in all; what it has read stays.

        Arrays that show its state, `logits` among them, are those of the smaller one: take them anew.
        """
        room = index("grow: context", context)
        with self.guard.use():
            if not self.context <= room <= self.model.max_context:
                raise ArgumentError(
                    f"grow: context: expected {self.context} to {self.model.max_context}, got {room}"
                )
            larger = self._allocated(room)
            layout, block = larger["_layout"], larger["_block"]
            layout.take(block.numpy(), self._layout, self._block.numpy(), self.position)
            vars(self).update(larger)  # all at once, whatever interrupts

    def advance_to_logits(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Reads tokens as `prefill` does, for one who has the session already."""
        for _ in self.advance(self.model.check_ids(token_ids)):
            pass
        return self.logits

    def advance(self, ids: NDArray[np.int32], output: Output = "last") -> Iterator[list[NDArray[np.float32]]]:
        """The outputs of each chunk, for one who has the session already. Without room for all of the tokens
        nothing changes."""
        self._require_whole()
        if self.position + len(ids) > self.context:
            raise ArgumentError(
                f"context: expected at most {self.context} tokens, got {self.position} and {len(ids)} more"
            )
        self._tokens[self.position : self.position + len(ids)] = ids
        end = self.position + len(ids)
        try:
            while self.position < end:
                self.guard.check()
                count, graph = self.model.graph(self.context, end - self.position, output)
                with self.model.replaying, self._failing():
                    last = self.position + count == end
                    outputs = graph.run(count, self._block, self._cursor, last, self.timings)
                yield outputs
        finally:
            with self._failing():  # chunks before the last may still be at work where this is left early
                self.model.device.synchronize()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """An error inside leaves a state that is neither before nor after a token."""
        try:
            yield
        except TurboError as error:
            self._failure = self._failure or str(error)
            raise

    def _require_whole(self) -> None:
        if self._failure is not None:
            raise StateError(f"the session cannot go on after: {self._failure}")

    def memory(self) -> Memory:
        """Bytes of weights, scratch and state."""
        pieces: dict[str, int] = {}
        for name, (_, shape, dtype) in self._layout.pieces.items():
            kind = name.rpartition(".")[2]
            pieces[kind] = pieces.get(kind, 0) + int(np.prod(shape)) * dtype.itemsize
        _, graph = self.model.graph(self.context, 1, "last")
        return Memory(graph.weight_bytes, self.model.scratch_bytes, self.nbytes, pieces)

    def profile(self) -> Profile:
        """Times every launch of one more step, on a copy: this conversation stays as it is."""
        other = self.fork()
        other._cursor.position = min(self.position, self.context - 1)
        other.timings = profile = Profile()
        other.step(int(self.tokens[-1]) if self.position else 0)
        return profile

    def save(self, path: str | PathLike[str]) -> None:
        """Write the conversation to a file, which `Model.load_session` reads.

        Only a session or an empty file is replaced. The size of the file follows from the tokens that have
        been read, not from the context.
        """
        with self.guard.use():
            self._require_whole()
            chunk = self.model.pace.chunk
            saved = session_file.Saved(self.context, chunk, self.position, self.pending, self.notes)
            state = self._layout.used(self._block.numpy(), self.position)
            nbytes = self._layout.used_bytes(self.position)
            session_file.write(path, session_file.header_of(self.model, saved), nbytes, state)

    def load(
        self,
        layout: Layout,
        read: Callable[[NDArray[np.uint8]], None],
        position: int,
        pending: Sequence[int] = (),
    ) -> None:
        """Take over the state of another session, laid out as `layout` says; see `Layout.fill`."""
        self._layout.fill(self._block.numpy(), layout, position, read)
        self._cursor.position = position
        self._pending = (position, pending[0]) if pending else (0, -1)

    def fork(self) -> Session:
        """An independent copy at this position. `copy.copy` and `copy.deepcopy` do the same."""
        with self.guard.use():
            return self.forked()

    def forked(self) -> Session:
        """As `fork`, for one who has the session already."""
        other = Session(self.model, self.context)
        other._cursor.position = self.position
        other._pending, other._failure = self._pending, self._failure
        other.notes = self._copied_notes()
        other._block.numpy()[...] = self._block.numpy()
        return other

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
