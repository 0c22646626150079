"""Includes of native/ point downwards: the rooms of docs/architecture.md, and no circle of files.

Only `#include "..."` lines are read: a call of a function that the caller itself declares is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NATIVE = REPOSITORY / "native"
SUFFIXES = (".h", ".cpp", ".mm")
TARGETS = ("host", "cuda")  # folders of msl, one of which is an include folder

Graph = dict[Path, list[Path]]


def documented_rooms(text: str) -> dict[str, set[str]]:
    """Read the table of rooms: each folder with the folders that it may include."""
    rooms: dict[str, set[str]] = {}
    section = text.partition("### Rooms of the native code")[2].partition("\n#")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            room, allowed = line.split("|")[1:3]
            rooms[room.strip(" `")] = set(re.findall(r"`(\w+)`", allowed))
    return rooms


def room_of(file: Path, native: Path) -> str:
    """Return the folder of native/ that holds a file, or the folder of the repository for other files."""
    base = native if file.is_relative_to(native) else native.parent
    return file.relative_to(base).parts[0]


def includes(native: Path) -> Graph:
    """Return the files that each file of native/ includes by name in quotes."""
    graph: Graph = {}
    for file in sorted(native.rglob("*")):
        if file.suffix in SUFFIXES or file.name == "metal_stdlib":
            names = re.findall(r'^\s*#\s*(?:include|import)\s*"([^"]+)"', file.read_text(), re.MULTILINE)
            graph[file] = [found for name in names for found in resolve(name, file, native)]
    return graph


def resolve(name: str, file: Path, native: Path) -> list[Path]:
    """Find an included file as the compilers do, with the include folders of CMakeLists.txt."""
    first = native / "msl" if room_of(file, native) == "msl" else native
    for folder in (file.parent, first, native, native / "include"):
        if (folder / name).is_file():
            return [(folder / name).resolve()]
    if room_of(file, native) == "msl":
        found = [native / "msl" / target / name for target in TARGETS]
    else:
        found = [generated_from(name, native)]
    assert all(path.is_file() for path in found), f"{file}: {name} is in no include folder"
    return found


def generated_from(name: str, native: Path) -> Path:
    """Return the file that the build writes an included header from."""
    if name in ("body_sources.h", "built_levels.h"):
        return native / "cpu" / "kernels" / "kernels.cmake"
    return (native.parent / "shaders" / name.removeprefix("arguments/")).with_suffix(".metal")


def upward(graph: Graph, native: Path, rooms: dict[str, set[str]]) -> Iterator[str]:
    """Yield the includes that the rooms do not allow."""
    for file, included in graph.items():
        room = room_of(file, native)
        for other in included:
            if room_of(other, native) not in rooms[room] | {room}:
                yield f"{file.relative_to(native)} includes {other.relative_to(native.parent)}"


def circle(graph: Graph) -> list[Path]:
    """Return files of which each includes the next and the last the first, or none."""
    done: set[Path] = set()

    def visit(file: Path, path: list[Path]) -> list[Path]:
        if file in path:
            return path[path.index(file) :]
        if file in done:
            return []
        for other in graph.get(file, []):
            if found := visit(other, [*path, file]):
                return found
        done.add(file)
        return []

    return next((found for file in graph if (found := visit(file, []))), [])


@pytest.fixture(scope="module")
def rooms() -> dict[str, set[str]]:
    return documented_rooms((REPOSITORY / "docs" / "architecture.md").read_text())


def test_every_folder_is_a_room(rooms: dict[str, set[str]]) -> None:
    assert set(rooms) == {folder.name for folder in NATIVE.iterdir() if folder.is_dir()}


def test_rooms_include_only_rooms_above_them_in_the_table(rooms: dict[str, set[str]]) -> None:
    known = {"shaders"}
    for room, allowed in rooms.items():
        assert allowed <= known, room
        known.add(room)


def test_no_upward_include(rooms: dict[str, set[str]]) -> None:
    assert list(upward(includes(NATIVE), NATIVE, rooms)) == []


def code(file: Path) -> str:
    """Return the text of a header without comments and directives."""
    return re.sub(r"//.*|^#(?:.*\\\n)*.*", "", file.read_text(), flags=re.MULTILINE)


def outermost(text: str) -> list[str]:
    """Return what stands outside of all braces."""
    while (inner := re.sub(r"\{[^{}]*\}", ";", text)) != text:
        text = inner
    return [part.strip() for part in text.split(";") if part.strip()]


def test_what_host_and_gpu_share_has_neither_builtins_nor_global_names() -> None:
    shared = [NATIVE / "msl" / "metal_stdlib", *(NATIVE / "msl" / "metal").iterdir()]
    for file in shared:
        found = re.findall(r"\b(?:__\w+|asm\b|(?:std|pyturbo)::\w+)", re.sub(r"//.*", "", file.read_text()))
        assert found == [], file
        assert set(outermost(code(file))) <= {"namespace msl", "namespace msl::metal"}, file


def test_builtins_and_global_names_are_found(tmp_path: Path) -> None:
    header = tmp_path / "a.h"
    header.write_text("#define A \\\n  b\nusing metal::half;  // so\nnamespace msl {\nstruct B {};\n}\n")
    assert outermost(code(header)) == ["using metal::half", "namespace msl"]


def test_no_number_is_written_by_a_stream() -> None:
    """Streams of numbers need tables that two copies of the C++ library in one process confuse."""
    for file in includes(NATIVE):
        assert re.findall(r"<(?:sstream|iostream|iomanip)>", file.read_text()) == [], file


def test_no_circular_include() -> None:
    assert circle(includes(NATIVE)) == []


def test_upward_and_circular_includes_are_found(tmp_path: Path) -> None:
    native = tmp_path / "native"
    for name, text in {
        "core/a.h": '#pragma once\n#include "cpu/b.h"\n',
        "cpu/b.h": '#include <vector>\n#include "b_inner.h"\n',
        "cpu/b_inner.h": '#include "core/a.h"\n',
    }.items():
        (native / name).parent.mkdir(parents=True, exist_ok=True)
        (native / name).write_text(text)
    graph = includes(native)
    assert list(upward(graph, native, {"core": set(), "cpu": {"core"}})) == [
        "core/a.h includes native/cpu/b.h"
    ]
    assert [file.name for file in circle(graph)] == ["a.h", "b.h", "b_inner.h"]
