"""Work in slices, between which its caller does other things."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class _Abandoned(BaseException):
    """Ends work that nobody goes on with."""


class Sliced:
    """Runs `work` in a thread of its own, which only moves while `advance` waits for it.

    It is given a function, which it calls wherever a slice may end.

    Attributes:
        done: Whether it has ended.
        error: What it raised.
    """

    def __init__(self, work: Callable[[Callable[[], None]], object]) -> None:
        self._work, self._until = work, 0.0
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False
        self.done = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pyturbo-recording", daemon=True)

    def advance(self, seconds: float) -> bool:
        """Let it work until the first end of a slice after that time; return whether it is done."""
        if not self.done:
            self._until = time.perf_counter() + seconds
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._go.release()
            self._back.acquire()
        return self.done

    def abandon(self) -> None:
        """End it where it is, and wait for that."""
        self._abandoned = True
        self._go.release()
        if self._thread.ident is not None:
            self._thread.join()

    def _pause(self) -> None:
        if time.perf_counter() < self._until:
            return
        self._back.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def _run(self) -> None:
        try:
            self._work(self._pause)
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._back.release()
