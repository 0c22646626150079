"""Experts in fewer bits than their checkpoint has, and the error that this adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pyturbo._dtypes import bfloat16
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.stream import Block, Spec, Stream
from pyturbo.errors import FormatError
from pyturbo.pack.fit import fit_affine

#: Bits that experts can be quantised to again.
EXPERT_BITS = (2, 3)

_GROUP_SIZES = (64, 32)  # the first that divides a row


@dataclass(frozen=True)
class Squares:
    """Sums over values: of the squares of their errors, and of their own squares."""

    errors: float = 0.0
    values: float = 0.0

    @staticmethod
    def sum(parts: Iterable[Squares]) -> Squares:
        every = list(parts)
        return Squares(sum(part.errors for part in every), sum(part.values for part in every))

    @property
    def relative_error(self) -> float:
        """Return the root mean square of the errors over that of the values."""
        return (self.errors / self.values) ** 0.5 if self.values else 0.0


class RequantizedStream(Stream):
    """The values of another stream in the affine format, with `bits` for each.

    Scales have the type of those of the other stream, or bfloat16 if that has 32 bits or small floats.
    """

    def __init__(self, inner: Stream, bits: int) -> None:
        source = inner.source
        group = next((size for size in _GROUP_SIZES if source.shape[-1] % size == 0), None)
        if group is None:
            raise FormatError(
                f"{source.name}: expected rows of whole groups of {_GROUP_SIZES[-1]}, got {source.shape[-1]}"
            )
        own = inner.arrays.get("scales", inner.arrays["weight"]).dtype
        self._dtype = own if own in (np.float16, bfloat16) else bfloat16
        groups = Spec(self._dtype, (*source.shape[:-1], source.shape[-1] // group))
        words = Spec(np.dtype(np.uint32), (*source.shape[:-1], source.shape[-1] * bits // 32))
        arrays = {"weight": words, "scales": groups, "biases": groups}
        super().__init__(source, arrays, Format(bits, group, "affine"), stacked=inner.stacked)
        self.global_scale = None
        self._inner = inner
        #: Errors of the matrices that were read to their end.
        self.squares: dict[int, Squares] = {}

    def blocks(self, matrix: int = 0) -> Iterator[Block]:
        assert self.format is not None
        bits, group = self.format.bits, self.format.group_size
        errors = squares = 0.0
        for block in self._inner.blocks(matrix):
            values = self._inner.values(block, matrix)
            packed, scales, biases, error = fit_affine(values, bits, group, self._dtype)
            errors += error
            squares += float(np.square(values, dtype=np.float64).sum())
            yield {"weight": packed, "scales": scales, "biases": biases}
        self.squares[matrix] = Squares(errors, squares)

    def _reader(self, matrix: int) -> Callable[[int, int], Block]:
        raise NotImplementedError("blocks are read from the inner stream")
