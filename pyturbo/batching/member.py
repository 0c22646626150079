"""One conversation of an engine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pyturbo.batching.stream import Mailbox
from pyturbo.engine.generation import Chunk
from pyturbo.engine.onward import Rules
from pyturbo.engine.reply import Steps
from pyturbo.engine.session import Session
from pyturbo.engine.together import leads, read_alone


class Member:
    """A reply under way, its session, and the tokens that this must read next.

    Attributes:
        session: The conversation; it belongs to the engine.
        prompt: The tokens of its prompt.
        reading: Whether the reply has not begun.
        waits_for: Who reads tokens that the prompt begins with, too; meanwhile this one reads nothing.
        unread: Tokens to read before `resume`.
        crowded: Whether it has been at work when the program for many conversations was needed.
    """

    def __init__(
        self, mailbox: Mailbox, session: Session, prompt: NDArray[np.int32], steps: Callable[[], Steps]
    ) -> None:
        self.session, self.prompt, self.crowded = session, prompt, False
        self.reading = True
        self.waits_for: Member | None = None
        self.unread: NDArray[np.int32] = np.zeros(0, np.int32)
        self._mailbox, self._make = mailbox, steps
        self._steps: Steps | None = None
        self._rules: Rules | None = None  # of the tokens after the unread one

    @property
    def cancelled(self) -> bool:
        return self._mailbox.cancelled

    def is_twin(self, other: Member) -> bool:
        """Return whether another conversation has the same prompt, and as much room."""
        return self.session.context == other.session.context and np.array_equal(self.prompt, other.prompt)

    def resume(self, begun: Callable[[Member], None]) -> bool:
        """Deliver chunks up to the next tokens to read. Returns False at the end of the reply.

        `begun` is called after the first chunk, when the session has read the prompt and nothing else.
        """
        if self._steps is None:
            self._steps = self._make()
        for step in self._steps:
            if isinstance(step, Chunk):
                self._mailbox.put(step)
                if self.reading:
                    self.reading, self._mailbox.read = False, self.session.position
                    begun(self)
            else:
                self.unread, self._rules = step
                return True
        self.leave()
        return False

    @property
    def leads(self) -> bool:
        """Whether its session has begun to read its unread token: `read` must be called for it."""
        return leads(self.session)

    def read(self, count: int, *, may_lead: bool = False) -> None:
        """Read the first `count` unread tokens, alone; its session leads afterwards if it may and can."""
        read_alone(self.session, self.unread[:count], self._rules if may_lead else None)
        self.has_read(count)

    def has_read(self, count: int) -> None:
        """Note that the first `count` unread tokens were read."""
        self.unread = self.unread[count:]
        self._mailbox.read = self.session.position

    def tell_end(self, error: BaseException) -> None:
        """Tell whoever waits for the reply why it ends, from any thread; its session may still be at work."""
        self._mailbox.end(error)

    def leave(self, error: BaseException | None = None) -> None:
        """End the reply, because it is over, was cancelled or failed."""
        try:
            if self._steps is not None:
                self._steps.close()
        finally:
            try:
                self.session.close()
            finally:
                self._mailbox.end(error)
