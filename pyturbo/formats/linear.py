"""The interface of all formats: the operations of a linear layer.

Layers are recorded, not run: activations are tensors without values. They are typed Any, because operations
are declared for arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyturbo import ops
from pyturbo._arrays import Array


class Buckets(NamedTuple):
    """The choices of all tokens, sorted by expert; see `ops.moe_buckets`."""

    ids: Any  # [tokens, k]
    offsets: Any  # [experts + 1]
    order: Any  # [tokens * k]
    inverse: Any  # [tokens, k]

    @staticmethod
    def sort(ids: Any, experts: int) -> Buckets:
        return Buckets(ids, *ops.moe_buckets(ids, experts))


@dataclass(frozen=True, eq=False)
class Linear(ABC):
    """A weight [out, in], or a stack [experts, out, in], and the bias that is added to the product."""

    bias: Array | None = field(default=None, kw_only=True)  # [out] or [experts, out]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of the weight, without the bias."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The format in words, such as "4 bits in groups of 64"."""

    @property
    def grouped(self) -> bool:
        """Whether `apply_buckets` has a kernel for this weight."""
        return True

    @property
    def foldable(self) -> bool:
        """Whether `project_q` and `project_out` have kernels for this weight."""
        return True

    def __repr__(self) -> str:
        bias = "" if self.bias is None else ", bias"
        return f"{type(self).__name__}({list(self.shape)}, {self.name}{bias})"

    def apply(self, x: Any) -> Any:
        """Return ``x W^T + bias``: x [tokens, in] -> [tokens, out]."""
        y = self._multiply(x)
        return y if self.bias is None else ops.add_bias(y, self.bias)

    def apply_swiglu(self, up: Linear, x: Any) -> Any:
        """Return ``silu(gate x) * up x``, where this layer is the gate: x [tokens, in] -> [tokens, out]."""
        return ops.swiglu(self.apply(x), up.apply(x))

    def apply_experts(self, x: Any, ids: Any, slots: Any = None) -> Any:
        """Multiply each token with its own experts: x [tokens, in] or [tokens, k, in] -> [tokens, k, out].

        With slots [experts], a stack [matrices, out, in] holds expert e as matrix slots[e]; rows of experts
        without one are not written.
        """
        y = self._multiply_experts(x, ids, slots)
        return y if self.bias is None else ops.add_expert_bias(y, self.bias, ids, slots=slots)

    def apply_experts_swiglu(self, up: Linear, x: Any, ids: Any, slots: Any = None) -> Any:
        """Return ``silu(gate x) * up x`` of each token's experts: x [tokens, in] -> [tokens, k, out].

        `slots` as for `apply_experts`; without a kernel for both products, all rows are written.
        """
        return ops.swiglu(self.apply_experts(x, ids, slots), up.apply_experts(x, ids, slots))

    def apply_buckets(self, x: Any, buckets: Buckets, slots: Any = None) -> Any:
        """Multiply rows in the order of the buckets with their experts: x [rows, in] -> [rows, out].

        `slots` as for `apply_experts`.
        """
        y = self._multiply_buckets(x, buckets.offsets, slots)
        if self.bias is None:
            return y
        return ops.add_expert_bias(y, self.bias, buckets.ids, buckets.order, slots=slots)

    def apply_buckets_swiglu(self, up: Linear, x: Any, buckets: Buckets, slots: Any = None) -> Any:
        """Return ``silu(gate x) * up x`` of rows in the order of the buckets: x [rows, in] -> [rows, out].

        `slots` as for `apply_experts_swiglu`.
        """
        gate, product = (layer.apply_buckets(x, buckets, slots) for layer in (self, up))
        return ops.swiglu(gate, product)

    @abstractmethod
    def embed(self, ids: Any) -> Any:
        """Return rows of the weight as float32: ids [tokens] -> [tokens, in]."""

    def project_q(self, q: Any) -> Any:
        """Bring the queries of latent attention into the space of the latents; see `ops.mla_project_q`."""
        return ops.mla_project_q(q, self._operand())

    def project_out(self, mix: Any, v_dim: int) -> Any:
        """Make values of a mix of latents; see `ops.mla_project_out`."""
        return ops.mla_project_out(mix, self._operand(), v_dim)

    @abstractmethod
    def rows(self, index: Array) -> Linear:
        """Copy the rows `index` of the output axis, in that order."""

    @abstractmethod
    def _operand(self) -> Any:
        """Return the weight as the operations of latent attention take it."""

    @abstractmethod
    def _multiply(self, x: Any) -> Any: ...

    @abstractmethod
    def _multiply_experts(self, x: Any, ids: Any, slots: Any) -> Any: ...

    @abstractmethod
    def _multiply_buckets(self, x: Any, offsets: Any, slots: Any) -> Any: ...
