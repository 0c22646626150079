"""Puts the headers of a shader inside it: Metal compiles the result where there is no metallib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
_SYSTEM = re.compile(r"\s*#\s*include\s*<[^>]+>")
_ONCE = re.compile(r"\s*#\s*pragma\s+once\b")
_COMMENT = re.compile(r"\s*//")


class IncludeError(Exception):
    """A header does not exist."""


def inline(shader: Path, root: Path, includes: Sequence[Path] = ()) -> str:
    """Return the text of `shader` with each of our headers in place of its first include.

    Markers keep the file and line of everything, so that Metal's messages point at the sources. Lines that
    are comments are empty: the package has the texts of all shaders.
    """
    return "\n".join(_Inliner(root, includes).lines(shader)) + "\n"


class _Inliner:
    def __init__(self, root: Path, includes: Sequence[Path]) -> None:
        self._root, self._includes = root, [root, *includes]
        self._seen: set[str] = set()  # system headers, and files that ask to be read once

    def lines(self, path: Path) -> list[str]:
        lines = [self._marker(path, 1)]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if _ONCE.match(line):
                self._seen.add(str(path.resolve()))
                lines.append("")
            elif _COMMENT.match(line):
                lines.append("")
            elif _SYSTEM.match(line):
                lines.append("" if line.strip() in self._seen else line)
                self._seen.add(line.strip())
            elif match := _INCLUDE.match(line):
                lines += self._header(path, match[1], number)
            else:
                lines.append(line)
        return lines

    def _header(self, path: Path, name: str, number: int) -> list[str]:
        for folder in (path.parent, *self._includes):
            header = folder / name
            if header.is_file():
                known = str(header.resolve()) in self._seen
                return [""] if known else [*self.lines(header), self._marker(path, number + 1)]
        raise IncludeError(f"{path}:{number}: error: header {name} is not there")

    def _marker(self, path: Path, line: int) -> str:
        resolved, root = path.resolve(), self._root.resolve()
        name = resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else path.name
        return f'#line {line} "{name}"'
