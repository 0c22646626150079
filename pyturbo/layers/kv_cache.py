"""Formats of cached keys and values: plain, or compressed by ``pyturbo.turbo_codec``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyturbo import ops, turbo_codec
from pyturbo.errors import ArgumentError
from pyturbo.layers.head_inputs import HeadInputs
from pyturbo.layers.step import KvFormat, KvHeads, KvLatents, Piece, Step

_TYPES = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True)
class Plain:
    """Rows of one element type, [rows, kv_heads, dim]; latents are [context, rank] and [context, rope].

    Token j is in row j % rows. A sliding window has rows for all that the first token of a chunk sees, and
    for the chunk itself.
    """

    name: str

    @property
    def codec(self) -> None:
        """None: rows are not compressed."""
        return None

    @property
    def dtype(self) -> Any:
        return _TYPES[self.name]

    def state(self, heads: KvHeads, context: int, chunk: int) -> dict[str, Piece]:
        """Return the state for `context` tokens, of which up to `chunk` are read at once."""
        rows = min(context, heads.window + chunk - 1) if heads.window else context
        piece = Piece((rows, heads.count, heads.dim), self.dtype, axis=0)
        return {f"{heads.path}.k": piece, f"{heads.path}.v": piece}

    def attend(self, heads: KvHeads, step: Step, inputs: HeadInputs, scale: float, sinks: Any = None) -> Any:
        """Append the keys and values of the step, and let its queries attend to all they see."""
        keys, values = step.state[f"{heads.path}.k"], step.state[f"{heads.path}.v"]
        q = inputs.append(keys, values)
        seen = {"window": heads.window, "context": step.position + step.tokens}
        return ops.attention(q, keys, values, scale, sinks=sinks, gate=inputs.gate, **seen)

    def latent_state(self, latents: KvLatents, context: int) -> dict[str, Piece]:
        return {
            f"{latents.path}.latents": Piece((context, latents.rank), self.dtype, axis=0),
            f"{latents.path}.rope_keys": Piece((context, latents.rope), self.dtype, axis=0),
        }

    def attend_latents(
        self, latents: KvLatents, step: Step, q: Any, q_rope: Any, latent: Any, rope_key: Any, scale: float
    ) -> Any:
        """Append the latents of the step, and return the mix of all latents for its queries."""
        cache = step.state[f"{latents.path}.latents"], step.state[f"{latents.path}.rope_keys"]
        ops.mla_append(cache, latent, rope_key, step.position)
        return ops.mla_attention(q, q_rope, *cache, None, scale, context=step.position + step.tokens)


@dataclass(frozen=True)
class Compressed:
    """Packed rows with a scale each, and with a mean each where projections have a bias.

    Token j is in row j % rows. The last tokens have float16 rows too, which are read instead. Tokens that are
    read together see each other's exact keys and values, and the compressed ones of earlier tokens, so a
    sliding window needs as many rows as it has tokens. A latent, which is key and value in one, has the bits
    of keys. The rotary keys stored with latents are float16.
    """

    key_bits: int
    value_bits: int

    @property
    def codec(self) -> int:
        """The version of compressed rows."""
        return max(turbo_codec.VERSIONS[self.key_bits], turbo_codec.VERSIONS[self.value_bits])

    @property
    def name(self) -> str:
        same = self.key_bits == self.value_bits
        return f"turbo{self.key_bits}" if same else f"turbo{self.key_bits}v{self.value_bits}"

    def state(self, heads: KvHeads, context: int, chunk: int) -> dict[str, Piece]:
        """Return the state for `context` tokens, of which up to `chunk` are read at once."""
        self._check("heads", heads.dim)
        shape = (heads.count, min(context, heads.window or context))
        pieces: dict[str, Piece] = {}
        for part, bits in (("k", self.key_bits), ("v", self.value_bits)):
            path = f"{heads.path}.{part}"
            pieces[path] = Piece((*shape, turbo_codec.row_words(heads.dim, bits)), np.uint32, axis=1)
            pieces[f"{path}_scales"] = Piece(shape, np.float16, axis=1)
            if heads.biased:
                pieces[f"{path}_means"] = Piece(shape, np.float16, axis=1)
            pieces |= self._recent(path, heads.count, heads.dim)
        return pieces | self._recent_keys(heads.path)

    def attend(self, heads: KvHeads, step: Step, inputs: HeadInputs, scale: float, sinks: Any = None) -> Any:
        """Let the queries of the step attend to all they see, then encode its own keys and values."""
        keys = self._rows(heads.path, step, "k", self.key_bits, heads.dim)
        values = self._rows(heads.path, step, "v", self.value_bits, heads.dim)
        q, k = inputs.rotate()
        own = {"live": step.position, "own": (k, inputs.v)}
        y = ops.turbo_attention(q, keys, values, scale, heads.window, sinks, gate=inputs.gate, **own)
        ops.turbo_append(keys, k, step.position)
        ops.turbo_append(values, inputs.v, step.position)
        return y

    def latent_state(self, latents: KvLatents, context: int) -> dict[str, Piece]:
        self._check("latents", latents.rank)
        path, words = f"{latents.path}.latents", turbo_codec.row_words(latents.rank, self.key_bits)
        return {
            path: Piece((1, context, words), np.uint32, axis=1),
            f"{path}_scales": Piece((1, context), np.float16, axis=1),
            **self._recent(path, 1, latents.rank),
            **self._recent_keys(latents.path),
            f"{latents.path}.rope_keys": Piece((context, latents.rope), np.float16, axis=0),
        }

    def attend_latents(
        self, latents: KvLatents, step: Step, q: Any, q_rope: Any, latent: Any, rope_key: Any, scale: float
    ) -> Any:
        """Return the mix of all latents for the queries of the step, and encode its own latents."""
        rope_keys = step.state[f"{latents.path}.rope_keys"]
        rows = self._rows(latents.path, step, "latents", self.key_bits, latents.rank)
        mix = ops.mla_turbo_attention(
            q, q_rope, rows, rope_keys, scale, own=(latent, rope_key), live=step.position
        )
        ops.turbo_append(rows, latent.reshape(step.tokens, 1, latents.rank), step.position)
        keys = rope_keys.reshape(rope_keys.shape[0], 1, latents.rope)
        ops.kv_append(keys, rope_key.reshape(step.tokens, 1, latents.rope), step.position)
        return mix

    def _check(self, what: str, dim: int) -> None:
        if dim not in turbo_codec.DIMS:
            dims = ", ".join(map(str, turbo_codec.DIMS))
            raise ArgumentError(
                f"kv: expected f32 or f16 for {what} of other than {dims} values, got {self.name} for {dim}"
            )

    @staticmethod
    def _recent(path: str, heads: int, dim: int) -> dict[str, Piece]:
        shape = (heads, turbo_codec.RECENT, dim)
        return {f"{path}_recent": Piece(shape, np.float16, axis=1, recent=True)}

    @staticmethod
    def _recent_keys(path: str) -> dict[str, Piece]:
        """Return the piece that says of which tokens a layer has exact rows."""
        return {f"{path}.recent_keys": Piece((turbo_codec.RECENT,), np.uint32, axis=0, recent=True)}

    @staticmethod
    def _rows(layer: str, step: Step, part: str, bits: int, dim: int) -> ops.TurboRows:
        path, state = f"{layer}.{part}", step.state
        recent = state[f"{path}_recent"], state[f"{layer}.recent_keys"]
        return ops.TurboRows(
            state[path], state[f"{path}_scales"], bits, dim, state.get(f"{path}_means"), *recent
        )


#: Recommended formats, from most memory to least. Other pairs of widths are valid too.
KV_FORMATS: tuple[KvFormat, ...] = (
    Plain("f32"),
    Plain("f16"),
    Compressed(8, 8),
    Compressed(8, 4),
    Compressed(6, 4),
    Compressed(4, 4),
    Compressed(4, 2),
)


def kv_format(name: object) -> KvFormat:
    """Parse a setting: f32, f16, turbo<k>, or turbo<k>v<v> with the bits of keys and of values."""
    if isinstance(name, str):
        if name in _TYPES:
            return Plain(name)
        bits = "|".join(map(str, turbo_codec.WIDTHS))
        if match := re.fullmatch(f"turbo({bits})(?:v({bits}))?", name):
            return Compressed(int(match[1]), int(match[2] or match[1]))
    *widths, last = turbo_codec.WIDTHS
    raise ArgumentError(
        f"kv: expected one of {', '.join(_TYPES)}, turbo<k> and turbo<k>v<v> with k and v of "
        f"{', '.join(map(str, widths))} and {last} bits, got {name!r}"
    )
