"""What an oracle records of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Outputs:
    logits: np.ndarray  # [tokens, vocab] float32
    layers: np.ndarray  # [layers, tokens, hidden] float32: the residual stream after each layer
    routers: np.ndarray  # [layers with experts, tokens, experts] float32: router logits

    def router_margin(self, top_k: int) -> float:
        """The smallest distance between the last chosen expert and the first one left out."""
        ranked = np.sort(self.routers, axis=-1)
        return float((ranked[..., -top_k] - ranked[..., -top_k - 1]).min())


def stacked(parts: list[np.ndarray], tokens: int) -> np.ndarray:
    """[parts, tokens, width], also of no parts."""
    return np.stack([part.reshape(tokens, -1) for part in parts]) if parts else np.empty((0, tokens, 0))


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference in standard deviations of `want`."""
    return float(np.abs(got - want).max() / want.std())
