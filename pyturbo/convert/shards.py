"""The files of a converted checkpoint: the places of tensors, headers and the index."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyturbo._arrays import Array
from pyturbo.checkpoint.names import padding_name
from pyturbo.checkpoint.safetensors import DTYPES
from pyturbo.convert.plan import Output
from pyturbo.convert.target import WRITTEN_BY
from pyturbo.files.replace import sync
from pyturbo.files.write import as_bytes, write_at

ALIGNMENT = 64  # bytes: the data of a file, and every tensor of whole such units, start at a multiple of it
LARGEST = 5 << 30  # bytes of tensors in one file, unless a single one is larger

#: Types as safetensors spells them; bytes are U8.
CODES = {dtype: code for code, dtype in DTYPES.items() if code != "F8_E8M0"}


@dataclass(frozen=True)
class Place:
    file: int  # descriptor, open for writing
    offset: int


class Shards:
    """Files of their final size in `folder`, to be filled in any order and from several threads."""

    def __init__(self, folder: Path, outputs: Sequence[Output], largest: int = LARGEST) -> None:
        self._files: list[int] = []
        self._places: dict[str, Place] = {}
        self.weight_map: dict[str, str] = {}
        groups = _split(outputs, largest)
        try:
            for i, group in enumerate(groups):
                single = "model.safetensors"
                name = single if len(groups) == 1 else f"model-{i + 1:05}-of-{len(groups):05}.safetensors"
                self._add(folder / name, group)
        except BaseException:
            self.close()
            raise

    def write(self, output: Output, offset: int, data: Array) -> None:
        """Write the bytes of an array, from byte `offset` of a tensor on."""
        place = self._places[output.name]
        write_at(place.file, as_bytes(data), place.offset + offset)

    def sync(self) -> None:
        for file in self._files:
            sync(file)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def _add(self, path: Path, outputs: Sequence[Output]) -> None:
        header, offsets = safetensors_header(outputs, WRITTEN_BY)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._files.append(file)
        os.ftruncate(file, len(header) + sum(output.nbytes for output in outputs))
        os.pwrite(file, header, 0)
        for name, offset in offsets.items():
            self._places[name] = Place(file, offset)
            self.weight_map[name] = path.name


def safetensors_header(
    outputs: Sequence[Output], metadata: Mapping[str, str], alignment: int = ALIGNMENT, padded: bool = False
) -> tuple[bytes, dict[str, int]]:
    """Return everything before the data of a file, and the offset of each tensor in it.

    The data starts at a multiple of `alignment`. If `padded`, every tensor starts at a multiple of ALIGNMENT:
    where one does not, tensors of zeros fill the gap, named as `is_padding` tells.
    """
    entries: dict[str, Any] = {}
    end = 0

    def add(name: str, dtype: str, shape: Sequence[int], nbytes: int) -> None:
        nonlocal end
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes

    for output in sorted(outputs, key=lambda output: -_unit(output.nbytes)):
        if padded and (gap := -end % ALIGNMENT):
            add(padding_name(len(entries)), "U8", [gap], gap)
        add(output.name, CODES[output.dtype], output.shape, output.nbytes)
    text = json.dumps(
        {"__metadata__": {"format": "mlx", **metadata}, **entries}, separators=(",", ":")
    ).encode()
    text += b" " * (-(8 + len(text)) % alignment)
    start = 8 + len(text)
    offsets = {name: start + entry["data_offsets"][0] for name, entry in entries.items()}
    return len(text).to_bytes(8, "little") + text, offsets


def _split(outputs: Sequence[Output], largest: int) -> list[list[Output]]:
    groups: list[list[Output]] = []
    size = 0
    for output in outputs:
        if not groups or size + output.nbytes > largest:
            groups.append([])
            size = 0
        groups[-1].append(output)
        size += output.nbytes
    return groups


def _unit(nbytes: int) -> int:
    """Return the largest power of two up to ALIGNMENT that divides a size.

    The format allows no gaps. Sorted by this unit, largest first, each tensor starts at a multiple of it.
    """
    return min(ALIGNMENT, nbytes & -nbytes) if nbytes else ALIGNMENT
