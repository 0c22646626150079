"""What is wrong with the files of a packed checkpoint, each file by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from pyturbo._messages import label
from pyturbo.checkpoint import safetensors
from pyturbo.checkpoint.file import TensorFile
from pyturbo.checkpoint.manifest import PackedFile, PackedLayer, Resident
from pyturbo.checkpoint.manifest_parts import ALIGNMENT
from pyturbo.checkpoint.names import is_padding
from pyturbo.checkpoint.tensors import TensorInfo
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
        tensor = None if self.tensor is None else label(self.tensor)
        places = (self.file, self.layer, expert, tensor, self.what)
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
            try:
                _compare(own, here, layer.checksums[expert], range_checksum(file, start, layer.stride))
                if not own and not all(_is_zero(file, start + offset, count) for offset, count in gaps):
                    own.append(_with(here, "padding: expected zeros"))
            except (FileError, FormatError) as error:
                own.append(_with(here, str(error).removeprefix(f"{folder / layer.file}: ")))
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
        found += _check_tensors(file, list(infos.values()), resident, length, advance)
    return found


def _check_tensors(
    file: TensorFile, infos: list[TensorInfo], resident: Resident, start: int, advance: Advance
) -> list[Finding]:
    """Check the tensors whose data follows each other from byte `start` on, up to the end of the file."""
    found: list[Finding] = []
    known, end = resident.checksums, start
    for info in infos:
        here = Finding(resident.file, "", tensor=info.name)
        if info.offset != end or (info.offset % ALIGNMENT and not is_padding(info.name)):
            expected = f"{end}, a multiple of {ALIGNMENT}"
            found.append(_with(here, f"offset: expected {expected}, got {info.offset}"))
        end = info.offset + info.nbytes
        if info.name in known:
            _compare(found, here, known[info.name], range_checksum(file, info.offset, info.nbytes))
        elif not is_padding(info.name):
            found.append(_with(here, "is not in the manifest"))
        elif not _is_zero(file, info.offset, info.nbytes):
            found.append(_with(here, "expected zeros"))
        advance(info.nbytes)
    names = {info.name for info in infos}
    for name in known:
        if name not in names:
            found.append(Finding(resident.file, "expected this tensor, found none", tensor=name))
    if end != file.size:
        found.append(Finding(resident.file, f"expected tensors up to byte {file.size}, they end at {end}"))
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
    return not any(np.frombuffer(chunk, np.uint8).any() for chunk in chunks(file, offset, count))


def _compare(found: list[Finding], where: Finding, expected: str, got: str) -> None:
    if expected != got:
        what = f"{where.what} checksum".lstrip()
        found.append(_with(where, f"{what}: expected {expected}, got {got}"))


def _with(where: Finding, what: str) -> Finding:
    return Finding(where.file, what, where.layer, where.expert, where.tensor)
