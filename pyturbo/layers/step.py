"""The inputs of a layer that is recorded, and the state that it asks a conversation to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from pyturbo.layers.head_inputs import HeadInputs
from pyturbo.recording import Strand, stack


class Piece(NamedTuple):
    """One piece of a conversation's state."""

    shape: tuple[int, ...]
    dtype: Any
    axis: int | None = None  # the axis of rows, where token j is row j % rows; None: no rows for tokens
    recent: bool = False  # whether rows are copies of the last tokens' that may be missing


@dataclass(frozen=True)
class KvHeads:
    """The key and value heads of one layer."""

    path: str  # of the layer's attention
    count: int
    dim: int
    biased: bool  # whether the projection of keys or of values has a bias
    window: int = 0  # how many tokens a query sees, its own included; 0: all


@dataclass(frozen=True)
class KvLatents:
    """The latents of one layer, keys and values of all heads in one, and the rotary keys stored with them."""

    path: str  # of the layer's attention
    rank: int
    rope: int


#: The part of a mixer that reads and changes the state of one conversation.
Mix = Callable[..., Any]


class KvFormat(Protocol):
    """The format of cached keys, values and latents."""

    @property
    def name(self) -> str:
        """The setting that users write, such as "f16" or "turbo4"."""

    @property
    def codec(self) -> int | None:
        """The version of compressed rows; None for plain ones."""

    def state(self, heads: KvHeads, context: int, chunk: int) -> dict[str, Piece]:
        """Return what a layer keeps for `context` tokens, of which up to `chunk` are read at once."""

    def attend(self, heads: KvHeads, step: Step, inputs: HeadInputs, scale: float, sinks: Any = None) -> Any:
        """Append the keys and values of the step, and let its queries attend to all they see."""

    def latent_state(self, latents: KvLatents, context: int) -> dict[str, Piece]:
        """Return what a layer of latent attention keeps for `context` tokens."""

    def attend_latents(
        self, latents: KvLatents, step: Step, q: Any, q_rope: Any, latent: Any, rope_key: Any, scale: float
    ) -> Any:
        """Append the latents of the step, and return the mix of all latents for its queries."""


@dataclass(frozen=True)
class Step:
    """The position and number of the tokens of a conversation, and the state that they read and change."""

    tokens: Any  # an integer or a symbol
    position: Any
    state: Mapping[str, Any]  # tensors
    kv: KvFormat

    @property
    def single(self) -> bool:
        """Whether a conversation has one token."""
        return isinstance(self.tokens, int) and self.tokens == 1

    def each(self, mix: Mix, *inputs: Any) -> Any:
        """Record what `mix` makes of the inputs [tokens, ...] with the state of their conversation."""
        return mix(self, *inputs)


class Member(NamedTuple):
    """The step of one of several conversations."""

    step: Step
    first: Any  # its first row among those of all, an integer or a symbol
    when: str | None = None  # the symbol that is 0 in replays without it; None: it is in all of them


@dataclass(frozen=True)
class Steps:
    """Tokens of several conversations. They share all launches but those that use their state."""

    members: tuple[Member, ...]
    tokens: Any  # of all, an integer or a symbol

    @property
    def single(self) -> bool:
        """Whether each conversation has one token."""
        return all(member.step.single for member in self.members)

    def each(self, mix: Mix, *inputs: Any) -> Any:
        """Do the same for every conversation, with its own rows of the inputs -> the rows of all of them."""
        return stack(
            (
                Strand(
                    partial(mix, step, *(rows.rows(first, step.tokens) for rows in inputs)),
                    first,
                    step.tokens,
                    when,
                )
                for step, first, when in self.members
            ),
            self.tokens,
        )
