"""Query, key and value heads on their way from the projections to attention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.layers.rope import Rope


@dataclass(frozen=True, eq=False)
class HeadNorms:
    """RMS norms of query and key heads."""

    q: Array  # [dim] in any type
    k: Array
    eps: float

    @cached_property
    def exact(self) -> tuple[Array, Array]:
        """Both as float32. Only devices that join launches need it."""
        return self.q.astype(np.float32, copy=False), self.k.astype(np.float32, copy=False)

    def __call__(self, q: Any, k: Any) -> tuple[Any, Any]:
        """Record both norms -> queries, keys."""
        return ops.head_rms_norm(q, self.q, self.eps), ops.head_rms_norm(k, self.k, self.eps)


@dataclass(frozen=True, eq=False)
class HeadInputs:
    """Heads [tokens, count, dim] of the tokens from `position` on."""

    q: Any
    k: Any
    v: Any
    position: Any
    rope: Rope | None = None  # None: queries and keys are rotated
    norms: HeadNorms | None = None  # that rotation or append apply; None: heads have been normalised
    joined: bool = False  # whether norms, rotation and append are one launch
    gated: bool = False  # whether heads of q have twice the size, and gates of the result as second halves

    @property
    def gate(self) -> Any:
        return self.q if self.gated else None

    def rotate(self) -> tuple[Any, Any]:
        """Record the rotation, and the norms where they are joined -> queries, keys."""
        q, k, rope = self.q, self.k, self.rope
        if rope is None:
            return q, k
        if self.joined:
            return ops.rope_qk(q, k, self.position, *self._operands(rope))
        return rope(q, self.position), rope(k, self.position)

    def append(self, keys: Any, values: Any) -> Any:
        """Record norms, rotation, and the rows of keys and values in their caches -> queries."""
        if self.joined and self.rope is not None:
            rows = self.q, self.k, self.v, keys, values
            return ops.rope_append(*rows, self.position, *self._operands(self.rope))[0]
        q, k = self.rotate()
        ops.kv_append(keys, k, self.position)
        ops.kv_append(values, self.v, self.position)
        return q

    def _operands(self, rope: Rope) -> tuple[Any, ...]:
        norms = None if self.norms is None else (*self.norms.exact, self.norms.eps)
        return rope.inv_freq, rope.scale, rope.interleaved, norms
