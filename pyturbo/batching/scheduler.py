"""The thread of an engine: who is admitted, whose prompt is read, and who reads a token together."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from pyturbo._fork import OwnProcess
from pyturbo.batching.member import Member
from pyturbo.batching.pace import Pace
from pyturbo.batching.stream import Mailbox
from pyturbo.engine.ahead import Ahead
from pyturbo.engine.runner import MANY, PROMPTS
from pyturbo.engine.together import copy_into, read_together, step_together
from pyturbo.errors import AllocationError, ArgumentError, BusyError, StateError

_CHECK_SECONDS = 0.05  # between two looks at who has gone, while nothing else happens


class Waiting(NamedTuple):
    """A reply that has not begun. Those of higher priority come first, then those that came first."""

    rank: tuple[int, int]
    nbytes: int  # of its state
    context: int
    mailbox: Mailbox
    admit: Callable[[], Member]


class ReadText(NamedTuple):
    """A text that someone else reads: its state counts like that of a conversation."""

    rank: tuple[int, int]
    nbytes: int
    context: int


class Limits(NamedTuple):
    """What an engine takes on.

    Attributes:
        slots: Conversations at once.
        queue: Replies that may wait.
        nbytes: Of all states together; None: no limit.
        has_room: Takes the bytes of a further state, and contexts; returns whether the model has memory for
            the state and for the programs of all these contexts. It may forget something for that.
        shares: Takes two conversations; returns whether the first had better wait until the second has read
            its prompt, because that begins with the same tokens.
    """

    slots: int
    queue: int
    nbytes: int | None
    has_room: Callable[[int, Collection[int]], bool]
    shares: Callable[[Member, Member], bool]


@dataclass
class Usage:
    """What an engine has done so far.

    Attributes:
        steps: Steps of one token of each conversation under way.
        step_tokens: Tokens that these read.
        prompt_tokens: Tokens that were read in pieces of prompts.
        busy_seconds: Time with something to do.
        replay_seconds: Of that, the time in programs; the rest is the host's own.
    """

    steps: int = 0
    step_tokens: int = 0
    prompt_tokens: int = 0
    busy_seconds: float = 0.0
    replay_seconds: float = 0.0


class Scheduler:
    """Runs replies in a thread of its own, until `stop`.

    A turn of the loop reads one piece of one prompt, and one token of every conversation that has one to
    read. From `MANY` conversations on, until the last of these has ended, one program reads all of that, and
    pieces of several prompts, if there is memory for it. Conversations join and leave between turns.
    """

    def __init__(self, limits: Limits, pace: Pace) -> None:
        self._limits, self._pace = limits, pace
        self._own = OwnProcess()
        self._changed = threading.Condition()
        self._claiming = threading.Lock()  # taken before `_changed`
        self._wake: SimpleQueue[None] = SimpleQueue()  # whose `put` never waits
        self._waiting: list[Waiting] = []  # a heap
        self._members: list[Member] = []
        self._texts: list[ReadText] = []  # those that wait for memory
        self._read_texts: list[ReadText] = []  # those that have it
        self._taken: dict[int, int] = {}  # bytes of each member, reply on its way or text, by its identity
        self._numbers = itertools.count()
        self._admitting: Waiting | None = None  # on its way from `_waiting` to `_members`
        self._stopping = self._draining = False
        # The fewest conversations whose common program did not fit; forgotten when one ends.
        self._too_many: int | None = None
        self._ahead = Ahead(pace.seconds)
        self.usage = Usage()
        self._thread = threading.Thread(target=self._run, name="pyturbo-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread goes on."""
        return self._thread.is_alive() and not self._stopping

    @property
    def running(self) -> int:
        """Conversations under way."""
        return len(self._members)

    @property
    def waiting(self) -> int:
        """Replies that have not begun."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether no further reply may wait. Those for whom there is a slot and memory do not count."""
        free = max(0, self._limits.slots - len(self._members) - (self._admitting is not None))
        waiting = self._waiting.copy()
        ready, nbytes, limit = 0, self.state_bytes, self._limits.nbytes
        for entry in heapq.nsmallest(free, waiting):
            nbytes += entry.nbytes
            if limit is not None and nbytes > limit:
                break
            ready += 1
        return len(waiting) - ready >= self._limits.queue

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all conversations under way, and of texts."""
        return sum(self._taken.copy().values())

    def add(
        self,
        priority: int,
        nbytes: int,
        context: int,
        replies: Sequence[tuple[Mailbox, Callable[[], Member]]],
    ) -> None:
        """Have replies begin when there is room, all of them: BusyError if too many would wait."""
        self._own.require("the engine")
        most = self._limits.slots + self._limits.queue
        if len(replies) > most:
            raise ArgumentError(
                f"count: expected at most {most} replies at once, which is how many may run and wait, "
                f"got {len(replies)}"
            )
        with self._changed:
            if self._stopping or self._draining:
                raise StateError("the engine is closed")
            before = self._waiting.copy()
            for mailbox, admit in replies:
                if self.full:
                    self._waiting = before
                    raise BusyError(
                        f"submit: expected at most {self._limits.queue} replies that wait, got one more"
                    )
                rank = (-priority, next(self._numbers))
                heapq.heappush(self._waiting, Waiting(rank, nbytes, context, mailbox, admit))
        self._wake.put(None)

    @contextmanager
    def reading(self, nbytes: int, context: int, check: Callable[[], None]) -> Iterator[None]:
        """Count the state of a text while someone else reads it, once there is memory for it.

        It waits in turn with replies. `check` is called now and then meanwhile; what it raises ends that.
        """
        self._own.require("the engine")
        with self._changed:
            text = ReadText((0, next(self._numbers)), nbytes, context)
            self._texts.append(text)
        try:
            while not self._claim(text, lambda: self._is_next(text), lambda: self._read_texts.append(text)):
                check()
                with self._changed:
                    self._changed.wait(_CHECK_SECONDS)
        finally:
            with self._changed:
                self._texts.remove(text)
            self._wake.put(None)
        try:
            yield
        finally:
            with self._changed:
                self._taken.pop(id(text))
                self._read_texts.remove(text)
                self._changed.notify_all()
            self._wake.put(None)

    def _is_next(self, text: ReadText) -> bool:
        """Return whether it is the turn of a text: no reply that waits for memory came before it."""
        if self._stopping or self._draining:
            raise StateError("the engine is closed")
        if self._waiting and self._waiting[0].rank < text.rank and len(self._members) < self._limits.slots:
            return False
        return self._texts[0] is text

    def _claim(
        self, entry: Waiting | ReadText, is_next: Callable[[], bool], begin: Callable[[], object]
    ) -> bool:
        """Count the state of a reply or a text, and `begin` it, if it is next and there is memory for it.

        The model may have to wait for a program before it says so. Nobody else waits meanwhile: that is why
        it is not asked under `_changed`.
        """
        limit = self._limits.nbytes
        with self._claiming:
            with self._changed:
                if not is_next() or (limit is not None and self.state_bytes + entry.nbytes > limit):
                    return False
                # Nobody knows here whether the states of these are there yet.
                begun: list[Waiting | ReadText] = [*self._read_texts]
                if self._admitting is not None:
                    begun.append(self._admitting)
                contexts = {entry.context, *(each.context for each in begun)}
                contexts |= {member.session.context for member in self._members}
                alone = not self._taken  # waiting would be in vain
            nbytes = entry.nbytes + sum(each.nbytes for each in begun)
            if not self._limits.has_room(nbytes, contexts) and not alone:
                return False
            with self._changed:
                if not is_next():
                    return False
                self._taken[id(entry)] = entry.nbytes
                begin()
                return True

    def drain(self, timeout: float | None) -> bool:
        """Accept nothing more, and wait until all replies have ended. Returns whether they have."""
        self._own.require("the engine")
        with self._changed:
            self._draining = True
            return self._changed.wait_for(self._idle, timeout)

    def stop(self) -> None:
        """Cancel all replies. Takes no lock, since the garbage collector may call it in any thread."""
        self._stopping = True
        self._wake.put(None)

    def tell_end(self) -> None:
        """Have all replies raise a StateError now, after `stop`: the thread may be busy for a while."""
        error = StateError("the engine is closed")
        if self._own:
            with self._changed:
                waiting, members = [*self._waiting], [*self._members]
                if self._admitting is not None:
                    waiting.append(self._admitting)
            for entry in waiting:
                entry.mailbox.end(error)
            for member in members:
                member.tell_end(error)

    def join(self) -> None:
        """Wait for the thread to end after `stop`. A child of fork() does not have that thread."""
        if self._own and self._thread is not threading.current_thread():
            self._thread.join()

    def _idle(self) -> bool:
        return not (self._members or self._waiting or self._admitting)

    def _run(self) -> None:
        error: BaseException = StateError("the engine is closed")
        try:
            while self._await_work():
                begin = time.perf_counter()
                self._drop_cancelled()
                self._admit()
                if not self._members:
                    self._await_memory()
                    continue
                if not self._stopping:
                    self._read()
                self.usage.busy_seconds += time.perf_counter() - begin
        except BaseException as found:  # a mistake in here: nobody may wait for ever
            error = found
            raise
        finally:
            self._ahead.stop()
            with self._changed:
                self._stopping = True
                waiting, self._waiting = self._waiting, []
                self._changed.notify_all()
            for entry in waiting:
                entry.mailbox.end(error)
            for member in [*self._members]:
                with suppress(Exception):  # of one, while others still wait for their end
                    self._leave(member, error)

    def _await_work(self) -> bool:
        """Wait until there is something to do. Returns False when it is time to stop."""
        while not self._stopping and self._idle():
            self._ahead.stop()
            self._wake.get()
        return not self._stopping

    def _await_memory(self) -> None:
        """Wait, while texts have the memory of all replies that wait, until that may have changed."""
        if self._waiting:
            with suppress(Empty):
                self._wake.get(timeout=_CHECK_SECONDS)

    def _admit(self) -> None:
        """Begin replies in the order of their rank while there are slots and memory for the next one."""
        while (entry := self._next()) is not None:
            entry.mailbox.begin()
            member = self._admitted(entry)
            with self._changed:
                self._admitting = None
                nbytes = self._taken.pop(id(entry))
                if member is not None:
                    self._members.append(member)
                    self._taken[id(member)] = nbytes
                self._changed.notify_all()
            if member is not None:
                self._begin(member)

    def _begin(self, member: Member) -> None:
        """Begin with a prompt, unless someone reads its first tokens: these are then known soon."""
        at_work = (other for other in self._members if other.reading and other.waits_for is None)
        shared = (other for other in at_work if other is not member and self._limits.shares(member, other))
        member.waits_for = next(shared, None)
        if member.waits_for is None:
            self._resume(member)

    def _begin_others(self, member: Member, *, read: bool) -> None:
        """Begin with the prompts that wait for that of a member, which has been `read`, or never will be."""
        for other in [other for other in self._members if other.waits_for is member]:
            other.waits_for = None
            if other.cancelled:
                continue  # it is dropped soon
            if not (read and other.is_twin(member)):
                self._begin(other)
                continue
            try:
                copy_into(other.session, member.session)
            except Exception as error:
                self._leave(other, error)
            else:
                self._resume(other)

    @staticmethod
    def _admitted(entry: Waiting) -> Member | None:
        """Make the conversation of a reply; None if that fails, which is the end of the reply."""
        try:
            return entry.admit()
        except Exception as error:
            entry.mailbox.end(error)
            return None

    def _next(self) -> Waiting | None:
        """Take the next reply from the queue, if there is room for it and it is not time to stop."""
        with self._changed:
            if not self._waiting:
                return None
            first = self._waiting[0]

        def is_next() -> bool:
            earlier = self._texts and self._texts[0].rank < first.rank
            free = not self._stopping and len(self._members) < self._limits.slots
            return free and not earlier and self._waiting[0] is first

        def begin() -> None:  # there is no moment at which it is nowhere
            self._admitting = heapq.heappop(self._waiting)

        return first if self._claim(first, is_next, begin) else None

    def _drop_cancelled(self) -> None:
        with self._changed:
            dropped = [entry for entry in self._waiting if entry.mailbox.cancelled]
            if dropped:
                self._waiting = [entry for entry in self._waiting if not entry.mailbox.cancelled]
                heapq.heapify(self._waiting)
                self._changed.notify_all()
        for entry in dropped:
            entry.mailbox.end()
        while member := next((member for member in self._members if member.cancelled), None):
            self._leave(member)  # others may begin then, and end

    def _read(self) -> None:
        """Read some of the prompts, and one token of every conversation that has just one to read."""
        members = self._members
        leader = next((member for member in members if member.leads), None)
        if leader is not None and len(members) > 1 and self._step_one_by_one([leader]):
            self.usage.step_tokens += 1
            self._resume(leader)
        if len(members) >= MANY:
            for member in members:
                member.crowded = True
        same = len({member.session.context for member in members}) == 1
        fits = self._too_many is None or len(members) < self._too_many
        if same and fits and any(member.crowded for member in members):
            steps = [(member, 1) for member in members if len(member.unread) == 1]
            pieces = self._pieces(waiting=bool(steps))
            if pieces is None:  # of a prompt for which a program of its own is better
                self._read_a_piece()
            parts = [*steps, *(pieces or [])]
            if not steps or self._ahead.has_reading(parts[0][0].session, len(members), prompts=bool(pieces)):
                self._read_together(parts)
                return
            if pieces:
                self._read_a_piece()
            self._step(recorded=True)
        else:
            self._read_a_piece()
            self._step()

    def _pieces(self, *, waiting: bool) -> list[tuple[Member, int]] | None:
        """Choose what to read of which prompts at once; None if the first one is better read alone.

        `waiting`: others wait for their next token.
        """
        chosen: list[tuple[Member, int]] = []
        left = self._pace.allowed
        for member in self._members:
            unread = len(member.unread)
            if unread < 2:
                continue
            count = self._pace.piece(unread) if waiting else unread
            if count > member.session.largest_piece:
                return chosen or None
            if chosen and waiting and count > left:
                break
            chosen.append((member, count))
            left -= count
            if len(chosen) == PROMPTS:
                break
        return chosen

    def _read_together(self, parts: Sequence[tuple[Member, int]]) -> None:
        """Read that many tokens of each of some conversations, with one program."""
        if not parts:
            return
        sessions = [member.session for member, _ in parts]
        pieces = [member.unread[:count] for member, count in parts]
        begin = time.perf_counter()
        try:
            ends = [len(member.unread) == count for member, count in parts]
            read_together(sessions, pieces, ends, room=len(self._members))
        except AllocationError:  # for the program: no conversation has begun to read
            self._too_many = len(self._members)
            self._read_a_piece()
            self._step()
            return
        except Exception as error:
            for member, _ in parts:
                self._leave(member, error)
            return
        seconds = time.perf_counter() - begin
        steps = sum(count == 1 for _, count in parts)
        tokens = sum(count for _, count in parts)
        self.usage.steps += steps > 0
        self.usage.step_tokens += steps
        self.usage.prompt_tokens += tokens - steps
        self.usage.replay_seconds += seconds
        if tokens > steps:
            self._pace.note(tokens, seconds)
        for member, count in parts:
            member.has_read(count)
            if not len(member.unread):
                self._resume(member)

    def _read_a_piece(self) -> None:
        """Read some of the first prompt that is not read yet: little of it if others wait for their token."""
        member = next((member for member in self._members if len(member.unread) > 1), None)
        if member is None:
            return
        unread = len(member.unread)
        others = any(len(other.unread) == 1 for other in self._members)
        count = self._pace.piece(unread) if others else min(unread, self._pace.chunk)
        begin = time.perf_counter()
        try:
            member.read(count)
        except Exception as error:
            self._leave(member, error)
            return
        seconds = time.perf_counter() - begin
        self._pace.note(count, seconds)
        self.usage.prompt_tokens += count
        self.usage.replay_seconds += seconds
        if not len(member.unread):
            self._resume(member)

    def _step(self, *, recorded: bool = False) -> None:
        """Read one token of every conversation that has just one to read.

        While their program is being recorded, they read in groups that have one; so they do if only programs
        that are `recorded` may be used.
        """
        members = [member for member in self._members if len(member.unread) == 1]
        if not members:
            return
        members.sort(key=lambda member: member.session.context)
        sessions = [member.session for member in members]
        whole = not recorded and self._ahead.has_step(sessions)
        read: list[Member] = []
        first, begin = 0, time.perf_counter()
        for size in [len(members)] if whole else self._ahead.sizes(sessions):
            read += self._step_group(members[first : first + size])
            first += size
        self._pace.step_seconds = time.perf_counter() - begin
        if not whole:
            self._ahead.step_seconds = self._pace.step_seconds
        if read:
            self.usage.steps += 1
            self.usage.step_tokens += len(read)
        for member in read:
            self._resume(member)

    def _step_group(self, members: Sequence[Member]) -> Sequence[Member]:
        """Read a token of each of some conversations, with one program; return those that have read it."""
        if len(members) == 1:
            return self._step_one_by_one(members)
        begin = time.perf_counter()
        try:
            step_together([member.session for member in members], [int(m.unread[0]) for m in members])
        except AllocationError:  # for the program: no conversation has begun the step
            return self._step_one_by_one(members)
        except Exception as error:
            for member in members:
                self._leave(member, error)
            return ()
        self.usage.replay_seconds += time.perf_counter() - begin
        return members

    def _step_one_by_one(self, members: Sequence[Member]) -> list[Member]:
        """Read a token of each conversation with its own program; return those that have read it."""
        read = []
        for member in members:
            begin = time.perf_counter()
            try:
                member.read(1, may_lead=len(self._members) == 1)
            except Exception as error:
                self._leave(member, error)
            else:
                self.usage.replay_seconds += time.perf_counter() - begin
                read.append(member)
        return read

    def _resume(self, member: Member) -> None:
        try:
            goes_on = member.resume(partial(self._begin_others, read=True))
        except Exception as error:
            self._leave(member, error)
        else:
            if not goes_on:
                self._forget(member)

    def _leave(self, member: Member, error: BaseException | None = None) -> None:
        member.leave(error)
        self._forget(member)

    def _forget(self, member: Member) -> None:
        with self._changed:
            self._members.remove(member)
            self._taken.pop(id(member))
            self._too_many = None
            self._changed.notify_all()
        if not self._stopping:
            self._begin_others(member, read=False)
