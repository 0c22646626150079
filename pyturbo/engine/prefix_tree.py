"""A radix tree of tokens: its edges are runs of tokens with what is kept of states after them."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyturbo.engine.prefix_copy import DiskCopy
from pyturbo.engine.prefix_parts import Block, StateParts
from pyturbo.engine.prefix_policy import value

Tokens = NDArray[np.int32]


class Total:
    """The bytes in memory of all nodes of a tree."""

    nbytes = 0


class Node:
    """A run of tokens that follows the run of its parent.

    Attributes:
        start: Tokens before it.
        tokens: The run; empty at the root only.
        source: The number of the conversation that its rows come from: rows of one token and one source have
            the same bits.
        rows: The rows of its tokens, if they are in memory.
        rest: The rest of the state after its last token, if it is in memory.
        file: The file with its rows, if there is one.
        rest_file: The file with the rest.
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
        file: DiskCopy | None = None,
    ) -> None:
        self.parent, self.start, self.tokens, self.source = parent, start, tokens, source
        self._total: Total = Total() if parent is None else parent._total
        self._rows: Block | None = None
        self._rest: Block | None = None
        self.rows, self.file = rows, file
        self.rest_file: DiskCopy | None = None
        self._children: dict[int, list[Node]] = {}  # by their first token
        self.used = self.rest_used = 0.0

    @property
    def rows(self) -> Block | None:
        return self._rows

    @rows.setter
    def rows(self, block: Block | None) -> None:
        self._total.nbytes += _size(block) - _size(self._rows)
        self._rows = block

    @property
    def rest(self) -> Block | None:
        return self._rest

    @rest.setter
    def rest(self, block: Block | None) -> None:
        self._total.nbytes += _size(block) - _size(self._rest)
        self._rest = block

    @property
    def children(self) -> list[Node]:
        """The nodes that follow it."""
        return [*itertools.chain.from_iterable(self._children.values())]

    def children_for(self, ids: Tokens) -> Sequence[Node]:
        """Return the children whose first token is the next one of `ids`."""
        return self._children.get(int(ids[self.end]), ()) if self.end < len(ids) else ()

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
        return _size(self._rows) + _size(self._rest)


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
        return self.root._total.nbytes

    def add(
        self, parent: Node, tokens: Tokens, rows: Block | None = None, file: DiskCopy | None = None
    ) -> Node:
        """Return a new child, with its rows in memory or in a file."""
        node = Node(parent, parent.end, tokens, next(self._sources), rows, file)
        parent._children.setdefault(int(tokens[0]), []).append(node)
        return node

    def matches(self, ids: Tokens) -> Iterator[Match]:
        """Yield the nodes that `ids` lead through, as far as rows can be had; each after its parent."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            for child in node.children_for(ids):
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
        first._children, second._children = {int(second.tokens[0]): [second]}, node._children
        for child in second.children:
            child.parent = second
        siblings = parent._children[int(node.tokens[0])]
        siblings[siblings.index(node)] = first  # one step, whatever interrupts
        node.rows = node.rest = None
        return first

    def remove(self, node: Node, kept: Sequence[Node] = ()) -> None:
        """Remove a node with all that follows it, and ancestors that are of no use without it.

        `kept` are ancestors that stay.
        """
        parent = node.parent
        if parent is None:
            return
        token = int(node.tokens[0])
        siblings = parent._children[token]
        siblings.remove(node)
        if not siblings:
            del parent._children[token]
        node.parent = None
        node.release()
        if self._parts.needs_rest and not parent._children and not parent.has_rest and parent not in kept:
            self.remove(parent, kept)

    def prune(self) -> None:
        """Remove nodes whose rows are lost."""
        for node in list(self):
            if not node.has_rows and node.parent is not None:
                self.remove(node)

    def by_value(self, now: float, kept: Sequence[Node]) -> Iterator[tuple[Node, bool]]:
        """Yield what to give up, and whether it is the rest alone; the caller gives it up before the next.

        Rows are given up from the leaves on; those of `kept` nodes stay.
        """
        nodes, fixed = list(self), set(map(id, kept))
        self.root._total.nbytes = sum(node.nbytes for node in nodes)  # an interrupt may have left it wrong
        below: Counter[int] = (
            Counter()
        )  # children of a node that have bytes in memory, or descendants that do
        for node in reversed(nodes):
            below[id(node.parent)] += bool(node.nbytes or below[id(node)])

        def entry(number: int, node: Node) -> tuple[float, int, Node, bool] | None:
            """How valuable a node is, and what of it can be given up now."""
            saved = node.end - self._restorable_before(node)
            if below[id(node)] or id(node) in fixed:
                if node.rest is None:
                    return None
                return value(saved, node.rest.data.nbytes, now - node.rest_used), number, node, True
            if not node.nbytes:
                return None
            useful = node.has_rest or not self._parts.needs_rest
            return value(saved if useful else 0, node.nbytes, now - node.used), number, node, False

        queue = [found for number, node in enumerate(reversed(nodes)) if (found := entry(number, node))]
        heapq.heapify(queue)
        numbers = itertools.count(len(nodes))
        while queue:
            found = heapq.heappop(queue)
            _, number, node, rest_only = found
            if (again := entry(number, node)) != found:  # what was given up before it changed its value
                if again is not None:
                    heapq.heappush(queue, again)
                continue
            above = self.path(node)[-2::-1]
            yield node, rest_only
            if rest_only:
                continue
            for parent in above:
                below[id(parent)] -= 1
                if below[id(parent)]:
                    break
                if (freed := entry(next(numbers), parent)) is not None:
                    heapq.heappush(queue, freed)
                if parent.nbytes:
                    break

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


def _size(block: Block | None) -> int:
    return 0 if block is None else block.data.nbytes
