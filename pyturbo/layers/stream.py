"""The residual stream between the parts of layers: a sum that is recorded with the norm that reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.recording import fuses


@dataclass(frozen=True, eq=False)
class Norm:
    """An RMS norm."""

    weight: Array  # [hidden]
    eps: float

    def __call__(self, x: Any) -> Any:
        return ops.rms_norm(x, self.weight, self.eps)


class Stream(ABC):
    """The residual stream [tokens, hidden]. One of its two methods is called, once."""

    @abstractmethod
    def total(self) -> Any:
        """Record the sum."""

    def normed(self, norm: Norm) -> tuple[Any, Any]:
        """Record the sum and its norm -> normalised, sum."""
        x = self.total()
        return norm(x), x


@dataclass(frozen=True, eq=False)
class Known(Stream):
    """A stream that has been recorded."""

    x: Any

    def total(self) -> Any:
        return self.x


@dataclass(frozen=True, eq=False)
class Sum(Stream):
    """The stream after the result of a part is added."""

    residual: Any
    added: Any

    def total(self) -> Any:
        return ops.add(self.residual, self.added)

    def normed(self, norm: Norm) -> tuple[Any, Any]:
        h, x = ops.rms_norm(self.added, norm.weight, norm.eps, self.residual)
        return h, x


@dataclass(frozen=True, eq=False)
class ExpertSum(Stream):
    """The stream after the experts of each token are added; see `ops.moe_combine`."""

    residual: Any
    rows: Any  # [tokens, k, hidden]
    weights: Any  # [tokens, k]
    shared: Any = None
    shared_gate: Any = None

    def total(self) -> Any:
        return ops.moe_combine(self.residual, self.rows, self.weights, self.shared, self.shared_gate)

    def normed(self, norm: Norm) -> tuple[Any, Any]:
        shared = self.shared, self.shared_gate
        return ops.moe_combine_norm(self.residual, self.rows, self.weights, norm.weight, norm.eps, *shared)


def add_experts(
    residual: Any, rows: Any, weights: Any, shared: Any = None, shared_gate: Any = None
) -> Stream:
    """Add the experts of each token to the stream: with the norm that follows, or else at once."""
    joined = ExpertSum(residual, rows, weights, shared, shared_gate)
    return joined if fuses() else Known(joined.total())
