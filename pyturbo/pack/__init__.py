"""Packed checkpoints: each routed expert one contiguous record, to be read from disk when it is needed.

docs/packed-format.md specifies the files. Memory does not grow with the model: values pass through in blocks
of rows. A run that was killed or interrupted is continued by the next one with the same arguments.

The module can be called: `pyturbo.pack(source, target)` is `pyturbo.pack.pack(source, target)`.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from pyturbo._arguments import callback, flag, path_of
from pyturbo._callable import make_callable
from pyturbo._messages import shown
from pyturbo.checkpoint import Checkpoint, locate, open_checkpoint
from pyturbo.checkpoint import manifest as manifests
from pyturbo.checkpoint.manifest import Manifest
from pyturbo.checkpoint.origin import Origin
from pyturbo.checkpoint.tensors import Progress
from pyturbo.convert.folder import require_room
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.files.replace import new_folder, target_of, writing
from pyturbo.files.write import drop_cached
from pyturbo.pack import journal
from pyturbo.pack.files import SmallFiles
from pyturbo.pack.findings import Finding
from pyturbo.pack.plan import Plan, make_plan
from pyturbo.pack.requantize import EXPERT_BITS
from pyturbo.pack.target import check as check_target
from pyturbo.pack.verification import Verified, verify, verify_folder
from pyturbo.pack.work import Work, large_bytes
from pyturbo.pack.write import resident_header

__all__ = ["EXPERT_BITS", "Finding", "Packed", "Verified", "pack", "verify"]


@dataclass(frozen=True)
class Packed:
    """The result of packing."""

    path: Path
    layers: int
    experts: int  # records in all layers
    record_bytes: int
    resident_bytes: int
    reused_bytes: int  # bytes of files that an earlier run had finished
    #: Root mean square error over that of the values, by projection and "all"; empty if nothing was rounded.
    errors: dict[str, float]
    compared: bool  # whether everything was compared with the source


def pack(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    expert_bits: int | None = None,
    force: bool = False,
    check: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Write the checkpoint `source`, which must have experts, as a packed one into a new directory `target`.

    Everything keeps the format it has once it is loaded. `expert_bits`, 2 or 3, quantises the experts again.
    `check` compares what was written with the source. `progress` is called with bytes of the target.

    `target` is a new folder, or an empty one; `force` replaces a checkpoint that pack wrote, and nothing
    else. The folder appears under that name when it is complete. After a kill, an interrupt or an error of
    the system, finished files stay in a hidden folder beside it, which the next call continues.
    """
    path_of("pack: source", source)
    callback("pack: progress", progress)
    force, check = flag("pack: force", force), flag("pack: check", check)
    if expert_bits is not None and (type(expert_bits) is not int or expert_bits not in EXPERT_BITS):
        known = " or ".join(map(str, EXPERT_BITS))
        raise ArgumentError(f"pack: expert_bits: expected {known}, got {shown(expert_bits)}")
    place = target_of("pack: target", target)
    found = locate(source)
    if (found / manifests.NAME).is_file():
        raise FormatError(f"{found}: expected a checkpoint to pack, got one that is packed already")
    with ExitStack() as opened:
        checkpoint = opened.enter_context(open_checkpoint(found))
        origin = Path(os.path.realpath(checkpoint.path))
        with writing(place):
            check_target(place, origin, force)
        plan = make_plan(checkpoint, expert_bits)
        small = SmallFiles(checkpoint, plan, opened)
        facts = _facts(checkpoint, expert_bits)
        status = _status(checkpoint)
        key = _key(status, plan, facts | {"files": small.names})
        total = large_bytes(plan)
        steps = _Steps(progress, total, 3 if check else 1)
        with new_folder(
            place,
            lambda where: check_target(where, origin, force),
            lambda folder: journal.resumes(folder, key),
        ) as folder:
            with journal.Journal(folder, key) as log:
                work = Work(folder, plan, log, steps.advance)
                require_room(place, folder, total - work.kept + small.nbytes)
                resident, layers = work.write()
            if _status(checkpoint) != status:
                raise FormatError(
                    f"{found}: expected a checkpoint that stays as it is, its files have changed"
                )
            written = Manifest(checkpoint.model_type, facts, resident, small.write(folder), layers)
            text = json.dumps(written.to_json(), separators=(",", ":"))
            (folder / manifests.NAME).write_text(text + "\n", encoding="utf-8")
            if check:
                for name in written.sizes():
                    drop_cached(folder / name)
                replace(verify_folder(folder, found, steps.rest), path=place).require()
        (place / journal.NAME).unlink(missing_ok=True)
    return Packed(
        Path(target),
        len(layers),
        sum(layer.experts for layer in layers),
        sum(layer.nbytes for layer in layers),
        resident.nbytes,
        work.kept,
        work.errors(),
        check,
    )


class _Steps:
    """Calls `progress` with bytes out of `rounds` times the size of the target."""

    def __init__(self, progress: Progress | None, nbytes: int, rounds: int) -> None:
        self._progress, self._total, self._rest = progress, nbytes * rounds, nbytes * (rounds - 1)
        self._done = 0

    def advance(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(min(self._done, self._total - self._rest), self._total)

    def rest(self, done: int, total: int) -> None:
        """Show work that is `done` of `total` as the rounds after the first."""
        if self._progress is not None:
            self._progress(self._total - self._rest + self._rest * done // max(1, total), self._total)


def _facts(checkpoint: Checkpoint, expert_bits: int | None) -> dict[str, Any]:
    """Return what the manifest says of the source."""
    origin = Origin(checkpoint)
    try:
        facts: dict[str, Any] = {"fingerprint": origin.fingerprint}
    finally:
        origin.close()
    return facts if expert_bits is None else facts | {"expert_bits": expert_bits}


def _status(checkpoint: Checkpoint) -> dict[str, list[int]]:
    """Return size and time of change of the files of tensors."""
    paths = sorted({info.file.path for info in checkpoint.values()})
    return {path.name: [(status := path.stat()).st_size, status.st_mtime_ns] for path in paths}


def _key(status: dict[str, list[int]], plan: Plan, facts: dict[str, Any]) -> str:
    """Return a text that is the same only if the same source is packed with the same options and layout."""
    header, _, _ = resident_header(plan)
    layers = [repr(job.layer) for job in plan.layers]
    content = [manifests.VERSION, facts, status, hashlib.sha256(header).hexdigest(), layers]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


make_callable(__name__, pack)
