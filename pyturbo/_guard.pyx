"""Guard: one user of a session at a time, and a way to stop what it does.

Compiled, because a signal handler never runs between taking a session and the `with` statement that gives it
back: Python code in between could be interrupted, and the session would stay taken.
"""

from cpython.pythread cimport PyThread_get_thread_ident

import weakref

from pyturbo.errors import CancelledError, StateError


cdef class Claim:
    """The right of one reply to a session, from its first chunk to its end. It ends when the object does."""

    cdef unsigned long thread        # that ran it last; 0 before the first chunk
    cdef public bint cancelled
    cdef object __weakref__


cdef class Guard:
    """Gives a session to one user at a time; anyone else gets a StateError at once.

    A user is a call, an iterator that reads, or a reply between its first chunk and its end. A reply that waits
    between two chunks keeps other threads out, until it is cancelled; in its own thread a new one takes over.
    """

    cdef bint taken
    cdef bint cancelled              # whether a user that is not a reply was cancelled
    cdef Claim running               # the reply that is the user
    cdef object waiting              # a weak reference to the claim that holds between its chunks

    def use(self, Claim claim=None):
        """Return a context in which the session belongs to the caller, or to a reply."""
        return _Use(self, claim)

    def release(self, Claim claim not None):
        """End the claim of a reply that is over."""
        if self._owner() is claim:
            self.waiting = None

    def cancel(self):
        """Stop the call or reply under way before its next chunk. Returns whether there was one."""
        cdef Claim owner = self._owner()
        waits = owner is not None and not owner.cancelled
        if owner is not None:
            owner.cancelled = True
        self.cancelled = self.taken
        return waits or bool(self.taken)

    def check(self):
        """Raise CancelledError if the current user was cancelled."""
        if self.cancelled if self.running is None else self.running.cancelled:
            raise CancelledError("cancelled: the session stands after the last whole chunk")

    cdef Claim _owner(self):
        return None if self.waiting is None else self.waiting()

    cdef int _enter(self, Claim claim) except -1:
        cdef Claim owner = self._owner()
        waiting = None if claim is None else weakref.ref(claim)  # from here on nothing lets another thread in
        if self.taken:
            raise StateError("the session is in use: expected one call, reply or read() at a time")
        if owner is not None and owner is not claim and not owner.cancelled:
            if owner.thread != PyThread_get_thread_ident():
                raise StateError("the session is in use: a reply in another thread is not at its end")
        if claim is not None and claim.thread != 0 and owner is not claim:
            raise StateError("the session went on without this reply")
        if claim is not None:
            claim.thread = PyThread_get_thread_ident()
            self.waiting = waiting
        self.taken, self.cancelled, self.running = True, False, claim
        return 0


cdef class _Use:
    cdef Guard guard
    cdef Claim claim

    def __cinit__(self, Guard guard not None, Claim claim):
        self.guard, self.claim = guard, claim

    def __enter__(self):
        self.guard._enter(self.claim)

    def __exit__(self, kind, error, trace):
        self.guard.taken, self.guard.running = False, None
