"""How often experts were in memory when they were needed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExpertUse:
    """Experts that steps needed, each counted once for a step and layer.

    Attributes:
        hits: Experts that were in memory.
        misses: Experts that had to be read.
        read_bytes: Bytes that were read.
        wait_seconds: Time in which steps waited for reads and computed nothing.
    """

    hits: int = 0
    misses: int = 0
    read_bytes: int = 0
    wait_seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        """The share of hits; 1 if no experts were needed."""
        needed = self.hits + self.misses
        return self.hits / needed if needed else 1.0

    def __add__(self, other: ExpertUse) -> ExpertUse:
        return ExpertUse(
            self.hits + other.hits,
            self.misses + other.misses,
            self.read_bytes + other.read_bytes,
            self.wait_seconds + other.wait_seconds,
        )

    def __sub__(self, other: ExpertUse) -> ExpertUse:
        return ExpertUse(
            self.hits - other.hits,
            self.misses - other.misses,
            self.read_bytes - other.read_bytes,
            self.wait_seconds - other.wait_seconds,
        )
