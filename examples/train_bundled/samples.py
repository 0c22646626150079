"""Prints ten samples: opening i continued with seed i, temperature 0.7, up to 120 tokens.

python samples.py MODEL      # needs pyturbo installed
"""

from __future__ import annotations

import sys

import pyturbo

OPENINGS = (
    "Once upon a time, there was a little girl named Lily. She",
    "One day, a boy named Tim found a shiny red ball in the park.",
    "Tom and Mia were best friends. They liked to",
    "There was once a small brown dog who lived on a farm.",
    "The old man had a cat named Whiskers. Every morning",
    "Sara wanted to bake a cake for her mom.",
    "In the forest there lived a clever fox and a slow turtle.",
    '"Mom, can we go to the beach?" asked Ben.',
    "A little bird sat in a tall tree. It was sad because",
    "Anna was afraid of the dark. One night",
)


def main() -> None:
    model = pyturbo.load(sys.argv[1])
    for seed, opening in enumerate(OPENINGS):
        reply = model.generate(opening, max_tokens=120, temperature=0.7, top_p=1.0, seed=seed)
        print(f"--- seed {seed}\n{opening}|{reply.text}\n", flush=True)


if __name__ == "__main__":
    main()
