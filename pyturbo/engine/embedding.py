"""Texts as vectors: pooled states of the last layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyturbo._arguments import index
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session

#: "mean" of all tokens, or the "last" token, which has seen all others.
Pooling = Literal["mean", "last"]

#: How many tokens are read at once, or what is asked before each piece; None: as the device reads best.
Piece = int | Callable[[], int | None] | None


def embedding(
    runner: Runner, ids: NDArray[np.int32], pooling: Pooling, piece: Piece = None
) -> NDArray[np.float32]:
    """Return the normed states after the last layer as one vector of length 1: float32 [hidden].

    Tokens are read in chunks, or in smaller pieces, of which one is in memory at a time. No logits are
    computed. Compressed keys and values are read in whole chunks, because their size changes the results.
    """
    total = np.zeros(len(runner.network.norm.weight))
    with Session(runner, runner.context_for(len(ids))) as session:
        while session.position < len(ids):
            asked = piece() if callable(piece) else piece
            count = runner.traits.chunk if asked is None else index("piece", asked, least=1)
            if runner.kv.codec is not None:
                count = runner.traits.chunk
            for (hidden,) in session._advance(ids[session.position :][:count], "hidden"):
                last = hidden[-1].astype(np.float64)
                total = last if pooling == "last" else total + hidden.sum(axis=0, dtype=np.float64)
    length = np.sqrt(total @ total)
    return (total / (length or 1.0)).astype(np.float32)
