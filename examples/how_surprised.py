"""How likely a model finds each token of a text, and what it would have written instead."""

from __future__ import annotations

import sys

import numpy as np
from rich.console import Console
from rich.table import Table

import pyturbo

TEXT = "Once upon a time, there was a little girl named Lily. She loved to eat bicycles."


def main() -> None:
    model = pyturbo.load()
    tokenizer = model.tokenizer
    tokens = np.array(tokenizer.encode(sys.argv[1] if len(sys.argv) > 1 else TEXT))
    logits = model.logits(tokens)[:-1].astype(np.float64)  # each row is about the token after it
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    table = Table("token", "probability", "likeliest instead", box=None, pad_edge=False, header_style="bold")
    for row, token in zip(logprobs, tokens[1:]):
        best = int(row.argmax())
        instead = "" if best == token else f"{tokenizer.decode([best])!r} {np.exp(row[best]):.1%}"
        table.add_row(repr(tokenizer.decode([int(token)])), f"{np.exp(row[token]):.1%}", instead)
    console = Console(highlight=False)
    console.print(table)
    of_text = logprobs[np.arange(len(tokens) - 1), tokens[1:]]
    console.print(f"\nperplexity {np.exp(-of_text.mean()):.1f} over {of_text.size} tokens")


if __name__ == "__main__":
    main()
