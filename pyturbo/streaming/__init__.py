"""Experts that are not all in memory: slots for some of them, filled from files when they are needed."""

from __future__ import annotations

from pyturbo.streaming.mapped import MappedExperts
from pyturbo.streaming.memory import ExpertMemory, RecordFile
from pyturbo.streaming.policy import MODES, Policy
from pyturbo.streaming.served import ServedLayer
from pyturbo.streaming.streamed import StreamedExperts
from pyturbo.streaming.use import ExpertUse

__all__ = [
    "MODES",
    "ExpertMemory",
    "ExpertUse",
    "MappedExperts",
    "Policy",
    "RecordFile",
    "ServedLayer",
    "StreamedExperts",
]
