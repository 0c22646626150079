"""Several stories at once; each step reads the weights once for all of them."""

from __future__ import annotations

import pyturbo

BEGINNINGS = ("Once upon a time", "The old king had", "Lily found a key", "One day, Tim and his dog")


def main() -> None:
    with pyturbo.Engine(pyturbo.load()) as engine:
        streams = [engine.submit(text, max_tokens=30, temperature=0.7, seed=1) for text in BEGINNINGS]
        for beginning, stream in zip(BEGINNINGS, streams):
            print(beginning + stream.result().text)
        usage = engine.usage
    print(f"\n{usage.step_tokens} tokens in {usage.steps} steps")


if __name__ == "__main__":
    main()
