"""Checkpoints in the cache of huggingface_hub, found by the layout of its folders. Nothing is downloaded.

models--OWNER--NAME/refs/REVISION          the commit of a branch or a tag
models--OWNER--NAME/snapshots/COMMIT/...   its files
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pyturbo.checkpoint.gguf_names import all_parts
from pyturbo.errors import FileError

_PART = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(
    rf"(?P<owner>{_PART})/(?P<name>{_PART})(@(?P<revision>[\w./+-]+))?(:(?P<file>[^:]+\.gguf))?", re.ASCII
)
_SHORTEST_COMMIT = 7  # fewest letters that stand for a commit


@dataclass(frozen=True)
class ModelId:
    """An id: OWNER/NAME, OWNER/NAME@REVISION, OWNER/NAME:FILE.gguf or OWNER/NAME@REVISION:FILE.gguf."""

    repository: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return self.repository + revision + ("" if self.file is None else f":{self.file}")

    @property
    def pull(self) -> str:
        """Return the command that downloads the model."""
        words = ["pyturbo", "pull", self.repository]
        words += [] if self.revision is None else ["--revision", self.revision]
        return " ".join(words if self.file is None else [*words, "--include", f"'{all_parts(self.file)}'"])


def model_id(text: str) -> ModelId | None:
    """Read an id, which may end in a slash as paths do; None if `text` cannot be one."""
    match = _ID.fullmatch(text.rstrip("/"))
    return match and ModelId(f"{match['owner']}/{match['name']}", match["revision"], match["file"])


def cache_folder() -> Path:
    """Return the folder that huggingface_hub downloads to, from the same environment variables."""
    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
    given = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if given is None:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        given = f"{os.environ.get('HF_HOME') or f'{caches}/huggingface'}/hub"
    return Path(os.path.expandvars(given)).expanduser()


def find(wanted: ModelId) -> Path | None:
    """Return the directory or the .gguf file of a model; None if the cache has nothing of the repository.

    Without a revision it is the branch `main`, or the newest copy if that was never downloaded.
    """
    folder = cache_folder() / f"models--{wanted.repository.replace('/', '--')}"
    copies = _folders(folder / "snapshots")
    if not copies:
        return None
    copy = _newest(folder, copies) if wanted.revision is None else _revision(folder, wanted.revision, copies)
    if copy is None:
        raise FileError(
            f"{wanted}: revision {wanted.revision!r} is not in the cache, {folder}; to get it: {wanted.pull}"
        )
    return _within(copy, wanted)


def models() -> dict[str, Path]:
    """Return the repositories in the cache that hold a checkpoint, or GGUF files, with their folders."""
    found = {}
    for folder in sorted(_folders(cache_folder())):
        kind, *names = folder.name.split("--")
        copy = _newest(folder, _folders(folder / "snapshots"))
        if kind == "models" and len(names) == 2 and copy and (is_checkpoint(copy) or gguf_files(copy)):
            found["/".join(names)] = copy
    return found


def gguf_files(folder: Path) -> list[str]:
    """List the GGUF files of a folder, relative to it; of one in several parts, the first that is there."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.gguf") if path.is_file())
    firsts: dict[str, str] = {}
    for name in names:
        firsts.setdefault(all_parts(name), name)
    return list(firsts.values())


def is_checkpoint(folder: Path) -> bool:
    """Tell whether a folder has a configuration and weights of its own."""
    return (folder / "config.json").is_file() and any(folder.glob("model*.safetensors"))


def _within(copy: Path, wanted: ModelId) -> Path:
    """Return the file that was named, or the only thing in a copy that can be opened."""
    files = gguf_files(copy)
    if wanted.file is None and is_checkpoint(copy):
        return copy
    if wanted.file is not None and (copy / wanted.file).is_file():
        return copy / wanted.file
    if wanted.file is None and len(files) == 1:
        return copy / files[0]
    if wanted.file is None and len(files) > 1:
        options = ", ".join(f"{wanted}:{name}" for name in files)
        raise FileError(f"{wanted}: expected one GGUF file, found {len(files)}: say which: {options}")
    what = wanted.file or "config.json with model*.safetensors, or a .gguf file,"
    found = f"GGUF files {', '.join(files)}" if files else "no weights"
    raise FileError(f"{wanted}: expected {what} in {copy}, found {found}; to get it: {wanted.pull}")


def _newest(folder: Path, copies: list[Path]) -> Path | None:
    return _revision(folder, "main", copies) or max(
        copies, key=lambda copy: copy.stat().st_mtime, default=None
    )


def _revision(folder: Path, revision: str, copies: list[Path]) -> Path | None:
    """Return the copy of a branch, a tag or a commit; a commit may be abbreviated."""
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision
    exact = [copy for copy in copies if copy.name == commit]
    begin = [copy for copy in copies if len(commit) >= _SHORTEST_COMMIT and copy.name.startswith(commit)]
    return next(iter(exact), begin[0] if len(begin) == 1 else None)


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except OSError:
        return []
