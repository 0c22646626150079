"""The interface of the memory that experts of a packed checkpoint are used from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyturbo._arrays import Array
from pyturbo._experts import ExpertStore
from pyturbo.streaming.served import ServedLayer


@dataclass(frozen=True)
class RecordFile:
    """The records of one layer: expert e is at byte ``e * stride``."""

    path: Path
    experts: int
    stride: int

    @property
    def place(self) -> str:
        """The layer, such as "layers.3"; the names of its launches begin with it."""
        return f"layers.{int(self.path.stem.removeprefix('layer-'))}"


class ExpertRead(NamedTuple):
    """An expert that was read from disk, in seconds of the clock that `Program.timeline` has."""

    layer: int  # in the order of the files
    place: str  # that of the file
    expert: int
    nbytes: int
    ahead: bool  # because the layer before expected it
    begin: float
    end: float


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

    @abstractmethod
    def trace(self, on: bool) -> list[ExpertRead]:
        """Start or end the recording of reads; return those recorded since the last call, as they ended."""


def trace_store(
    store: ExpertStore, on: bool, numbers: Sequence[int], files: Sequence[RecordFile]
) -> list[ExpertRead]:
    """Call `trace` of a store whose layers have these numbers and files."""
    return [
        ExpertRead(numbers[i], files[i].place, expert, files[i].stride, ahead, begin, end)
        for i, expert, ahead, begin, end in store.trace(on)
    ]
