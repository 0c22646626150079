"""How much a model keeps of what its conversations have read, as a user says it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from pyturbo._arguments import byte_count, path_of
from pyturbo._machine import machine_memory
from pyturbo._messages import shown
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.runner import Runner
from pyturbo.errors import ArgumentError

_MEMORY_SHARE = 8  # of the machine's memory, where the caller does not say


@dataclass(frozen=True)
class PrefixCache:
    """How much a model may keep of what its conversations have read; `pyturbo.load` takes it.

    Attributes:
        memory: Bytes in memory, such as "2GB"; None is an eighth of the memory of this machine.
        folder: Where it is kept on disk too, for the next process; None: nowhere.
        disk: Bytes of the files in that folder.

    Examples:
        >>> model = pyturbo.load(prefix_cache=pyturbo.PrefixCache("64MB"))
        >>> model.generate("Once upon a time, there was", 4).stats.cached_tokens
        0
        >>> model.generate("Once upon a time, there was", 4).stats.cached_tokens
        7
    """

    memory: int | str | None = None
    folder: str | PathLike[str] | None = None
    disk: int | str = "16GB"

    def __post_init__(self) -> None:
        if self.memory is not None:
            byte_count("prefix_cache: memory", self.memory)
        byte_count("prefix_cache: disk", self.disk)
        if self.folder is not None:
            path_of("prefix_cache: folder", self.folder)

    @staticmethod
    def of(given: Any) -> PrefixCache | None:
        """Return what `pyturbo.load` was given: settings, bytes of memory, or None."""
        if given is None or isinstance(given, PrefixCache):
            return given
        if isinstance(given, bool) or not isinstance(given, (int, str)):
            raise ArgumentError(f"load: prefix_cache: expected bytes or a PrefixCache, got {shown(given)}")
        return PrefixCache(byte_count("load: prefix_cache", given))

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        memory = machine_memory() // _MEMORY_SHARE if self.memory is None else self.memory
        return byte_count("prefix_cache: memory", memory)

    def share(self, models: int) -> PrefixCache:
        """Return what each of several models may keep in memory, if this is for all of them."""
        return replace(self, memory=max(1, self.nbytes // models))

    def store(self, runner: Runner) -> PrefixStore:
        """Make the store of a model."""
        return PrefixStore(runner, self.nbytes, self.folder, byte_count("prefix_cache: disk", self.disk))
