"""Several products of one token's input in one launch, for weights of any format."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo.errors import ArgumentError
from pyturbo.ops._run import Array, Target, empty, launch, operand, result

#: The most weights of one launch.
MAX_PROJECTIONS = 4


class Projection(NamedTuple):
    """One of the weights."""

    arrays: tuple[Array, ...]  # as kernels take them
    in_dim: int
    out_dim: int
    form: Hashable  # weights of one launch have equal forms


class Projections:
    """An input [1, in], weights of one form, and the biases of all their rows."""

    def __init__(
        self, op: str, x: ArrayLike, weights: Sequence[Projection], bias: ArrayLike | None = None
    ) -> None:
        forms = {(w.in_dim, w.form) for w in weights}
        if len(forms) > 1:
            raise ArgumentError(f"{op}: weights: expected one format, got {len(forms)}")
        self.weights, self.in_dim = weights, weights[0].in_dim
        self.x = operand(op, "x", x, np.float32, (1, self.in_dim))
        rows = sum(w.out_dim for w in weights)
        self.bias = None if bias is None else operand(op, "bias", bias, np.float32, (rows,))

    def launch(
        self,
        device: Target,
        kernel: str,
        before: Sequence[Any] = (),
        between: Sequence[Any] = (),
        after: Sequence[Any] = (),
        **constants: bool,
    ) -> tuple[Array, ...]:
        """Launch a kernel with its own arguments before the weights, after them, and after the sizes."""
        count, absent = len(self.weights), MAX_PROJECTIONS - len(self.weights)
        results = [empty(device, (1, w.out_dim)) for w in self.weights]
        arrays = [array for w, y in zip(self.weights, results) for array in (*w.arrays, y)]
        arrays += [None] * (absent * (len(self.weights[0].arrays) + 1))
        outs = [w.out_dim for w in self.weights] + [0] * absent
        constants |= {f"has_{name}": i < count for i, name in enumerate("bcd", start=1)}
        args = self.x, *before, *arrays, *between, self.in_dim, *outs, *after
        launch(device, kernel, *args, constants=constants)
        return tuple(result(y) for y in results)


def check_count(op: str, weights: Any) -> None:
    """Refuse what is no list of as many weights as a launch may have."""
    if not isinstance(weights, (tuple, list)) or not 1 <= len(weights) <= MAX_PROJECTIONS:
        got = f"{len(weights)} of them" if isinstance(weights, (tuple, list)) else type(weights).__name__
        raise ArgumentError(f"{op}: weights: expected 1 to {MAX_PROJECTIONS} weights, got {got}")


def check_weights(op: str, weights: Any, *parts: str) -> None:
    """Refuse what is no such list of weights with these parts."""
    check_count(op, weights)
    for i, weight in enumerate(weights):
        if not isinstance(weight, (tuple, list)) or len(weight) != len(parts):
            got = f"{len(weight)} items" if isinstance(weight, (tuple, list)) else type(weight).__name__
            raise ArgumentError(f"{op}: weights[{i}]: expected ({', '.join(parts)}), got {got}")
