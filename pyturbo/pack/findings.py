"""What is wrong with the files of a packed checkpoint, each file by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyturbo.checkpoint import safetensors
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.manifest import PackedFile, PackedLayer, Resident
from pyturbo.checkpoint.manifest_parts import ALIGNMENT
from pyturbo.checkpoint.names import is_padding
from pyturbo.convert.parallel import in_parallel
from pyturbo.errors import FileError, FormatError
from pyturbo.pack.checksums import chunks, range_checksum, workers
from pyturbo.pack.write import DATA_ALIGNMENT

Advance = Callable[[int], None]  # called with a number of bytes that were checked


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: in a file and, where that is known, in a record or tensor of it."""

    file: str
    what: str
    layer: str | None = None
    expert: int | None = None
    tensor: str | None = None

    def __str__(self) -> str:
        expert = None if self.expert is None else f"expert {self.expert}"
        places = (self.file, self.layer, expert, self.tensor, self.what)
        return ": ".join(place for place in places if place is not None)


def check_file(folder: Path, name: str, expected: PackedFile, advance: Advance) -> list[Finding]:
    """Check a small file as a whole."""
    found: list[Finding] = []
    with _opened(folder, name, expected.nbytes, found) as file:
        if file is not None:
            _compare(found, Finding(name, ""), expected.checksum, range_checksum(file, 0, file.size))
    advance(expected.nbytes)
    return found


def check_layer(folder: Path, layer: PackedLayer, advance: Advance) -> list[Finding]:
    """Check every record of a layer, several at once: its checksum, and zeros between its parts."""
    found: list[Finding] = []
    gaps = list(_gaps(layer))
    with _opened(folder, layer.file, layer.nbytes, found) as file:
        if file is None:
            advance(layer.nbytes)
            return found

        def check(expert: int) -> list[Finding]:
            here, own = Finding(layer.file, "", layer.path, expert), list[Finding]()
            start = expert * layer.stride
            _compare(own, here, layer.checksums[expert], range_checksum(file, start, layer.stride))
            if not own and not all(_is_zero(file, start + offset, count) for offset, count in gaps):
                own.append(_with(here, "padding: expected zeros"))
            return own

        def finish(own: list[Finding]) -> None:
            found.extend(own)
            advance(layer.stride)

        in_parallel(check, range(layer.experts), finish, workers())
    return found


def check_resident(folder: Path, resident: Resident, advance: Advance) -> list[Finding]:
    """Check the safetensors file: its header, the place and checksum of every tensor, and its padding."""
    found: list[Finding] = []
    here = Finding(resident.file, "")
    with _opened(folder, resident.file, resident.nbytes, found) as file:
        if file is None:
            advance(resident.nbytes)
            return found
        length = min(8 + int.from_bytes(file.bytes(0, 8), "little"), file.size) if file.size >= 8 else 0
        _compare(found, _with(here, "header"), resident.header, range_checksum(file, 0, length))
        advance(length)
        if found:
            advance(resident.nbytes - length)
            return found
        try:
            infos, _ = safetensors.read_header(folder / resident.file)
        except (FileError, FormatError) as error:
            advance(resident.nbytes - length)
            return [_with(here, str(error))]
        if length % DATA_ALIGNMENT:
            found.append(_with(here, f"data: expected at a multiple of {DATA_ALIGNMENT}, got {length}"))
        end = length
        for name, info in infos.items():
            if info.offset != end or (info.offset % ALIGNMENT and not is_padding(name)):
                found.append(Finding(resident.file, f"offset: got {info.offset} after {end}", tensor=name))
            end = info.offset + info.nbytes
            if is_padding(name):
                if not _is_zero(file, info.offset, info.nbytes):
                    found.append(Finding(resident.file, "expected zeros", tensor=name))
            elif name not in resident.checksums:
                found.append(Finding(resident.file, "is not in the manifest", tensor=name))
            else:
                got = range_checksum(file, info.offset, info.nbytes)
                _compare(found, Finding(resident.file, "", tensor=name), resident.checksums[name], got)
            advance(info.nbytes)
        for name in resident.checksums:
            if name not in infos:
                found.append(Finding(resident.file, "expected this tensor, found none", tensor=name))
        if end != file.size:
            found.append(_with(here, f"expected tensors up to byte {file.size}, they end at {end}"))
    return found


@contextmanager
def _opened(folder: Path, name: str, nbytes: int, found: list[Finding]) -> Iterator[TensorFile | None]:
    """Open a file of the expected size; otherwise add a finding and yield None. So are errors of reading."""
    try:
        file = TensorFile(folder / name)
    except FileError as error:
        found.append(Finding(name, str(error).removeprefix(f"{folder / name}: ")))
        yield None
        return
    try:
        if file.size != nbytes:
            found.append(Finding(name, f"expected {nbytes} bytes, got {file.size}"))
            yield None
        else:
            yield file
    except (FileError, FormatError) as error:
        found.append(Finding(name, str(error).removeprefix(f"{folder / name}: ")))
    finally:
        file.close()


def _gaps(layer: PackedLayer) -> Iterator[tuple[int, int]]:
    """Return the places and sizes of the padding of a record."""
    position = 0
    for start, end in chain(((part.offset, part.end) for part in layer.parts), [(layer.stride, 0)]):
        if start > position:
            yield position, start - position
        position = end


def _is_zero(file: TensorFile, offset: int, count: int) -> bool:
    return not any(any(chunk) for chunk in chunks(file, offset, count))


def _compare(found: list[Finding], where: Finding, expected: str, got: str) -> None:
    if expected != got:
        what = f"{where.what} checksum".lstrip()
        found.append(_with(where, f"{what}: expected {expected}, got {got}"))


def _with(where: Finding, what: str) -> Finding:
    return Finding(where.file, what, where.layer, where.expert, where.tensor)
