"""Texts as vectors: pooled states of the last layer."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session

#: "mean" of all tokens, or the "last" token, which has seen all others.
Pooling = Literal["mean", "last"]


def embedding(
    runner: Runner, ids: NDArray[np.int32], pooling: Pooling, piece: int | None = None
) -> NDArray[np.float32]:
    """Return the normed states after the last layer as one vector of length 1: float32 [hidden].

    Tokens are read in chunks, or in smaller pieces, of which one is in memory at a time. No logits are
    computed. Compressed keys and values are read in whole chunks, because their size changes the results.
    """
    session = Session(runner, runner.context_for(len(ids)))
    if piece is None or runner.kv.codec is not None:
        piece = runner.traits.chunk
    total = np.zeros(len(runner.network.norm.weight))
    for start in range(0, len(ids), piece):
        for (hidden,) in session._advance(ids[start : start + piece], "hidden"):
            last = hidden[-1].astype(np.float64)
            total = last if pooling == "last" else total + hidden.sum(axis=0, dtype=np.float64)
    length = np.sqrt(total @ total)
    return (total / (length or 1.0)).astype(np.float32)
