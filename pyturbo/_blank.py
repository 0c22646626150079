"""Arrays without memory. They show what loading a checkpoint would take, from the headers of its files."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Ledger:
    """The memory that loading would take at once, apart from mapped files."""

    def __init__(self) -> None:
        self.held = 0
        self.peak = 0

    def array(self, shape: tuple[int, ...], dtype: Any, mapped: bool = False) -> Blank:
        """Return an array of that shape, which holds its bytes until it is gone; a mapped one holds none."""
        blank = np.broadcast_to(np.zeros((), dtype), shape).view(Blank)
        blank.mapped, blank.ledger = mapped, self
        blank.holder = None if mapped else _Holder(self, blank.nbytes)
        return blank

    def work(self, nbytes: int) -> None:
        """Count memory that is needed only temporarily."""
        self.peak = max(self.peak, self.held + nbytes)

    def add(self, nbytes: int) -> None:
        """Count memory from now on; a negative number gives it back."""
        self.held += nbytes
        self.work(0)


class _Holder:
    """Memory that arrays and their views share; it is given back with the last of them."""

    def __init__(self, ledger: Ledger, nbytes: int) -> None:
        ledger.add(nbytes)
        weakref.finalize(self, ledger.add, -nbytes).atexit = False


class Blank(np.ndarray[Any, np.dtype[Any]]):
    """An array of zeros without memory of its own; a copy of it is an array like any other.

    Attributes:
        mapped: Whether loading would use the mapped file in its place.
        path: The name of the tensor, or the path of the layer, that it belongs to.
    """

    mapped: bool
    path: str
    ledger: Ledger | None
    holder: _Holder | None

    def __array_finalize__(self, source: Any) -> None:
        view = not any(self.strides)
        self.mapped = view and getattr(source, "mapped", False)
        self.path = getattr(source, "path", "")
        self.ledger = getattr(source, "ledger", None)
        self.holder = getattr(source, "holder", None) if view else None

    def retyped(self, shape: tuple[int, ...], dtype: Any) -> Blank:
        """Return the same bytes as an array of another shape and type."""
        blank = np.broadcast_to(np.zeros((), dtype), shape).view(Blank)
        blank.mapped, blank.path, blank.ledger, blank.holder = (
            self.mapped,
            self.path,
            self.ledger,
            self.holder,
        )
        return blank

    def copied(self, shape: tuple[int, ...]) -> Blank:
        """Return a copy of some of its rows."""
        blank = (self.ledger or Ledger()).array(shape, self.dtype)
        blank.path = self.path
        return blank


def as_words(array: NDArray[Any]) -> NDArray[Any]:
    """Return uint8 [..., 4 n] as uint32 [..., n]."""
    if isinstance(array, Blank):
        return array.retyped((*array.shape[:-1], array.shape[-1] // 4), np.uint32)
    return array.view(np.uint32)
