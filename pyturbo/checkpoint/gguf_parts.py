"""GGUF files that are split into several: model-00001-of-00003.gguf and so on."""

from __future__ import annotations

from pathlib import Path

from pyturbo._messages import shown
from pyturbo.checkpoint.gguf import Header, read_header
from pyturbo.checkpoint.gguf_fields import Fields
from pyturbo.checkpoint.gguf_names import part_of, part_path
from pyturbo.checkpoint.tensors import TensorInfo
from pyturbo.errors import FileError, FormatError

_MOST = 9999


def read_parts(path: Path) -> Header:
    """Read the header of a file, or if it is one of several, of all: the metadata is that of the first.

    Parts that are missing, or belong to another file, are refused by name.
    """
    header = read_header(path)
    fields = Fields(path, header.metadata)
    count = fields.integer("split.count", 0, smallest=0)
    if count <= 1:
        return header
    part = part_of(path)
    if part is None or part[2] != count or count > _MOST or part[1] not in range(count):
        raise FormatError(
            f"{path}: split.count: expected a name like model-00001-of-{count:05}.gguf for a part of {count}"
        )
    headers = []
    for number in range(count):
        place = part_path(part[0], number, count)
        if not place.is_file():
            raise FileError(f"{place}: no such file: part {number + 1} of {count} of the model is missing")
        headers.append(header if place == path else read_header(place))
        own = Fields(place, headers[-1].metadata)
        if (stated := own.integer("split.count", smallest=0)) != count:
            own.refuse("split.count", str(count), stated)
        if (stated := own.integer("split.no", smallest=0)) != number:
            raise FormatError(
                f"{place}: split.no: this is part {stated + 1} of {count}, its name says {number + 1}"
            )
    return _joined(path, headers)


def _joined(path: Path, headers: list[Header]) -> Header:
    first = headers[0]
    tensors: dict[str, TensorInfo] = {}
    for header in headers:
        for name, info in header.tensors.items():
            if name in tensors:
                raise FormatError(f"{info}: occurs twice, also in {tensors[name].file.path}")
            tensors[name] = info
    stated = Fields(path, first.metadata).integer("split.tensors.count", len(tensors), smallest=0)
    if stated != len(tensors):
        raise FormatError(
            f"{path}: split.tensors.count: expected {len(tensors)}, the tensors of all {len(headers)} parts, "
            f"got {shown(stated)}"
        )
    return Header(first.path, first.metadata, tensors, first.metadata_end)
