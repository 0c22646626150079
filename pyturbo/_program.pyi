from collections.abc import Sequence
from typing import Any

from pyturbo._native import Buffer, Device, Kernel
from pyturbo.symbols import Launch

class Cursor:
    position: int

class Program:
    def __init__(self, device: Device, symbols: Sequence[str] = (), blocks: Sequence[str] = ()) -> None: ...
    @property
    def symbols(self) -> tuple[str, ...]: ...
    @property
    def blocks(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def add(self, kernel: Kernel, *args: Any, label: str = "") -> None: ...
    def run(
        self,
        blocks: Sequence[Buffer] = (),
        *,
        wait: bool = True,
        cursor: Cursor | None = None,
        advance: int = 0,
        **symbols: int,
    ) -> None: ...
    def profile(
        self, blocks: Sequence[Buffer] = (), *, cursor: Cursor | None = None, advance: int = 0, **symbols: int
    ) -> list[tuple[str, str, float]]: ...
    def listing(self) -> list[Launch]: ...
