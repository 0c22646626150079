"""Parts that all architectures share: the gated MLP and the stack of layers.

Layers are recorded, not run: operations pass tensors without values to each other. These are typed Any,
because operations are declared for arrays. Operations that do not depend on each other are recorded next to
each other, so that a device can run them together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.layers.config import max_context, norm_eps
from pyturbo.layers.step import KvFormat, Piece, Step, Steps
from pyturbo.layers.stream import Norm, Stream, Sum
from pyturbo.recording import label


class Mixer(Protocol):
    """The part of a layer that reads other tokens, by attention or by recurrent state."""

    name: str  # the path of its weights, such as model.layers.0.self_attn; the last part labels its launches
    kind: str  # for people, such as "attention" or "delta net"

    def state(self, context: int, chunk: int, kv: KvFormat) -> dict[str, Piece]:
        """Return its state for `context` tokens, of which up to `chunk` are read at once."""

    def __call__(self, x: Any, step: Step | Steps) -> Any: ...


#: The part of a layer that works token by token: it normalises the stream, and returns the next one.
FeedForward = Callable[[Stream, Norm], Stream]


class Mlp:
    """``down(silu(gate x) * up x)``, with biases if the checkpoint has them.

    Gate and up are one launch where their formats have a kernel for it.
    """

    def __init__(self, weights: Weights, path: str, hidden: int, inner: int) -> None:
        self.gate = weights.linear(f"{path}.gate_proj", (inner, hidden))
        self.up = weights.linear(f"{path}.up_proj", (inner, hidden))
        self.down = weights.linear(f"{path}.down_proj", (hidden, inner))

    def inner(self, x: Any) -> Any:
        """Return the input of `down`."""
        return self.gate.apply_swiglu(self.up, x)

    def __call__(self, stream: Stream, norm: Norm) -> Stream:
        h, x = stream.normed(norm)
        return Sum(x, self.down.apply(self.inner(h)))


class Layer:
    """A layer: ``x + mixer(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(
        self, weights: Weights, path: str, hidden: int, eps: float, mixer: Mixer, mlp: FeedForward
    ) -> None:
        self.name, self.mixer, self.mlp = path, mixer, mlp
        self.before = Norm(weights.tensor(f"{path}.input_layernorm.weight", (hidden,)), eps)
        self.between = Norm(weights.tensor(f"{path}.post_attention_layernorm.weight", (hidden,)), eps)

    def __repr__(self) -> str:
        parts = (type(part).__name__ for part in (self.mixer, self.mlp))
        return f"Layer({self.name!r}, {', '.join(parts)})"

    def foresee(self, residual: Any) -> None:
        """Record which experts the router would choose if the layer before added nothing more."""
        sparse: Any = self.mlp
        ids, _ = sparse.route(sparse.router.apply(self.between(residual)))
        sparse.experts.expect(ids)

    def __call__(self, stream: Stream, step: Step | Steps) -> Stream:
        with label(self.mixer.name.rpartition(".")[2]):
            h, x = stream.normed(self.before)
            mixed = self.mixer(h, step)
        with label("mlp"):
            return self.mlp(Sum(x, mixed), self.between)


class Decoder:
    """Embedding, layers, final norm and output layer. An architecture provides the parts of each layer."""

    def __init__(
        self,
        entries: Entries,
        weights: Weights,
        mixer: Callable[[int, str], Mixer],
        mlp: Callable[[int, str], FeedForward],
        head_bias: bool | None = False,
    ) -> None:
        """Build the network. `mixer` and `mlp` make the parts of a layer from its number and path.

        `head_bias` says whether the output layer has a bias; None allows both.
        """
        if entries.text("hidden_act", "silu") not in ("silu", "swish"):
            raise entries.wrong("hidden_act", "silu")
        hidden = entries.count("hidden_size")
        self.vocab = entries.count("vocab_size")
        self.context, self.eps = max_context(entries), norm_eps(entries)
        self.embedding = weights.linear("model.embed_tokens", (self.vocab, hidden))
        self.layers: list[Layer] = []
        for i in range(entries.count("num_hidden_layers")):
            path = f"model.layers.{i}"
            self.layers.append(Layer(weights, path, hidden, self.eps, mixer(i, path), mlp(i, path)))
        sparse = [layer for layer in self.layers if hasattr(layer.mlp, "experts")]
        for layer, following in pairwise(sparse):
            layer.mlp.experts.foresee_next = following.foresee  # type: ignore[attr-defined]
        self.norm = Norm(weights.tensor("model.norm.weight", (hidden,)), self.eps)
        self.head = weights.linear("lm_head", (self.vocab, hidden), bias=head_bias)

    def __repr__(self) -> str:
        return f"Decoder(layers={len(self.layers)}, vocab={self.vocab}, context={self.context})"

    def state(self, context: int, chunk: int, kv: KvFormat) -> dict[str, Piece]:
        """Return all state of a conversation of `context` tokens, of which up to `chunk` are read at once."""
        pieces: dict[str, Piece] = {}
        for layer in self.layers:
            pieces.update(layer.mixer.state(context, chunk, kv))
        return pieces
