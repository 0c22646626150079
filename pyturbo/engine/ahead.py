"""Programs of several conversations that are recorded in slices, while these read with others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from pyturbo.engine.session import Session
from pyturbo.engine.sliced import Sliced


class Ahead:
    """Records what is missing, one program at a time. One thread uses it.

    Attributes:
        step_seconds: How long the last step without the program took. A slice is as long at least, so that
            recording has half of the time.
    """

    def __init__(self, seconds: float) -> None:
        """Take how long a slice may be."""
        self._seconds = seconds
        self._recording: tuple[Hashable, Sliced] | None = None
        self._failed: set[Hashable] = set()  # what is recorded in one piece, so that its user meets the error
        self.step_seconds = 0.0

    def has_step(self, sessions: Sequence[Session]) -> bool:
        """Return whether `step_together` needs no recording; a slice of it is recorded otherwise.

        It needs none for a program that cannot be recorded: it will say why.
        """
        if len(sessions) == 1:
            return True
        runner, contexts = sessions[0]._runner, _contexts(sessions)
        return self._has(
            contexts,
            lambda: runner.lacks_batch(contexts),
            lambda pause: runner.record_batch(contexts, pause),
        )

    def has_reading(self, session: Session, steps: int, *, prompts: bool) -> bool:
        """Return the same for `read_together` of sessions like this one."""
        runner, context = session._runner, session.context
        return self._has(
            (context, steps, prompts),
            lambda: runner.lacks_mixed(context, steps, prompts=prompts),
            lambda pause: runner.record_mixed(context, steps, pause, prompts=prompts),
        )

    @staticmethod
    def sizes(sessions: Sequence[Session]) -> list[int]:
        """Return how many sessions, one group after the other, have a program.

        They are in the order of their contexts.
        """
        contexts, sizes = _contexts(sessions), list[int]()
        while contexts:
            sizes.append(sessions[0]._runner.longest_batch(contexts))
            contexts = contexts[sizes[-1] :]
        return sizes

    def stop(self) -> None:
        """Leave off with what is being recorded, and forget what failed."""
        if self._recording is not None:
            self._recording[1].abandon()
        self._recording = None
        self._failed.clear()

    def _has(
        self, key: Hashable, lacks: Callable[[], bool], record: Callable[[Callable[[], None]], object]
    ) -> bool:
        if key in self._failed or not lacks():
            return True
        recorded, recording = self._recording = self._recording or (key, Sliced(record))
        try:
            if not recording.advance(max(self._seconds, self.step_seconds)):
                return False
        except RuntimeError:  # there cannot be another thread
            self._failed.add(key)
        self._recording = None
        if recording.error is not None:
            self._failed.add(recorded)
        return key in self._failed or not lacks()


def _contexts(sessions: Sequence[Session]) -> tuple[int, ...]:
    return tuple(sorted(session.context for session in sessions))
