"""packed.json: the manifest of a packed checkpoint; see docs/packed-format.md.

A packed checkpoint has one file for the experts of each layer. Every expert is a record, `stride` bytes after
the one before it, with all arrays of its three projections.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pyturbo._arrays import Array
from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.manifest_entries import Fields
from pyturbo.checkpoint.manifest_parts import PARTS, PROJECTIONS, Part, check_parts
from pyturbo.errors import FormatError

FORMAT = "pyturbo-packed"
VERSION = 1
NAME = "packed.json"
RESIDENT = "model.safetensors"

#: Record strides are multiples of this many bytes, the largest page of the machines we know.
PAGE = 16 << 10

_LAYER_FILE = re.compile(r"experts/layer-\d{3,6}\.bin")
_LAYER_PATH = re.compile(r"model\.layers\.\d{1,6}(\.[a-z_]{1,64}){1,4}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MODEL_TYPE = re.compile(r"[\w.-]{1,64}")
_CHECKSUM = re.compile(r"[0-9a-f]{16}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")

__all__ = ["FORMAT", "NAME", "PAGE", "PARTS", "PROJECTIONS", "RESIDENT", "VERSION"]
__all__ += ["Manifest", "PackedFile", "PackedLayer", "Part", "Resident", "checksum", "stride_of"]


def checksum(data: bytes | memoryview) -> str:
    """Return the XXH3 checksum of 64 bits with seed 0, as 16 hexadecimal digits."""
    return xxhash.xxh3_64_hexdigest(data)


def stride_of(parts: Sequence[Part]) -> int:
    """Return the distance of records with these parts."""
    return -(-parts[-1].end // PAGE) * PAGE


@dataclass(frozen=True)
class PackedFile:
    """A small file that is checked as a whole, such as config.json."""

    nbytes: int
    checksum: str


@dataclass(frozen=True)
class Resident:
    """The safetensors file with all tensors that are not in records."""

    file: str
    nbytes: int
    header: str  # checksum of everything before the data of the tensors
    checksums: Mapping[str, str]  # of the data of each tensor, by its name in the file


@dataclass(frozen=True)
class PackedLayer:
    """The file with the experts of one layer."""

    path: str  # "model.layers.3.mlp.switch_mlp"
    file: str
    experts: int
    stride: int
    parts: tuple[Part, ...]  # in the order of their offsets
    formats: Mapping[str, Format | None]  # by projection; None: floating point
    checksums: tuple[str, ...]  # of each record, with its padding

    @property
    def nbytes(self) -> int:
        return self.experts * self.stride

    def part(self, name: str) -> Part | None:
        """Return a part such as "gate_proj.scales"; None if the records have none of this name."""
        return next((part for part in self.parts if part.name == name), None)

    def array(self, part: Part, records: Array, count: int | None = None) -> Array:
        """Return the view [count, ...] of one part of consecutive records, which are contiguous bytes."""
        count = self.experts if count is None else count
        shape, dtype = part.shape, part.array_dtype
        inner = (math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape)))
        view: Array = np.ndarray((count, *shape), dtype, records, part.offset, (self.stride, *inner))
        return view


@dataclass(frozen=True)
class Manifest:
    model_type: str
    #: The checkpoint that was packed: "fingerprint", and "expert_bits" if experts were quantised again.
    source: Mapping[str, Any]
    resident: Resident
    files: Mapping[str, PackedFile]  # all other files but the manifest, by name
    layers: tuple[PackedLayer, ...]

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a folder, and check that its files exist and have the sizes it states."""
        manifest = Manifest.parse(json_file.read_bytes(folder / NAME), str(folder / NAME))
        for name, expected in manifest.sizes().items():
            try:
                got = (folder / name).stat().st_size
            except OSError as error:
                reason = error.strerror or error
                raise FormatError(f"{folder / name}: expected {expected} bytes, got none: {reason}") from None
            if got != expected:
                raise FormatError(f"{folder / name}: expected {expected} bytes, got {got}")
        return manifest

    @staticmethod
    def parse(data: bytes, where: str) -> Manifest:
        """Read a manifest and check all that can be checked without the files."""
        top = Fields(where, json_file.parse_object(data, where))
        if top.value("format") != FORMAT:
            raise top.wrong("format", f"{FORMAT!r}")
        if top.value("version") != VERSION or type(top.value("version")) is not int:
            raise top.wrong("version", f"{VERSION}, the only one this release of pyturbo knows")
        said = top.matching("checksum", _CHECKSUM, "16 hexadecimal digits")
        if said != (found := _checksum_of(top.values)):
            raise FormatError(f"{where}: checksum: expected {found}, of the entries, got {said}: damaged")
        layers = tuple(_layer(fields) for fields in top.groups("layers"))
        if not layers:
            raise top.wrong("layers", "at least one layer with experts")
        for what in ("path", "file"):
            names = [getattr(layer, what) for layer in layers]
            if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
                raise FormatError(f"{where}: layers: {what}: {shown(twice)}: occurs twice")
        source = top.group("source")
        source.matching("fingerprint", _FINGERPRINT, "64 hexadecimal digits")
        return Manifest(
            top.matching("model_type", _MODEL_TYPE, "a name"),
            source.values,
            _resident(top.group("resident")),
            _files(top.group("files")),
            layers,
        )

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files but the manifest itself, by their names in the folder."""
        sizes = {name: file.nbytes for name, file in self.files.items()}
        sizes[self.resident.file] = self.resident.nbytes
        return sizes | {layer.file: layer.nbytes for layer in self.layers}

    def to_json(self) -> dict[str, Any]:
        """Return the object that `parse` reads."""
        entries: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "model_type": self.model_type,
            "source": dict(self.source),
            "files": {
                name: {"bytes": file.nbytes, "checksum": file.checksum} for name, file in self.files.items()
            },
            "resident": {
                "file": self.resident.file,
                "bytes": self.resident.nbytes,
                "header": self.resident.header,
                "checksums": dict(self.resident.checksums),
            },
            "layers": [_layer_json(layer) for layer in self.layers],
        }
        return entries | {"checksum": _checksum_of(entries)}


def _checksum_of(entries: dict[str, Any]) -> str:
    """Return the checksum of all entries but "checksum": compact JSON in ASCII, keys in sorted order."""
    rest = {key: value for key, value in entries.items() if key != "checksum"}
    return checksum(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())


def _layer_json(layer: PackedLayer) -> dict[str, Any]:
    return {
        "path": layer.path,
        "file": layer.file,
        "experts": layer.experts,
        "stride": layer.stride,
        "parts": [part.to_json() for part in layer.parts],
        "formats": {
            name: form and {"mode": form.mode, "bits": form.bits, "group_size": form.group_size}
            for name, form in layer.formats.items()
        },
        "checksums": list(layer.checksums),
    }


def _layer(fields: Fields) -> PackedLayer:
    path = fields.matching("path", _LAYER_PATH, 'a path such as "model.layers.3.mlp.switch_mlp"')
    fields = fields.named(path)
    file = fields.matching("file", _LAYER_FILE, 'a name such as "experts/layer-003.bin"')
    experts, stride = fields.count("experts", least=1), fields.count("stride", least=PAGE)
    if stride % PAGE:
        raise fields.wrong("stride", f"a multiple of {PAGE}")
    parts = tuple(Part.read(part) for part in fields.groups("parts"))
    formats = fields.group("formats").formats()
    check_parts(fields, parts, formats, stride)
    checksums = fields.texts("checksums", _CHECKSUM, "16 hexadecimal digits")
    if len(checksums) != experts:
        raise FormatError(f"{fields.where}: checksums: expected {experts}, got {len(checksums)}")
    return PackedLayer(path, file, experts, stride, parts, formats, tuple(checksums))


def _resident(fields: Fields) -> Resident:
    if fields.value("file") != RESIDENT:
        raise fields.wrong("file", f"{RESIDENT!r}")
    sums = fields.group("checksums")
    return Resident(
        RESIDENT,
        fields.count("bytes", least=8),
        fields.matching("header", _CHECKSUM, "16 hexadecimal digits"),
        {name: sums.matching(name, _CHECKSUM, "16 hexadecimal digits") for name in sums.values},
    )


def _files(fields: Fields) -> dict[str, PackedFile]:
    files = {}
    for name in fields.values:
        if not _PLAIN_NAME.fullmatch(name) or name in (NAME, RESIDENT):
            raise FormatError(f"{fields.where}: expected the name of another file, got {shown(name)}")
        entry = fields.group(name)
        known = entry.matching("checksum", _CHECKSUM, "16 hexadecimal digits")
        files[name] = PackedFile(entry.count("bytes", least=0), known)
    if "config.json" not in files:
        raise FormatError(f"{fields.where}: expected an entry 'config.json', found none")
    return files
