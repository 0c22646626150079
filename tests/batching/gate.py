"""Holding an engine."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyturbo.engine.session import Session


class Gate:
    """Holds an engine in its next step or piece of a prompt until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self.reached, advance = threading.Event(), threading.Event(), Session._advance

        def held(session: Session, *args: Any) -> Any:
            self.reached.set()
            assert self._open.wait(60)
            return advance(session, *args)

        monkeypatch.setattr(Session, "_advance", held)

    def open(self) -> None:
        self._open.set()
