"""States of conversations by their tokens, so that no prompt is read twice from its beginning."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from pyturbo._fork import open_in_children
from pyturbo._messages import size
from pyturbo.engine.prefix_copy import DiskCopy
from pyturbo.engine.prefix_folder import PrefixFolder
from pyturbo.engine.prefix_parts import Block, Bytes, StateParts
from pyturbo.engine.prefix_policy import Pace
from pyturbo.engine.prefix_tree import Match, Node, Tree, common
from pyturbo.engine.prefix_writer import wait
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session
from pyturbo.engine.session_file import identity
from pyturbo.errors import AllocationError, TurboError

_log = logging.getLogger("pyturbo.prefix")

#: Rows are kept after this many chunks of a prompt, so that not all is lost if it is cancelled.
_CHUNKS = 8

#: The share of its memory that a full store gives up beyond what it needs: finding what to give up takes a
#: pass over all nodes.
_EXTRA_SHARE = 64

_WAITING_SHARE = 4  # of its memory, in which a store may have files that are not written yet


class _Owner:
    """Stands for memory that is counted."""


@dataclass
class _Known:
    """What the store knows about a session.

    Attributes:
        spans: First token, end and source of rows that the session has in common with nodes.
        branch: Where its tokens parted from others that had no state to restore there.
    """

    spans: list[tuple[int, int, int]] = field(default_factory=list)
    branch: int = 0


class PrefixStore:
    """Rows of tokens, and the rest of states after some of them, in memory of the host and perhaps on disk.

    A state that is restored has the bits of one that a conversation had: it is that of a session which was
    never closed. Read anew, a prompt is cut into other chunks, and sums are rounded differently.

    `restore`, `parts` and `keep` are for callers that hold the session: nobody else uses it meanwhile.
    Several threads may call them, each with a session of its own.

    Attributes:
        max_bytes: The most bytes of rows and rests in memory.
        pace: What reading and copying were measured to take.
    """

    def __init__(
        self,
        runner: Runner,
        max_bytes: int,
        folder: str | PathLike[str] | None = None,
        max_disk_bytes: int = 1 << 40,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner, self.max_bytes, self._clock = runner, max_bytes, clock
        self._chunk = runner.traits.chunk
        self._parts = StateParts(runner.network, self._chunk, runner.kv)
        self.pace = Pace()
        self._tree = Tree(self._parts)
        self._sessions: weakref.WeakKeyDictionary[Session, _Known] = weakref.WeakKeyDictionary()
        self._lock = open_in_children(threading.RLock)
        self._folder: PrefixFolder | None = None
        if folder is not None:
            layout = {"layout": self._parts.digest}
            waiting = max_bytes // _WAITING_SHARE
            self._folder = PrefixFolder(
                folder, max_disk_bytes, identity(runner) | layout, self._parts, waiting
            )
            self._folder.load(self._tree)

    def __repr__(self) -> str:
        return f"PrefixStore({size(self.nbytes)} of {size(self.max_bytes)})"

    @property
    def nbytes(self) -> int:
        """Bytes of rows and rests in memory."""
        with self._lock:
            return self._tree.nbytes

    def flush(self) -> None:
        """Return when the files of all that was kept are written."""
        if self._folder is not None:
            wait()

    def clear(self) -> None:
        """Forget everything in memory. Files stay."""
        with self._lock:
            self._tree.root.release()
            self._tree = Tree(self._parts)
            self._sessions.clear()

    def make_room(self, missing: Callable[[], int]) -> bool:
        """Forget what is least valuable until no bytes are `missing` elsewhere, unless that is in vain."""
        with self._lock:
            return missing() <= self._tree.nbytes and self._free(lambda: not missing(), ())

    def restore(self, session: Session, ids: Sequence[int] | NDArray[np.int32]) -> int:
        """Make a session hold the longest beginning of `ids` that it or the store has. It forgets all else.

        Returns how many of `ids` need not be given to the session again. The last of them may be pending.
        """
        session._require_whole()
        wanted = np.asarray(ids, np.int32)
        with self._lock:
            while True:
                match, known = self._longest(wanted, session.context)
                position = 0 if match is None else min(match.end, self._last(wanted))
                if match is None or position <= _own(session, wanted):
                    count = session._keep(wanted)
                    self._sessions[session] = _Known(self._spans(session), known)
                    return count
                found = self._contents(match)
                if found is not None:
                    break
            path = self._tree.path(match.node)
            self._touch(path, match.node)
            spans = [(node.start, min(node.end, position), node.source) for node in path]
            self._sessions[session] = _Known(spans, known)
        self._fill(session, wanted[:position], *found)
        if position < match.end:
            session._leave(int(wanted[position]))
        return match.end

    def known(self, ids: NDArray[np.int32]) -> int:
        """Return how many of the first tokens of `ids` can be restored."""
        with self._lock:
            match, _ = self._longest(ids, len(ids))
            return 0 if match is None else match.end

    @property
    def restores_anywhere(self) -> bool:
        """Whether states can be restored after any token, not only where one was kept."""
        return not self._parts.needs_rest

    def _last(self, ids: NDArray[np.int32]) -> int:
        """Return the last position to restore for `ids`. Without logits the last token is read again."""
        return len(ids) if self._parts.needs_rest else len(ids) - 1

    def _longest(self, ids: NDArray[np.int32], context: int) -> tuple[Match | None, int]:
        """Return the longest beginning of `ids` that can be restored, and how many tokens are known."""
        best, known = None, 0
        for match in self._tree.matches(ids[:context]):
            known = max(known, match.end)
            whole = match.length == len(match.node.tokens) and match.node.has_rest
            if (whole or not self._parts.needs_rest) and (best is None or match.end > best.end):
                best = match
        return best, known

    def _contents(self, match: Match) -> tuple[list[tuple[Match, Bytes]], Bytes | None] | None:
        """Return the rows up to a match, and the rest; None if a file turned out to be lost."""
        found, path = [], self._tree.path(match.node)
        rest = self._rest_of(match.node, path) if self._parts.needs_rest else None
        if rest is None and self._parts.needs_rest:
            return None
        for node in path:
            rows = self._rows_of(node)
            if rows is None:
                return None
            if node.rows is None:
                node.rows = self._block(rows, path)
            found.append((match if node is match.node else Match(node, len(node.tokens)), rows))
        return found, rest

    def _rest_of(self, node: Node, path: Sequence[Node]) -> Bytes | None:
        """Return the rest of a node. What comes from a file stays in memory if there is room."""
        if node.rest is None and node.rest_file is not None and not node.rest_file.gone:
            data = self._read(node.rest_file, node.rest_file.rest)
            node.rest = None if data is None else self._block(data, path)
            return data
        return None if node.rest is None else node.rest.data

    def _rows_of(self, node: Node) -> Bytes | None:
        """Return the rows of a node, from memory or from its file."""
        if node.rows is not None:
            return node.rows.data
        if node.file is None or node.file.gone or (data := self._read(node.file, node.file.rows)) is None:
            return None
        first, total = node.start - node.file.start, len(node.file.tokens)
        return self._parts.cut(data, total, first, len(node.tokens))

    def _read(self, copy: DiskCopy, section: Callable[[], Bytes]) -> Bytes | None:
        """Read a section of a file; None if it cannot be used any more: a warning, unless it was deleted."""
        try:
            return section()
        except TurboError as error:
            if not copy.gone and (copy.stored is None or copy.stored.path.exists()):
                _log.warning("left out of the prefix store: %s", error)
            copy.gone = True
            if self._folder is not None:
                self._folder.has_lost = True
            return None

    def _fill(
        self,
        session: Session,
        tokens: NDArray[np.int32],
        rows: Sequence[tuple[Match, Bytes]],
        rest: Bytes | None,
    ) -> None:
        """Write a state after `tokens` into a session."""
        state = session._state
        session._failure = "an interrupt while it took over what was read before"
        for (node, count), data in rows:
            count = min(count, len(tokens) - node.start)
            self._parts.put_rows(state, node.start, data, len(node.tokens), count)
        if rest is not None:
            self._parts.put_rest(state, rest, len(tokens))
        state.put(0, tokens)
        state.changed()
        session._cursor.position = session._settled = len(tokens)
        session._leave(None)
        session._failure = None

    def read(self, session: Session, ids: Sequence[int], before_reply: int | None = None) -> None:
        """Have a session read `ids`, and keep its state after them and on the way; see `parts`."""
        for part in self.parts(session, self._runner.check_ids(ids), before_reply):
            session._advance_all(part)

    def parts(
        self, session: Session, ids: NDArray[np.int32], before_reply: int | None = None
    ) -> Iterator[NDArray[np.int32]]:
        """Yield the parts of `ids`, each of which the caller has the session read, and keep its state.

        `before_reply` is the position up to which later turns of a chat do not change the tokens.
        """
        first, end = session.position, session.position + len(ids)
        stops = self._stops(session, end, before_reply) if end <= session.context else []
        for stop in [*stops, end]:
            seconds, tokens = session.read_seconds, session.read_tokens
            yield ids[session.position - first : stop - first]
            alone = session.read_tokens - tokens
            if alone > self._runner.traits.single:
                self.pace.read(alone, session.read_seconds - seconds)
            if stop < end:
                self.keep(session, on_disk=False)
        if not self._parts.needs_rest or before_reply not in stops:
            self.keep(session)

    def _stops(self, session: Session, end: int, before_reply: int | None) -> list[int]:
        """Return the positions at which a session that reads up to `end` is kept on the way."""
        first = session.position
        if not self._parts.needs_rest:
            spacing = _CHUNKS * self._chunk
            return list(range(first + spacing, end, spacing))
        with self._lock:
            known = self._sessions.get(session, _Known()).branch
        named = sorted({stop for stop in (known, before_reply) if stop is not None and first < stop < end})
        nbytes = self._parts.rest_bytes(end)
        spacing = self.pace.spacing(self._chunk, end - first, nbytes, self.max_bytes)
        stops = []
        for begin, stop in zip([first, *named], [*named, end]):
            stops += [*range(begin + spacing, stop, spacing), stop]
        return stops[:-1]

    def keep(self, session: Session, *, on_disk: bool = True) -> None:
        """Put what a session has read into the store: copies of rows that are not there, and of the rest.

        Does nothing if there is no memory for it. Files are written later, in another thread; without
        `on_disk` none is.
        """
        with self._lock:
            if session._failure is not None or not session.position or self._runner.closed:
                return
            session._settle()
            ids = session.tokens.copy()
            path, position = self._shared(session, ids)
            position = self._add(session, ids, path, position)
            spans = [(node.start, min(node.end, position), node.source) for node in path]
            self._sessions[session] = _Known(spans)
            session._settled = position
            if self._folder is not None and on_disk:
                self._folder.write(path)
            if path:
                self._touch(path, path[-1])
            if self._folder is not None and self._folder.has_lost:
                self._folder.has_lost = False
                self._tree.prune()

    def _shared(self, session: Session, ids: NDArray[np.int32]) -> tuple[list[Node], int]:
        """Return the nodes whose tokens and rows a session has, and how many tokens these are."""
        spans, path, node, position = self._spans(session), [], self._tree.root, 0
        while position < len(ids):
            found = [
                Match(child, self._equal(session, child, ids, spans)) for child in node.children_for(ids)
            ]
            node, count = max(found, key=lambda match: match.length, default=Match(node, 0))
            if not count:
                break
            position += count
            if count < len(node.tokens) and (self._parts.needs_rest or position < len(ids)):
                node = self._tree.split(node, count)
            path.append(node)
        return path, position

    def _equal(
        self, session: Session, node: Node, ids: NDArray[np.int32], spans: Sequence[tuple[int, int, int]]
    ) -> int:
        """Return how many tokens of a node, and rows of them, a session has too."""
        count = common(node.tokens, ids[node.start :]) if node.has_rows else 0
        spent = [end for first, end, source in spans if source == node.source and first <= node.start < end]
        known = min(count, max(spent, default=node.start) - node.start)
        if known == count:
            return count
        rows = self._rows_of(node)
        if rows is None:
            return 0
        own = self._parts.rows(session._state, node.start + known, count - known)
        return known + self._parts.equal_rows(rows, len(node.tokens), known, own, count - known)

    def _spans(self, session: Session) -> list[tuple[int, int, int]]:
        """Return the spans of a session, without tokens that it has forgotten since."""
        known, most = self._sessions.get(session, _Known()), session._settled
        return [(first, min(end, most), source) for first, end, source in known.spans if first < most]

    def _add(self, session: Session, ids: NDArray[np.int32], path: list[Node], position: int) -> int:
        """Add what is missing at the end of a path; return how many tokens the path then has."""
        parts, node = self._parts, path[-1] if path else self._tree.root
        count = len(ids) - position
        wants_rest = parts.needs_rest and (count > 0 or not node.has_rest)
        nbytes = parts.rest_bytes(len(ids)) if wants_rest else 0
        if not parts.needs_rest:
            left = self.max_bytes - sum(node.rows.data.nbytes for node in path if node.rows is not None)
            count = min(count, max(0, left) // max(parts.row_bytes, 1))
        nbytes += count * parts.row_bytes
        if not (count or wants_rest) or not self._make_room(nbytes, path):
            return position
        begin = time.perf_counter()
        rows = self._block(parts.rows(session._state, position, count), path)
        rest = self._block(parts.rest(session._state, len(ids)), path) if wants_rest else None
        if rows is None or (wants_rest and rest is None):
            return position
        self.pace.copied(nbytes, time.perf_counter() - begin)
        if count:
            node = self._tree.add(node, ids[position : position + count], rows)
            path.append(node)
        node.rest = node.rest if rest is None else rest
        return position + count

    def _block(self, data: Bytes, path: Sequence[Node]) -> Block | None:
        """Return bytes that are counted; None if there is no memory for them."""
        owner = _Owner()

        def is_counted() -> bool:
            try:
                self._runner.count("prefix store", data.nbytes, owner)
            except AllocationError:
                return False
            return True

        fits = self._make_room(data.nbytes, path) and self._free(is_counted, path)
        return Block(data, owner) if fits else None

    def _make_room(self, nbytes: int, path: Sequence[Node]) -> bool:
        """Give up what is least valuable until there is room for `nbytes`, and some for what comes next.

        Rows of `path` stay.
        """
        fixed = sum(node.rows.data.nbytes for node in path if node.rows is not None)
        if fixed + nbytes > self.max_bytes:
            return False
        if self._tree.nbytes + nbytes > self.max_bytes:
            enough = self.max_bytes - self.max_bytes // _EXTRA_SHARE
            self._free(lambda: self._tree.nbytes + nbytes <= enough, path)
        return self._tree.nbytes + nbytes <= self.max_bytes

    def _free(self, is_enough: Callable[[], bool], path: Sequence[Node]) -> bool:
        """Forget what is least valuable in memory until it is enough; return whether it is."""
        if is_enough():
            return True
        for node, rest_only in self._tree.by_value(self._clock(), path):
            if rest_only or (node.file is not None and not node.file.gone):
                node.rest = None
                node.rows = node.rows if rest_only else None
            else:
                self._tree.remove(node, path)
            if is_enough():
                return True
        return False

    def _touch(self, path: Sequence[Node], restored: Node) -> None:
        """Note the use of nodes, and of the rest of one of them."""
        now = self._clock()
        for node in path:
            node.used = now
        restored.rest_used = now
        if self._folder is not None:
            self._folder.touch(path)


def _own(session: Session, ids: NDArray[np.int32]) -> int:
    """Return the position that a session has by itself for `ids`."""
    count = common(session.tokens, ids)
    if count == session.position:
        return count
    return count - 1 if session.can_be_cut else 0
