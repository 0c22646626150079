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

    def grouped_margin(self, bias: np.ndarray, top_k: int, groups: int, kept: int) -> float:
        """The same of sigmoid scores plus bias [layers, experts], of groups as well as of experts in them."""
        choices = 1 / (1 + np.exp(-self.routers.astype(np.float64))) + bias[:, None]
        runs = choices.reshape(*choices.shape[:2], groups, -1)
        sums = np.sort(runs, axis=-1)[..., -2:].sum(axis=-1)
        ranked = np.sort(sums, axis=-1)
        margin = 1.0
        if kept < groups:
            margin = float((ranked[..., -kept] - ranked[..., -kept - 1]).min())
        stays = sums >= ranked[..., -kept][..., None]
        left = np.sort(np.where(stays[..., None], runs, -np.inf).reshape(choices.shape), axis=-1)
        return min(margin, float((left[..., -top_k] - left[..., -top_k - 1]).min()))


def stacked(parts: list[np.ndarray], tokens: int) -> np.ndarray:
    """[parts, tokens, width], also of no parts."""
    return np.stack([part.reshape(tokens, -1) for part in parts]) if parts else np.empty((0, tokens, 0))


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference in standard deviations of `want`."""
    return float(np.abs(got - want).max() / want.std())
