"""The text that models read while their use of experts is measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyturbo.text import Tokenizer

TEXT = """\
The harbour of the town lies where a small river meets the sea. In the morning the boats come back with the
night's catch, and buyers from the hotels wait on the quay. A crate of mackerel costs 14.50, a crate of cod
nearly twice as much; prices fall after nine o'clock, when the tourists arrive and the best fish is gone.
"You should have come earlier," says the woman at the scales.

To compute the mean of a list, add its elements and divide by their number:

def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values)

An empty list has no mean, and the function above fails with a division by zero. Whether that is the right
answer depends on who calls it. A report of the weather may leave the day out; a bank must not.

Why does ice float? Water is densest at four degrees above freezing. Cooled further it expands, because its
molecules arrange themselves in a wide lattice. Lakes therefore freeze from above, and what lives at the
bottom survives the winter. Few other liquids behave like this. Historians argue about how much the cold
winters of the seventeenth century changed the course of the wars: rivers that armies could not cross in
summer became roads, and harvests failed three years in a row.
"""


def text_ids(tokenizer: Tokenizer | None, vocab: int, count: int) -> NDArray[np.int64]:
    """Return `count` tokens of TEXT, which begins again at its end; random ones without a tokenizer."""
    if tokenizer is None:
        return np.random.default_rng(0).integers(0, vocab, count)
    return np.resize(np.asarray(tokenizer.encode(TEXT), np.int64), count)
