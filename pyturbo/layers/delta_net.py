"""The gated delta net: a mixer whose state is one matrix per head, however long the conversation is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pyturbo import ops
from pyturbo._arrays import Array
from pyturbo.checkpoint import Weights
from pyturbo.checkpoint.entries import Entries
from pyturbo.formats import Linear
from pyturbo.layers.config import norm_eps
from pyturbo.layers.fused import Joined
from pyturbo.layers.step import KvFormat, Piece, Step, Steps
from pyturbo.recording import fuses

_TAPS = 4  # width of the convolution


@dataclass(frozen=True)
class Heads:
    """Queries and keys have `keys` heads of `key_dim`, values `values` heads of `value_dim`."""

    keys: int
    values: int
    key_dim: int
    value_dim: int

    @staticmethod
    def read(entries: Entries) -> Heads:
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
        heads = Heads(*(entries.count(f"linear_{name}") for name in names))
        if heads.values % heads.keys:
            raise entries.wrong("linear_num_value_heads", f"a multiple of {heads.keys}")
        if heads.key_dim % 32 or heads.key_dim > 256:
            raise entries.wrong("linear_key_head_dim", "a multiple of 32 up to 256")
        if heads.value_dim % 4:
            raise entries.wrong("linear_value_head_dim", "a multiple of 4")
        return heads

    @property
    def key_size(self) -> int:
        return self.keys * self.key_dim

    @property
    def value_size(self) -> int:
        return self.values * self.value_dim


class Projections(NamedTuple):
    """The projections of a layer's input. Rows of qkv are queries, keys, values, head by head."""

    qkv: Linear
    z: Linear  # the gate of the output
    a: Linear  # the decay
    b: Linear  # the rate at which values are written

    @staticmethod
    def read(entries: Entries, weights: Weights, path: str) -> Projections:
        """Read one tensor for each projection."""
        heads, hidden = Heads.read(entries), entries.count("hidden_size")
        rows = (2 * heads.key_size + heads.value_size, heads.value_size, heads.values, heads.values)
        return Projections(
            *(
                weights.linear(f"{path}.in_proj_{name}", (n, hidden))
                for name, n in zip(("qkv", "z", "a", "b"), rows)
            )
        )


class DeltaNet:
    kind = "delta net"

    def __init__(self, entries: Entries, weights: Weights, path: str, projections: Projections) -> None:
        self.name, self.inputs, self.heads = path, Joined(*projections), Heads.read(entries)
        self.eps = norm_eps(entries)
        if entries.count("linear_conv_kernel_dim", _TAPS) != _TAPS:
            raise entries.wrong("linear_conv_kernel_dim", str(_TAPS))
        heads, hidden = self.heads, entries.count("hidden_size")
        self.channels = 2 * heads.key_size + heads.value_size
        self.taps = weights.tensor(f"{path}.conv1d.weight", (self.channels, _TAPS))
        self.a_log = _decays(weights, path, heads.values)
        #: Whether the first value heads of all key heads come first, then the second ones, and so on.
        self.tiled = entries.flag("linear_value_heads_tiled", False)
        self.dt_bias = weights.tensor(f"{path}.dt_bias", (heads.values,))
        self.norm = weights.tensor(f"{path}.norm.weight", (heads.value_dim,))
        self.out = weights.linear(f"{path}.out_proj", (hidden, heads.value_size))

    @cached_property
    def exact(self) -> tuple[Array, Array, Array]:
        """What `ops.delta_step` reads, as float32. Only devices that join launches need it."""
        a_log, dt_bias, norm = (
            part.astype(np.float32, copy=False) for part in (self.a_log, self.dt_bias, self.norm)
        )
        return a_log, dt_bias, norm

    def state(self, context: int, chunk: int, kv: KvFormat) -> dict[str, Piece]:
        heads = self.heads
        return {
            f"{self.name}.conv": Piece((_TAPS - 1, self.channels), np.float32),
            f"{self.name}.memory": Piece((heads.values, heads.value_dim, heads.key_dim), np.float32),
        }

    def __call__(self, x: Any, step: Step | Steps) -> Any:
        heads = self.heads
        mixed, z, a, b = self._inputs(x, step)
        z = z.reshape(step.tokens, heads.values, heads.value_dim)
        joined = heads.key_dim in ops.STEP_KEY_DIMS and heads.value_dim % ops.STEP_VALUES == 0
        if joined and step.single and fuses():
            y = step.each(self._step, mixed, z, a, b)
        else:
            y = self._steps(mixed, z, a, b, step)
        return self.out.apply(y.reshape(step.tokens, heads.value_size))

    def _inputs(self, x: Any, step: Step | Steps) -> list[Any]:
        """Record the projections, and the convolution of the first."""
        if isinstance(step, Step):
            return self.inputs.conv_project(x, step.state[f"{self.name}.conv"], self.taps)
        mixed, *others = self.inputs.project(x)
        return [step.each(self._convolve, mixed), *others]

    def _convolve(self, step: Step, x: Any) -> Any:
        return ops.conv1d(x, step.state[f"{self.name}.conv"], self.taps)[0]

    def _step(self, step: Step, mixed: Any, z: Any, a: Any, b: Any) -> Any:
        """Record norms, gates, delta rule and output norm of one token as one launch."""
        memory = step.state[f"{self.name}.memory"]
        return ops.delta_step(mixed, z, a, b, *self.exact, memory, self.eps, tiled=self.tiled)[0]

    def _steps(self, mixed: Any, z: Any, a: Any, b: Any, step: Step | Steps) -> Any:
        """Record norms, gates, delta rule and output norm one by one."""
        heads = self.heads
        g, beta = ops.decay_beta(a, b, self.a_log, self.dt_bias)
        shape = step.tokens, heads.keys, heads.key_dim
        q, k = (mixed.columns(first, heads.key_size).reshape(*shape) for first in (0, heads.key_size))
        v = mixed.columns(2 * heads.key_size, heads.value_size)
        v = v.reshape(step.tokens, heads.values, heads.value_dim)
        q, k = ops.qk_norm(q, k)
        y = step.each(self._rule, q, k, v, g, beta)
        return ops.gated_rms_norm(y, z, self.norm, self.eps)

    def _rule(self, step: Step, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        memory = step.state[f"{self.name}.memory"]
        return ops.delta_net(q, k, v, g, beta, memory, tiled=self.tiled)[0]


def _decays(weights: Weights, path: str, heads: int) -> Array:
    """Return the logarithms of the rates of decay; GGUF files hold the rates, with a minus sign."""
    if f"{path}.A" not in weights:
        return weights.tensor(f"{path}.A_log", (heads,))
    with np.errstate(divide="ignore", invalid="ignore"):  # damaged values become NaN
        rates: Array = np.log(-weights.tensor(f"{path}.A", (heads,)).astype(np.float32))
    return rates
