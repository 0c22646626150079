"""A story from the model in the package, shown word by word as it is written."""

from __future__ import annotations

import sys

import pyturbo

OPENING = "Once upon a time, there was a little fox named Tim."


def main() -> None:
    opening = sys.argv[1] if len(sys.argv) > 1 else OPENING
    model = pyturbo.load()
    stats = pyturbo.Stats()
    print(opening, end="")
    for chunk in model.stream(opening, max_tokens=200, temperature=0.7, seed=1, stats=stats):
        print(chunk.text, end="", flush=True)
    print(f"\n\n{stats.tokens} tokens at {stats.decode_speed:.0f} a second on {model.device.name}")


if __name__ == "__main__":
    main()
