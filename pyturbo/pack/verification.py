"""Verification of packed checkpoints: every byte of every file, by itself and against the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pyturbo import models
from pyturbo._arguments import callback, path_of
from pyturbo.checkpoint import json_file, locate, open_checkpoint
from pyturbo.checkpoint.directory import GGUF_TOKENIZER
from pyturbo.checkpoint.manifest import NAME, Manifest
from pyturbo.checkpoint.origin import Origin
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.convert.target import COPIED
from pyturbo.errors import FormatError, TurboError
from pyturbo.files.replace import is_partial
from pyturbo.pack.compare import compare
from pyturbo.pack.findings import Finding, check_file, check_layer, check_resident
from pyturbo.pack.plan import make_plan


@dataclass(frozen=True)
class Verified:
    """The result of a verification."""

    path: Path
    records: int
    tensors: int
    nbytes: int
    findings: tuple[Finding, ...]
    compared: bool  # whether values were compared with a source, which needs files without damage

    @property
    def ok(self) -> bool:
        return not self.findings

    def require(self) -> None:
        """Raise a FormatError with the first findings, if there are any."""
        if self.findings:
            more = len(self.findings) - 3
            some = "; ".join(map(str, self.findings[:3])) + (f"; and {more} more" if more > 0 else "")
            raise FormatError(f"{self.path}: is damaged: {some}")


def verify(
    path: str | PathLike[str],
    source: str | PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Verified:
    """Check every byte of the packed checkpoint in the directory `path`.

    `source` is the checkpoint that it was packed from: all values are compared with it too. Raises only if
    there is nothing to check; what is wrong with the files is in the result.
    """
    path_of("verify: path", path)
    if source is not None:
        path_of("verify: source", source)
    callback("verify: progress", progress)
    folder = locate(path)
    if is_partial(folder):
        raise FormatError(f"{folder}: expected a complete checkpoint, got an unfinished one")
    if not (folder / NAME).is_file():
        raise FormatError(f"{folder}: expected a packed checkpoint, found no {NAME}")
    if source is not None:
        open_checkpoint(source).close()  # an error of the source comes before all the reads
    return verify_folder(folder, source, progress)


def verify_folder(folder: Path, source: str | PathLike[str] | None, progress: Progress | None) -> Verified:
    """Check a folder with a manifest, even if it does not have its name yet."""
    try:
        manifest = Manifest.parse(json_file.read_bytes(folder / NAME), NAME)
    except TurboError as error:
        what = str(error).removeprefix(f"{NAME}: ")
        return Verified(folder, 0, 0, 0, (Finding(NAME, what),), compared=False)
    total = sum(manifest.sizes().values())
    compared = manifest.resident.nbytes + sum(layer.nbytes for layer in manifest.layers)
    advance = _counter(progress, total if source is None else total + compared)
    findings: list[Finding] = []
    for name, file in manifest.files.items():
        findings += check_file(folder, name, file, advance)
    findings += check_resident(folder, manifest.resident, advance)
    for layer in manifest.layers:
        findings += check_layer(folder, layer, advance)
    findings += _foreign(folder, manifest)
    if not findings:
        findings += _unreadable(folder, manifest)
    compares = source is not None and not findings
    if source is not None and compares:
        findings += _compare(folder, manifest, source, advance)
    return Verified(
        folder,
        sum(layer.experts for layer in manifest.layers),
        len(manifest.resident.checksums),
        total,
        tuple(findings),
        compared=compares,
    )


def _counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    done = 0

    def advance(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(min(done, total), total)

    return advance


def _foreign(folder: Path, manifest: Manifest) -> list[Finding]:
    """Find files that the manifest does not have, and that a reader could take for part of the model."""
    known = manifest.sizes()
    tensors = sorted(path.name for path in folder.glob("model*.safetensors*"))
    names = [name for name in (*COPIED, GGUF_TOKENIZER, *tensors) if name not in known]
    return [Finding(name, "is not in the manifest") for name in names if (folder / name).exists()]


def _unreadable(folder: Path, manifest: Manifest) -> list[Finding]:
    """Check that the files make up the model that the manifest names."""
    try:
        with PackedCheckpoint(folder) as checkpoint:
            models.outline(checkpoint)
            if checkpoint.model_type != manifest.model_type:
                what = f"model_type: expected {manifest.model_type!r}, got {checkpoint.model_type!r}"
                return [Finding("config.json", what)]
    except TurboError as error:
        return [Finding("config.json", str(error))]
    return []


def _compare(
    folder: Path, manifest: Manifest, source: str | PathLike[str], advance: Callable[[int], None]
) -> list[Finding]:
    with open_checkpoint(source) as checkpoint:
        origin = Origin(checkpoint)
        try:
            fingerprint = origin.fingerprint
        finally:
            origin.close()
        if fingerprint != manifest.source["fingerprint"]:
            return [Finding(NAME, f"source: expected the fingerprint of {checkpoint.path}, got another one")]
        return compare(folder, manifest, make_plan(checkpoint, manifest.source.get("expert_bits")), advance)
