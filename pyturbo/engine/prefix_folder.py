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

from pyturbo._fork import open_in_children
from pyturbo.engine import prefix_file
from pyturbo.engine.prefix_copy import DiskCopy
from pyturbo.engine.prefix_file import Stored
from pyturbo.engine.prefix_parts import StateParts
from pyturbo.engine.prefix_tree import Node, Tree
from pyturbo.engine.prefix_writer import later, wait
from pyturbo.errors import FileError, TurboError
from pyturbo.files.replace import remove_leftovers, target_of

_log = logging.getLogger("pyturbo.prefix")

_HEADER_BYTES = 4096  # of a file, at most
_COUNT_SECONDS = 10.0  # after which files of other processes are counted again
_NAME = re.compile("[0-9a-f]{32}")
_FILE_NAME = re.compile(f"[0-9a-f]{{32}}{re.escape(prefix_file.SUFFIX)}")
_LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]{16}\.pyturbo-partial")


class PrefixFolder:
    """The files of a store, those of each model in a folder of its own.

    All together have at most `max_bytes`. Those used longest ago are deleted first; a file counts as used
    whenever one that follows it is. Several processes may use a folder at the same time.

    Files are written in a thread of the process. `most_waiting` bytes may wait for it; after that nothing
    more is written until it has caught up.

    Attributes:
        has_lost: Whether a file was lost since somebody last asked.
    """

    def __init__(
        self, folder: Any, max_bytes: int, identity: dict[str, Any], parts: StateParts, most_waiting: int
    ) -> None:
        self._all = target_of("prefix_cache: folder", folder)
        self.max_bytes, self._identity, self._parts = max_bytes, identity, parts
        text = json.dumps(identity, sort_keys=True).encode()
        self._own = self._all / hashlib.sha256(text).hexdigest()[:32]
        try:
            self._own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self._own}: cannot be made: {error.strerror or error}") from error
        self._known: dict[Path, DiskCopy] = {}
        self.has_lost = False
        self._lock = open_in_children()
        self._waiting, self._most_waiting = 0, most_waiting
        self._total, self._count_again = 0, 0.0  # bytes of all files, and when to count them again

    def load(self, tree: Tree) -> None:
        """Put what the files have into an empty tree. Those that cannot be used are a warning."""
        wait()  # another store of this process may have written here
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
                    if path.exists():  # others delete files, too
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
        used, copy = time.monotonic() - max(0.0, time.time() - _used(stored.path)), DiskCopy.of(stored)
        if len(stored.tokens):
            node = tree.add(node, stored.tokens, file=copy)
            node.used = used
            nodes[stored.name] = [node]
        if stored.rest_bytes:
            node.rest_file, node.rest_used = copy, used
        self._known[stored.path] = copy

    def write(self, path: Sequence[Node]) -> None:
        """Have the nodes of a path that have no file yet written, unless there is too much to write already.

        Errors of the system are a warning.
        """
        if self._waiting > self._most_waiting:
            return
        before: DiskCopy | None = None
        for node in path:
            rest = None if _is_there(node.rest_file) else node.rest
            if not _is_there(node.file):
                if node.rows is None:
                    return
                node.file = self._later(node.start, node.tokens, before, node.rows, rest)
                node.rest_file = node.rest_file if rest is None else node.file
            elif rest is not None:
                node.rest_file = self._later(node.end, node.tokens[:0], node.file, None, rest)
            before = node.file

    def _later(self, *content: Any) -> DiskCopy:
        """Have a file written, and return what it will have."""
        copy = DiskCopy(*content)
        nbytes = copy.rows().nbytes + copy.rest().nbytes
        with self._lock:
            self._waiting += nbytes
        later(self._write, copy, nbytes)
        return copy

    def _write(self, copy: DiskCopy, nbytes: int) -> None:
        stored = None
        try:
            stored = self._written(copy, nbytes)
        except (TurboError, OSError, MemoryError) as error:
            _log.warning("not written to the prefix store: %s", error)
        finally:
            copy.settle(stored)
            with self._lock:
                self._waiting -= nbytes

    def _written(self, copy: DiskCopy, nbytes: int) -> Stored | None:
        """Write a file; None if there is no room for it, or none for what comes before it."""
        before, tokens = copy.before, copy.tokens
        nbytes += 4 * len(tokens) + _HEADER_BYTES
        if not self._make_room(nbytes):
            return None
        if before is not None and (before.gone or before.stored is None):
            return None
        parent = None if before is None or before.stored is None else before.stored.name
        rows, rest = copy.rows(), copy.rest()
        stored = prefix_file.write(self._own, self._identity, parent, copy.start, tokens, rows, rest)
        self._known[stored.path] = copy
        self._total += nbytes
        return stored

    def touch(self, path: Sequence[Node]) -> None:
        """Note that the files of a path are in use. Earlier ones become younger, to be deleted later."""
        both = (copy for node in path for copy in (node.file, node.rest_file))
        if copies := {id(copy): copy for copy in both if copy is not None and not copy.gone}:
            later(_touch, sorted(copies.values(), key=lambda copy: copy.end), time.time_ns())

    def _make_room(self, nbytes: int) -> bool:
        """Delete files until there is room for `nbytes` more; return whether there is."""
        if nbytes > self.max_bytes:
            return False
        if time.monotonic() < self._count_again and self._total + nbytes <= self.max_bytes:
            return True
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total + nbytes <= self.max_bytes:
                break
            if (copy := self._known.get(path)) is not None:
                copy.gone = True  # first, so that a reader who misses the file does not warn
            try:
                path.unlink(missing_ok=True)  # others delete files, too
            except OSError as error:
                _log.warning("cannot be deleted from the prefix store: %s", error)
                if copy is not None:
                    copy.gone = False
                continue
            total -= size
            self.has_lost |= self._known.pop(path, None) is not None
        self._total, self._count_again = total, time.monotonic() + _COUNT_SECONDS
        return total + nbytes <= self.max_bytes

    def _files(self) -> list[tuple[int, int, Path]]:
        """Return time of use, size and path of every file of a store, of any model."""
        found = []
        with suppress(OSError):
            for folder in (path for path in self._all.iterdir() if _NAME.fullmatch(path.name)):
                with suppress(OSError), os.scandir(folder) as entries:
                    for entry in entries:
                        if _FILE_NAME.fullmatch(entry.name):
                            with suppress(OSError):
                                status = entry.stat(follow_symlinks=False)
                                found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        return found


def _touch(copies: Sequence[DiskCopy], now: int) -> None:
    for number, copy in enumerate(copies):
        if copy.stored is not None:
            with suppress(OSError):
                os.utime(copy.stored.path, ns=(now - 1000 * number, now - 1000 * number))


def _is_there(copy: DiskCopy | None) -> bool:
    return copy is not None and not copy.gone


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
