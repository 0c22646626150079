"""Programs of several conversations that are recorded in slices, while these read with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pyturbo.engine.session import Session
from pyturbo.engine.sliced import Sliced


class Ahead:
    """Records what is missing, one program at a time. One thread uses it."""

    def __init__(self, seconds: float) -> None:
        """Take how long a slice may be."""
        self._seconds = seconds
        self._recording: Sliced | None = None

    def has_step(self, sessions: Sequence[Session]) -> bool:
        """Return whether nothing is missing for `step_together`; a slice of it is recorded otherwise.

        Where there is no memory for it, nothing is missing.
        """
        if len(sessions) == 1:
            return True
        runner, contexts = sessions[0]._runner, _contexts(sessions)
        return self._has(
            partial(runner.lacks_batch, contexts), lambda pause: runner.record_batch(contexts, pause)
        )

    def has_reading(self, session: Session, steps: int, *, prompts: bool) -> bool:
        """Return the same for `read_together` of sessions like this one."""
        runner, context = session._runner, session.context
        return self._has(
            lambda: runner.lacks_mixed(context, steps, prompts=prompts),
            lambda pause: runner.record_mixed(context, steps, pause, prompts=prompts),
        )

    def sizes(self, sessions: Sequence[Session]) -> list[int]:
        """Return how many of the sessions, in the order of their contexts, can step together, one group
        after the other."""
        left, sizes = list(sessions), []
        while left:
            counts = range(len(left), 1, -1)
            known = (n for n in counts if not left[0]._runner.lacks_batch(_contexts(left[:n])))
            sizes.append(next(known, 1))
            del left[: sizes[-1]]
        return sizes

    def stop(self) -> None:
        """Leave off with what is being recorded."""
        if self._recording is not None:
            self._recording.abandon()

    def _has(self, lacks: Callable[[], bool], record: Callable[[Callable[[], None]], object]) -> bool:
        if not lacks():
            return True
        if self._recording is None:
            self._recording = Sliced(record)
        recording = self._recording
        if not recording.advance(self._seconds):
            return False
        self._recording = None
        return recording.error or not lacks()


def _contexts(sessions: Sequence[Session]) -> tuple[int, ...]:
    return tuple(sorted(session.context for session in sessions))
