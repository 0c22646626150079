"""A chat that is kept in a file: started again, it goes on where it stopped and reads nothing twice.

Takes a model with a chat template and the file: ``python chat_with_memory.py MODEL chat.session``. The model
in the package only continues stories; it cannot chat.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyturbo


def main(model: str, file: str) -> None:
    loaded, memory = pyturbo.load(model), Path(file)
    if not memory.exists():
        conversation = pyturbo.Conversation(loaded, system="Answer in one sentence.")
    else:
        conversation = pyturbo.Conversation.load(loaded, memory)
        print(f"going on after {len(conversation.messages)} messages, {conversation.session.position} tokens")
    for line in sys.stdin:
        for chunk in conversation.reply(line.strip(), max_tokens=60):
            print(chunk.text, end="", flush=True)
        print()
    conversation.save(memory)
    print(f"kept in {memory}: {memory.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
