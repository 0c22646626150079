from collections.abc import Sequence
from typing import Any

from pyturbo._buffer import Buffer
from pyturbo._device import Device
from pyturbo._host_loop import HostLoop
from pyturbo._kernel import Kernel
from pyturbo.symbols import Launch, Loop, Part, Timeline

class Cursor:
    position: int

class Program:
    def __init__(self, device: Device, symbols: Sequence[str] = (), blocks: Sequence[str] = ()) -> None: ...
    @property
    def symbols(self) -> tuple[str, ...]: ...
    @property
    def blocks(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def add(
        self, kernel: Kernel, *args: Any, label: str = "", when: str | None = None, group: int = 0
    ) -> None: ...
    def ask(self, loop: HostLoop) -> None: ...
    def begin_passes(self) -> None: ...
    def end_passes(self) -> None: ...
    def prepare(self, blocks: Sequence[Buffer | None] | None = None, **symbols: int | Cursor) -> None: ...
    def run(
        self,
        blocks: Sequence[Buffer | None] = (),
        *,
        wait: bool = True,
        advance: int | dict[str, int] = 0,
        ahead: bool | dict[str, int] = False,
        **symbols: int | Cursor,
    ) -> None: ...
    def profile(
        self,
        blocks: Sequence[Buffer | None] = (),
        *,
        advance: int | dict[str, int] = 0,
        **symbols: int | Cursor,
    ) -> list[tuple[str, str, float]]: ...
    def timeline(
        self,
        blocks: Sequence[Buffer | None] = (),
        *,
        advance: int | dict[str, int] = 0,
        **symbols: int | Cursor,
    ) -> Timeline: ...
    def listing(self) -> list[Launch]: ...
    def loops(self) -> list[Loop]: ...
    def parts(self, blocks: Sequence[Buffer | None] = (), **symbols: int | Cursor) -> list[Part]: ...
