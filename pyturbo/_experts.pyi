from collections.abc import Iterable
from os import PathLike
from typing import Any

from pyturbo._buffer import Buffer
from pyturbo._host_loop import HostLoop

COUNTERS: tuple[str, ...]

class ExpertStore:
    def __init__(
        self,
        files: Iterable[tuple[str | PathLike[str], int]],
        stride: int,
        slab: Buffer,
        tables: Buffer,
        *,
        threads: int = 8,
        direct: bool = True,
        split: int = 1 << 20,
        half_life: float = 32.0,
        top_k: int = 1,
        staging: int = 0,
        pass_experts: int = 1,
    ) -> None: ...
    @staticmethod
    def mapped(
        records: Iterable[Buffer],
        stride: int,
        tables: Buffer,
        *,
        threads: int = 8,
        split: int = 1 << 20,
        pass_experts: int = 1,
    ) -> ExpertStore: ...
    @property
    def layers(self) -> int: ...
    @property
    def direct(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def slots(self) -> int: ...
    @property
    def filled(self) -> int: ...
    def check_files(self) -> None: ...
    def resize(self, slots: int, staging: int = 0) -> None: ...
    def loop(self, layer: int, ahead: int | None = None) -> HostLoop: ...
    def stats(self) -> list[dict[str, Any]]: ...
    def reset_stats(self) -> None: ...
    def trace(self, on: bool = True) -> list[tuple[int, int, bool, float, float]]: ...
    def close(self) -> None: ...
    def __enter__(self) -> ExpertStore: ...
    def __exit__(self, *exception: object) -> None: ...

def time_reads(
    files: Iterable[tuple[str | PathLike[str], int]],
    stride: int,
    slab: Buffer,
    records: Iterable[tuple[int, int]],
    *,
    seconds: float,
    threads: int = 8,
    direct: bool = True,
    split: int = 0,
) -> tuple[list[float], bool]: ...
