"""Many conversations with one model at once."""

from __future__ import annotations

from pyturbo.batching.engine import Engine
from pyturbo.batching.scheduler import Usage
from pyturbo.batching.stream import Stream

__all__ = ["Engine", "Stream", "Usage"]
