"""One beginning, two continuations: a forked session reads the beginning only once."""

from __future__ import annotations

import pyturbo

BEGINNING = "Anna found a small door behind the old tree. She opened it and saw"
TURNS = (" a big dog.", " a box of gold.")


def main() -> None:
    model = pyturbo.load()
    session = model.session(context=512)
    session.prefill(model.tokenizer.encode(BEGINNING))
    print(f"{session.position} tokens read once, {session.nbytes / 2**20:.1f} MiB of state: {session}\n")
    for turn in TURNS:
        branch = session.fork()
        stats = pyturbo.Stats()
        reply = model.generate(turn, 40, temperature=0.7, seed=3, session=branch, stats=stats)
        print(f"{BEGINNING}{turn}{reply.text}")
        print(f"    ({stats.prompt_tokens} tokens more to read)\n")
    print(f"The session they came from is where it was: position {session.position}")


if __name__ == "__main__":
    main()
