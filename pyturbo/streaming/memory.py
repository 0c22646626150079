"""The interface of the memory that experts of a packed checkpoint are used from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from pyturbo._arrays import Array
from pyturbo.streaming.served import ServedLayer


@dataclass(frozen=True)
class RecordFile:
    """The records of one layer: expert e is at byte ``e * stride``."""

    path: Path
    experts: int
    stride: int

    @property
    def place(self) -> str:
        """The layer as launches of a model name it, such as "layers.3"."""
        return f"layers.{int(self.path.stem.removeprefix('layer-'))}"


class ExpertMemory(ABC):
    """Where the records of each layer are while a model runs. Layers are numbered as in the manifest."""

    @abstractmethod
    def records(self, layer: int) -> Array:
        """Return the memory of a layer's records: uint8 [matrices, stride]."""

    @abstractmethod
    def served(self, layer: int) -> ServedLayer:
        """Return what brings experts into that memory."""

    @abstractmethod
    def check(self) -> None:
        """Raise a FileError if a file was written to, or became shorter, after it was opened."""
