"""Which replica has read the beginning of a prompt."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

#: Characters that are compared at once.
BLOCK = 256
_MOST_BLOCKS = 4096  # of one prompt

#: Fields of a request that a prompt consists of, in the order in which a template writes them.
_FIELDS = ("model", "system", "instructions", "tools", "messages", "prompt", "input")


def blocks_of(body: bytes) -> list[int]:
    """Return a hash for each block of the prompt in a request, which is of all text up to its end.

    Two prompts with the same first hashes begin with the same text. Bodies that are no prompts have none.
    """
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError):
        return []
    if not isinstance(fields, dict):
        return []
    text = json.dumps([fields.get(name) for name in _FIELDS], ensure_ascii=False)
    hashes, last = [], 0
    for begin in range(0, min(len(text), _MOST_BLOCKS * BLOCK) - BLOCK + 1, BLOCK):
        block = text[begin : begin + BLOCK].encode("utf-8", "surrogatepass")
        last = xxh3_64_intdigest(block, seed=last)
        hashes.append(last)
    return hashes


class Prefixes:
    """The replicas that read blocks of prompts. The blocks that were used least recently are forgotten.

    Examples:
        >>> from pyturbo.serve.replicas.prefixes import Prefixes
        >>> known = Prefixes()
        >>> known.note([1, 2, 3], "a")
        >>> known.note([1, 2, 4], "b")
        >>> known.best([1, 2, 3, 5], {"a", "b"}), known.best([7], {"a", "b"}), known.best([1, 2, 4], {"a"})
        ('a', None, 'a')
    """

    def __init__(self, most: int = 1 << 18) -> None:
        self._most = most
        self._replicas: OrderedDict[int, list[str]] = OrderedDict()  # of each block, the latest last

    def note(self, blocks: Sequence[int], replica: str) -> None:
        """Remember that a replica reads a prompt."""
        for block in blocks:
            known = [each for each in self._replicas.pop(block, []) if each != replica]
            self._replicas[block] = [*known[-3:], replica]
        while len(self._replicas) > self._most:
            self._replicas.popitem(last=False)

    def best(self, blocks: Sequence[int], replicas: set[str]) -> str | None:
        """Return which of the replicas has read most of a prompt; None if none has read its first block."""
        found: str | None = None
        for block in blocks:
            known = [each for each in self._replicas.get(block, ()) if each in replicas]
            if not known:
                return found
            found = found if found in known else known[-1]
        return found
