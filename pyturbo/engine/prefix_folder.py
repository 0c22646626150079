"""A folder with the runs of tokens of a prefix store, which the next process finds again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo.engine import prefix_file
from pyturbo.engine.prefix_file import Stored
from pyturbo.engine.prefix_parts import StateParts
from pyturbo.engine.prefix_tree import Node, Tree
from pyturbo.errors import FileError, TurboError
from pyturbo.files.replace import remove_leftovers, target_of

_log = logging.getLogger("pyturbo.prefix")

_EMPTY = np.empty(0, np.uint8)
_NAME = re.compile("[0-9a-f]{32}")
_LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]{16}\.pyturbo-partial")


class PrefixFolder:
    """The files of a store, those of each model in a folder of its own.

    All together have at most `max_bytes`. Those used longest ago are deleted first; a file counts as used
    whenever one that follows it is. Several processes may use a folder at the same time.
    """

    def __init__(self, folder: Any, max_bytes: int, identity: dict[str, Any], parts: StateParts) -> None:
        self._all = target_of("prefix_cache: folder", folder)
        self.max_bytes, self._identity, self._parts = max_bytes, identity, parts
        text = json.dumps(identity, sort_keys=True).encode()
        self._own = self._all / hashlib.sha256(text).hexdigest()[:32]
        try:
            self._own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self._own}: cannot be made: {error.strerror or error}") from error
        self._known: dict[Path, Stored] = {}

    def load(self, tree: Tree) -> None:
        """Put what the files have into an empty tree. Those that cannot be used are a warning."""
        found = {}
        for path in sorted(self._own.iterdir()):
            if leftover := _LEFTOVER.fullmatch(path.name):
                with suppress(TurboError, OSError):
                    remove_leftovers(self._own / leftover[1])
            elif path.name.startswith("."):
                continue
            else:
                try:
                    stored = prefix_file.read(path, self._identity, self._parts)
                    found[stored.name] = stored
                except TurboError as error:
                    _log.warning("left out of the prefix store: %s", error)
        nodes: dict[str, list[Node]] = {}  # those with rows of a file
        for stored in sorted(found.values(), key=lambda stored: (stored.start, len(stored.tokens))):
            self._attach(tree, nodes, stored)

    def _attach(self, tree: Tree, nodes: dict[str, list[Node]], stored: Stored) -> None:
        """Add the nodes of a file, unless the file before it is missing."""
        node = tree.root
        if stored.parent is not None:
            owners = nodes.get(stored.parent, [])
            place = next((node for node in owners if node.start < stored.start <= node.end), None)
            if place is None:
                return
            node = place
            if stored.start < node.end:
                node = tree.split(place, stored.start - place.start)
                owners[owners.index(place) :] = [node, *node.children]
        used = time.monotonic() - max(0.0, time.time() - _used(stored.path))
        if len(stored.tokens):
            node = tree.add(node, stored.tokens, file=stored)
            node.used = used
            nodes[stored.name] = [node]
        if stored.rest_bytes:
            node.rest_file, node.rest_used = stored, used
        self._known[stored.path] = stored

    def write(self, path: Sequence[Node]) -> None:
        """Write the nodes of a path that have no file yet. Errors of the system are a warning."""
        parent: Stored | None = None
        for node in path:
            rest = _EMPTY if node.rest is None or _is_there(node.rest_file) else node.rest.data
            if not _is_there(node.file):
                if node.rows is None:
                    return
                self._write(node, parent, node.start, node.tokens, node.rows.data, rest)
            elif rest.size:
                self._write(node, node.file, node.end, node.tokens[:0], _EMPTY, rest)
            if not _is_there(node.file):
                return
            parent = node.file

    def _write(self, node: Node, parent: Stored | None, start: int, *content: Any) -> None:
        tokens, rows, rest = content
        name = None if parent is None else parent.name
        if not self._make_room(rows.nbytes + rest.nbytes + 4 * len(tokens) + 4096):
            return
        if parent is not None and not _is_there(parent):  # it had to make room
            return
        try:
            stored = prefix_file.write(self._own, self._identity, name, start, tokens, rows, rest)
        except (TurboError, OSError) as error:
            _log.warning("not written to the prefix store: %s", error)
            return
        self._known[stored.path] = stored
        if len(tokens):
            node.file = stored
        if rest.size:
            node.rest_file = stored

    def touch(self, path: Sequence[Node]) -> None:
        """Note that the files of a path are in use. Earlier ones become younger, to be deleted later."""
        now = time.time_ns()
        both = (stored for node in path for stored in (node.file, node.rest_file))
        files = {stored.path: stored for stored in both if stored is not None and not stored.gone}
        for number, stored in enumerate(sorted(files.values(), key=lambda stored: stored.end)):
            with suppress(OSError):
                os.utime(stored.path, ns=(now - 1000 * number, now - 1000 * number))

    def _make_room(self, nbytes: int) -> bool:
        """Delete files until there is room for `nbytes` more; return whether there is."""
        if nbytes > self.max_bytes:
            return False
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total + nbytes <= self.max_bytes:
                break
            try:
                path.unlink()
            except OSError as error:
                _log.warning("cannot be deleted from the prefix store: %s", error)
                continue
            total -= size
            if path in self._known:
                self._known.pop(path).gone = True
        return total + nbytes <= self.max_bytes

    def _files(self) -> list[tuple[int, int, Path]]:
        """Return time of use, size and path of every file of a store, of any model."""
        found = []
        for path in self._all.glob(f"*/*{prefix_file.SUFFIX}"):
            if not (_NAME.fullmatch(path.stem) and _NAME.fullmatch(path.parent.name)):
                continue
            with suppress(OSError):
                status = path.lstat()
                found.append((status.st_mtime_ns, status.st_size, path))
        return found


def _is_there(stored: Stored | None) -> bool:
    return stored is not None and not stored.gone


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
