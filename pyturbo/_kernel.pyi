from typing import Any

Counts = int | tuple[int, ...]

class Kernel:
    @property
    def name(self) -> str: ...
    def __call__(self, *args: Any, groups: Counts | None = None, threads: Counts | None = None) -> None: ...
