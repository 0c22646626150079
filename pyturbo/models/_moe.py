"""Mixture of experts: a router sends each token through a few of many MLPs."""

from __future__ import annotations

from typing import Any

from pyturbo import ops
from pyturbo.checkpoint import Affine, Fp, Linear, Weights
from pyturbo.models._config import Entries
from pyturbo.models._decoder import FeedForward, Mlp, apply, pair


def apply_experts(layer: Linear, x: Any, ids: Any) -> Any:
    """Each token times its own experts: x [tokens, in] or [tokens, k, in] -> [tokens, k, out]."""
    if isinstance(layer, Affine):
        return ops.experts_matmul(x, ids, *layer.weight)
    if isinstance(layer, Fp):
        return ops.fp_experts_matmul(x, ids, *layer.weight)
    return ops.dense_experts_matmul(x, ids, layer.weight)


def apply_buckets(layer: Linear, x: Any, offsets: Any) -> Any:
    """Rows sorted by expert times their own, which is quantised: x [rows, in] -> [rows, out]."""
    if isinstance(layer, Fp):
        return ops.fp_grouped_matmul(x, offsets, *layer.weight)
    return ops.grouped_matmul(x, offsets, *layer.weight)


class Experts:
    """The MLPs that a router chooses among."""

    def __init__(self, weights: Weights, path: str, count: int, hidden: int, inner: int) -> None:
        self.count = count
        self.gate, self.up = (
            weights.experts(f"{path}.switch_mlp.{name}_proj", (count, inner, hidden))
            for name in ("gate", "up")
        )
        self.down = weights.experts(f"{path}.switch_mlp.down_proj", (count, hidden, inner))

    def __call__(self, x: Any, ids: Any) -> Any:
        """x [tokens, hidden] through the experts ids [tokens, k] -> [tokens, k, hidden]."""
        return self._by_expert(x, ids) if self._sorts(x) else self._by_token(x, ids)

    def _sorts(self, x: Any) -> bool:
        """Many tokens are sorted by expert, so that each expert is read once for all of its tokens."""
        one = isinstance(x.shape[0], int) and x.shape[0] == 1
        return not one and all(isinstance(layer, (Affine, Fp)) for layer in (self.gate, self.up, self.down))

    def _by_token(self, x: Any, ids: Any) -> Any:
        if both := pair(self.gate, self.up):
            h = ops.affine_experts_swiglu(x, ids, *both)
        else:
            h = ops.swiglu(apply_experts(self.gate, x, ids), apply_experts(self.up, x, ids))
        return apply_experts(self.down, h, ids)

    def _by_expert(self, x: Any, ids: Any) -> Any:
        offsets, order, inverse = ops.moe_buckets(ids, self.count)
        rows = ops.gather_rows(x, order, ids.shape[1])
        h = ops.swiglu(*(apply_buckets(w, rows, offsets) for w in (self.gate, self.up)))
        return ops.gather_rows(apply_buckets(self.down, h, offsets), inverse)


def read_choices(entries: Entries, experts: str) -> tuple[int, int]:
    """How many experts there are, by the entry of that name, and how many a token has."""
    count, k = entries.count(experts), entries.count("num_experts_per_tok")
    if count > ops.MAX_EXPERTS:
        raise entries.wrong(experts, f"at most {ops.MAX_EXPERTS}")
    if k > min(count, ops.MAX_CHOICES):
        raise entries.wrong("num_experts_per_tok", f"at most {min(count, ops.MAX_CHOICES)}")
    return count, k


class Moe:
    """Routed experts, and where the configuration has one, a gated expert for every token."""

    def __init__(self, entries: Entries, weights: Weights, path: str, *, normalize: bool) -> None:
        hidden, inner = entries.count("hidden_size"), entries.count("moe_intermediate_size")
        count, self.k = read_choices(entries, "num_experts")
        self.normalize = normalize
        self.router = weights.linear(f"{path}.gate", (count, hidden), bias=False)
        self.experts = Experts(weights, path, count, hidden, inner)
        self.shared: Mlp | None = None
        if "shared_expert_intermediate_size" in entries:
            size = entries.count("shared_expert_intermediate_size")
            self.shared = Mlp(weights, f"{path}.shared_expert", hidden, size)
            self.shared_gate = weights.linear(f"{path}.shared_expert_gate", (1, hidden), bias=False)

    def __call__(self, x: Any, residual: Any) -> Any:
        choices = apply(self.router, x)
        inner = gate = common = None
        if self.shared is not None:
            inner, gate = self.shared.inner(x), apply(self.shared_gate, x)
        ids, probabilities = ops.route(choices, self.k, self.normalize)
        if self.shared is not None:
            common = apply(self.shared.down, inner)
        return ops.moe_combine(residual, self.experts(x, ids), probabilities, common, gate)


def sparse_or_dense(entries: Entries, weights: Weights, i: int, path: str, *, normalize: bool) -> FeedForward:
    """Experts, unless the configuration leaves layer `i` dense."""
    dense = entries.list_of("mlp_only_layers", int, [])
    if i in dense or (i + 1) % entries.count("decoder_sparse_step", 1):
        return Mlp(weights, f"{path}.mlp", entries.count("hidden_size"), entries.count("intermediate_size"))
    return Moe(entries, weights, f"{path}.mlp", normalize=normalize)
