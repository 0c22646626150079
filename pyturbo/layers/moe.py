"""Mixture of experts: a router chooses a few of many MLPs for each token."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyturbo import ops
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.formats import Buckets
from pyturbo.layers.decoder import FeedForward, Mlp
from pyturbo.layers.fused import Joined
from pyturbo.layers.stream import Norm, Stream, add_experts
from pyturbo.recording import traits


class Experts:
    """The MLPs that a router chooses among: ``down(activation(gate x, up x))``.

    Not all of them need be in memory. `request` comes before the call, as early as the choice is known: what
    is recorded in between runs while experts are read.
    """

    def __init__(
        self,
        weights: Weights,
        path: str,
        count: int,
        hidden: int,
        inner: int,
        *,
        bias: bool = False,
        activation: Callable[..., Any] = ops.swiglu,
    ) -> None:
        """Read the experts. `bias`: whether every expert has a bias in each of its layers."""
        self.count, self.activation = count, activation
        self._served = weights.served(path)
        #: Records which experts the next layer will probably need, given the residual stream.
        self.foresee_next: Callable[[Any], None] | None = None
        self.gate, self.up, self.down = (
            weights.experts(f"{path}.{name}_proj", (count, *size), bias)
            for name, size in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)))
        )

    def request(self, ids: Any, residual: Any) -> None:
        """Have the experts ids [tokens, k] brought into memory, unless they are all there.

        The residual stream tells what the next layer will probably need.
        """
        if self._served is None:
            return
        if self._served.looks_ahead and self.foresee_next is not None and ids.shape[0] == 1:
            self.foresee_next(residual)
        self._served.request(ids)

    def expect(self, ids: Any) -> None:
        """Have the experts ids [tokens, k] read by the layer before, because they will probably be needed."""
        if self._served is not None:
            self._served.expect(ids)

    def __call__(self, x: Any, ids: Any) -> Any:
        """Apply the experts ids [tokens, k] to x [tokens, hidden] -> [tokens, k, hidden]."""
        return self._by_expert(x, ids) if self._sorts(x) else self._by_token(x, ids)

    def _sorts(self, x: Any) -> bool:
        """Tell whether to sort tokens by expert, so that each expert is read once for all its tokens."""
        few = isinstance(x.shape[0], int) and x.shape[0] < max(2, traits().bucket_tokens)
        return not few and all(layer.grouped for layer in (self.gate, self.up, self.down))

    def _by_token(self, x: Any, ids: Any) -> Any:
        with self._passes() as slots:
            if self.activation is ops.swiglu:
                h = self.gate.apply_experts_swiglu(self.up, x, ids, slots)
            else:
                gate, up = (layer.apply_experts(x, ids, slots) for layer in (self.gate, self.up))
                h = self.activation(gate, up)
            return self.down.apply_experts(h, ids, slots)

    def _by_expert(self, x: Any, ids: Any) -> Any:
        buckets = Buckets.sort(ids, self.count)
        rows = ops.gather_rows(x, buckets.order, ids.shape[1])
        with self._passes() as slots:
            if self.activation is ops.swiglu:
                h = self.gate.apply_buckets_swiglu(self.up, rows, buckets, slots)
            else:
                gate, up = (layer.apply_buckets(rows, buckets, slots) for layer in (self.gate, self.up))
                h = self.activation(gate, up)
            y = self.down.apply_buckets(h, buckets, slots)
        return ops.gather_rows(y, buckets.inverse)

    def _passes(self) -> AbstractContextManager[Any]:
        """Record the work with experts, for all at once or as they come; gives their slots, None for all."""
        return nullcontext() if self._served is None else self._served.passes()


def read_choices(entries: Entries, experts: str) -> tuple[int, int]:
    """Return the number of experts, which is the entry `experts`, and the number that a token has."""
    count, k = entries.count(experts), entries.count("num_experts_per_tok")
    if count > ops.MAX_EXPERTS:
        raise entries.wrong(experts, f"at most {ops.MAX_EXPERTS}")
    if k > min(count, ops.MAX_CHOICES):
        raise entries.wrong("num_experts_per_tok", f"at most {min(count, ops.MAX_CHOICES)}")
    return count, k


class Moe:
    """Routed experts and, if the configuration has one, a gated expert that every token shares."""

    def __init__(self, entries: Entries, weights: Weights, path: str, *, normalize: bool) -> None:
        hidden, inner = entries.count("hidden_size"), entries.count("moe_intermediate_size")
        count, self.k = read_choices(entries, "num_experts")
        self.normalize = normalize
        self.router = weights.linear(f"{path}.gate", (count, hidden), bias=False)
        self.experts = Experts(weights, f"{path}.switch_mlp", count, hidden, inner)
        self.inputs = Joined(self.router)
        self.shared: Mlp | None = None
        if "shared_expert_intermediate_size" in entries:
            size = entries.count("shared_expert_intermediate_size")
            self.shared = Mlp(weights, f"{path}.shared_expert", hidden, size)
            gate = weights.linear(f"{path}.shared_expert_gate", (1, hidden), bias=False)
            self.inputs = Joined(self.router, gate)

    def route(self, logits: Any) -> tuple[Any, Any]:
        return ops.route(logits, self.k, self.normalize)

    def __call__(self, stream: Stream, norm: Norm) -> Stream:
        inner = gate = common = None
        x, residual, (logits, *others) = self.inputs.norm_project(stream, norm)
        if self.shared is not None:
            inner, (gate,) = self.shared.inner(x), others
        ids, probabilities = self.route(logits)
        self.experts.request(ids, residual)
        if self.shared is not None:
            common = self.shared.down.apply(inner)
        return add_experts(residual, self.experts(x, ids), probabilities, common, gate)


def sparse_or_dense(entries: Entries, weights: Weights, i: int, path: str, *, normalize: bool) -> FeedForward:
    """Return experts, or an MLP where the configuration leaves layer `i` dense."""
    dense, layers = entries.list_of("mlp_only_layers", int, []), entries.count("num_hidden_layers")
    if len(dense) > layers:
        raise entries.wrong("mlp_only_layers", f"at most {layers} layers")
    if i in dense or (i + 1) % entries.count("decoder_sparse_step", 1):
        return Mlp(weights, f"{path}.mlp", entries.count("hidden_size"), entries.count("intermediate_size"))
    return Moe(entries, weights, f"{path}.mlp", normalize=normalize)
