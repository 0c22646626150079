"""One user of a session at a time, and a way to stop what it does."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from pyturbo.errors import CancelledError, StateError


class Claim:
    """The right of one reply to a session, from its first chunk to its end. It ends when the object does."""

    def __init__(self) -> None:
        self.thread = 0  # the one that ran it last
        self.cancelled = False


class Guard:
    """Lets one user at a time have a session: anyone else gets a StateError at once.

    A user is a call, an iterator that reads, or a reply between its first chunk and its end. A reply that
    waits between two chunks keeps other threads out; in its own thread a new one takes over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claim: weakref.ref[Claim] | None = None
        self._cancelled = False

    @contextmanager
    def use(self, claim: Claim | None = None) -> Iterator[None]:
        """Has the session for a while, on behalf of a reply where there is one."""
        if not self._lock.acquire(blocking=False):
            raise StateError("the session is in use: expected one call, reply or read() at a time")
        try:
            owner = self._owner()
            if owner is not None and owner is not claim and owner.thread != threading.get_ident():
                raise StateError("the session is in use: a reply in another thread is not at its end")
            if claim is None:
                self._cancelled = False
            else:
                self._run(claim, owner)
            yield
        finally:
            self._lock.release()

    def release(self, claim: Claim) -> None:
        """Ends the claim of a reply that is over."""
        if self._owner() is claim:
            self._claim = None

    def cancel(self) -> bool:
        """Stops what runs before its next chunk. Returns whether anything was under way."""
        owner = self._owner()
        if owner is not None:
            owner.cancelled = True
        elif self._lock.locked():
            self._cancelled = True
        else:
            return False
        return True

    def check(self) -> None:
        """Raises CancelledError where the user of now was cancelled."""
        owner = self._owner()
        if self._cancelled or (owner is not None and owner.cancelled):
            raise CancelledError("cancelled: the session stands after the last whole chunk")

    def _owner(self) -> Claim | None:
        return None if self._claim is None else self._claim()

    def _run(self, claim: Claim, owner: Claim | None) -> None:
        """Makes a claim that is new the one of now; one that has been replaced has lost the session."""
        if claim.thread == 0:
            self._claim, self._cancelled = weakref.ref(claim), False
        elif owner is not claim:
            raise StateError("the session went on without this reply")
        claim.thread = threading.get_ident()
