"""A radix tree of tokens: its edges are runs of tokens with what is kept of states after them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.prefix_file import Stored
from pyturbo.engine.prefix_parts import Bytes, StateParts
from pyturbo.engine.prefix_policy import value

Tokens = NDArray[np.int32]


class Block(NamedTuple):
    """Bytes in memory, which `owner` counts for as long as it lives."""

    data: Bytes
    owner: Any


class Node:
    """A run of tokens that follows the run of its parent.

    Attributes:
        start: Tokens before it.
        tokens: The run; empty at the root only.
        source: The number of the conversation that its rows come from: rows of one token and one source have
            the same bits.
        rows: The rows of its tokens, if they are in memory.
        rest: The rest of the state after its last token, if it is in memory.
        file: A file with its rows, if there is one.
        rest_file: A file with the rest.
        used: When its rows were last of use.
        rest_used: When the rest was.
    """

    def __init__(
        self,
        parent: Node | None,
        start: int,
        tokens: Tokens,
        source: int,
        rows: Block | None = None,
        file: Stored | None = None,
    ) -> None:
        self.parent, self.start, self.tokens, self.source = parent, start, tokens, source
        self.rows, self.file = rows, file
        self.rest: Block | None = None
        self.rest_file: Stored | None = None
        self.children: list[Node] = []
        self.used = self.rest_used = 0.0

    @property
    def end(self) -> int:
        """Tokens up to its last one."""
        return self.start + len(self.tokens)

    @property
    def has_rows(self) -> bool:
        """Whether its rows can be had."""
        return self.rows is not None or (self.file is not None and not self.file.gone)

    @property
    def has_rest(self) -> bool:
        """Whether the rest can be had."""
        return self.rest is not None or (self.rest_file is not None and not self.rest_file.gone)

    def release(self) -> None:
        """Give back the memory of a node that is no longer used, and of all that follow it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            node.rows = node.rest = None
            waiting += node.children

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(block.data.nbytes for block in (self.rows, self.rest) if block is not None)


class Match(NamedTuple):
    """A node whose first tokens, `length` of them, go on with a list of tokens."""

    node: Node
    length: int

    @property
    def end(self) -> int:
        """Tokens up to the last one that matches."""
        return self.node.start + self.length


class Tree:
    """The nodes. Two children may begin with the same tokens, if their rows differ.

    Attributes:
        root: The node without tokens.
    """

    def __init__(self, parts: StateParts) -> None:
        self._parts, self._sources = parts, itertools.count(1)
        self.root = Node(None, 0, np.empty(0, np.int32), 0)

    def __iter__(self) -> Iterator[Node]:
        """Yield all nodes but the root, each after its parent."""
        waiting = list(self.root.children)
        while waiting:
            node = waiting.pop()
            waiting += node.children
            yield node

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(node.nbytes for node in self)

    def add(
        self, parent: Node, tokens: Tokens, rows: Block | None = None, file: Stored | None = None
    ) -> Node:
        """Return a new child, with its rows in memory or in a file."""
        node = Node(parent, parent.end, tokens, next(self._sources), rows, file)
        parent.children.append(node)
        return node

    def matches(self, ids: Tokens) -> Iterator[Match]:
        """Yield the nodes that `ids` lead through, as far as rows can be had; each after its parent."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            for child in node.children:
                count = common(child.tokens, ids[child.start :]) if child.has_rows else 0
                if count:
                    yield Match(child, count)
                if count == len(child.tokens):
                    waiting.append(child)

    def path(self, node: Node) -> list[Node]:
        """Return the nodes from below the root to `node`."""
        found = []
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def split(self, node: Node, count: int) -> Node:
        """Replace a node by two, the first with `count` of its tokens, which is returned."""
        parent = node.parent
        assert parent is not None
        first = Node(parent, node.start, node.tokens[:count].copy(), node.source, file=node.file)
        second = Node(first, first.end, node.tokens[count:].copy(), node.source, file=node.file)
        if node.rows is not None:
            (data, owner), total = node.rows, len(node.tokens)
            first.rows = Block(self._parts.cut(data, total, 0, count), owner)
            second.rows = Block(self._parts.cut(data, total, count, total - count), owner)
        second.rest, second.rest_file, second.rest_used = node.rest, node.rest_file, node.rest_used
        first.used = second.used = node.used
        first.children, second.children = [second], node.children
        for child in second.children:
            child.parent = second
        parent.children[parent.children.index(node)] = first  # one step, whatever interrupts
        return first

    def remove(self, node: Node, kept: Sequence[Node] = ()) -> None:
        """Remove a node with all that follows it, and ancestors that are of no use without it.

        `kept` are ancestors that stay.
        """
        parent = node.parent
        if parent is None:
            return
        parent.children.remove(node)
        node.parent = None
        node.release()
        if self._parts.needs_rest and not parent.children and not parent.has_rest and parent not in kept:
            self.remove(parent, kept)

    def prune(self) -> None:
        """Remove nodes whose rows are lost."""
        for node in list(self):
            if not node.has_rows and node.parent is not None:
                self.remove(node)

    def least_valuable(self, now: float, kept: Sequence[Node]) -> tuple[Node, bool] | None:
        """Return what to give up first, and whether it is the rest alone; None if there is nothing.

        Rows are given up from the leaves on; those of `kept` nodes stay.
        """
        spared = set(map(id, kept))
        found: list[tuple[float, int, Node, bool]] = []
        held: set[int] = set()  # nodes with descendants in memory
        for number, node in enumerate(reversed(list(self))):
            if node.nbytes or id(node) in held:
                held.add(id(node.parent))
            saved = node.end - self._restorable_before(node)
            if node.rest is not None and (id(node) in held or id(node) in spared):
                rank = value(saved, node.rest.data.nbytes, now - node.rest_used)
                found.append((rank, number, node, True))
            elif node.nbytes and id(node) not in held and id(node) not in spared:
                useful = node.has_rest or not self._parts.needs_rest
                rank = value(saved if useful else 0, node.nbytes, now - node.used)
                found.append((rank, number, node, False))
        if not found:
            return None
        *_, node, rest = min(found)
        return node, rest

    def _restorable_before(self, node: Node) -> int:
        """Return the last position before the end of `node` that a state can be restored at without it."""
        if not self._parts.needs_rest:
            return node.start
        while node.parent is not None:
            node = node.parent
            if node.has_rest:
                return node.end
        return 0


def common(one: Tokens, other: Tokens) -> int:
    """Return how many tokens two lists have in common at their beginnings."""
    count = min(len(one), len(other))
    different = np.flatnonzero(one[:count] != other[:count])
    return int(different[0]) if different.size else count
