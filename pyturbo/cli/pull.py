"""``pyturbo pull``: download a checkpoint from the Hugging Face hub."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path

from pyturbo.checkpoint.directory import weight_files
from pyturbo.checkpoint.gguf_names import all_parts
from pyturbo.checkpoint.hub_cache import ModelId, gguf_files, is_checkpoint, model_id
from pyturbo.cli._output import note, print_json
from pyturbo.cli._pull_folder import claimed
from pyturbo.cli._usage import EXAMPLE, UsageError, path
from pyturbo.errors import FileError, FormatError, StateError

HELP = "download a checkpoint from the Hugging Face hub"

_WEIGHTS = ("*.safetensors", "*.gguf")
_SMALL = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "LICENSE*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help=f"id of the model, such as {EXAMPLE}, or owner/name@revision:FILE.gguf")
    parser.add_argument("--revision", help="branch, tag or commit (default: main)")
    parser.add_argument(
        "--to",
        type=path,
        metavar="DIR",
        help="new or empty folder to download to (default: the cache of huggingface_hub)",
    )
    parser.add_argument(
        "--include",
        action="append",
        metavar="PATTERN",
        help="download only weights whose name matches, such as '*Q4_K_M.gguf'",
    )


def run(arguments: argparse.Namespace) -> None:
    try:
        import huggingface_hub
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        raise StateError('pull: needs huggingface_hub: pip install "pyturbo-llm[pull]"') from None
    wanted = _wanted(arguments)
    weights = [all_parts(wanted.file)] if wanted.file else arguments.include or _WEIGHTS
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        with nullcontext() if arguments.to is None else claimed(arguments.to, wanted.repository):
            path = huggingface_hub.snapshot_download(
                wanted.repository,
                revision=wanted.revision,
                local_dir=arguments.to,
                allow_patterns=[*_SMALL, *weights],
            )
            _require_loadable(arguments.id, wanted, Path(path), weights)
    except FileError:
        raise
    except LocalEntryNotFoundError as error:  # also raised for HTTP errors without a response
        raise FileError(
            f"pull: {arguments.id}: the hub cannot be reached, and the model is not in the cache"
        ) from error
    except RepositoryNotFoundError as error:
        raise FileError(f"pull: {arguments.id}: there is no such model, or it needs a login") from error
    except HFValidationError as error:
        raise UsageError(f"{arguments.id}: {_first_line(error)}") from error
    except (HfHubHTTPError, OSError) as error:
        raise FileError(f"pull: {arguments.id}: {_first_line(error)}") from error
    names = _names(wanted, path, in_cache=arguments.to is None)
    if arguments.json:
        print_json({"path": path, "models": names})
        return
    print(path, flush=True)
    note("\n".join(["next:", *(f"  pyturbo chat {name}" for name in names)]))


def _wanted(arguments: argparse.Namespace) -> ModelId:
    """Return what to download; an id of another form is left to the hub to judge."""
    if not arguments.id:
        raise UsageError(f"expected the id of a model, such as {EXAMPLE}, got an empty one")
    wanted = model_id(arguments.id) or ModelId(arguments.id)
    for option, given, own in (
        ("--revision", arguments.revision, wanted.revision),
        ("--include", arguments.include, wanted.file),
    ):
        if given and own:
            raise UsageError(f"{option}: expected it only once, the id already names {own!r}")
    return ModelId(wanted.repository, arguments.revision or wanted.revision, wanted.file)


def _require_loadable(given: str, wanted: ModelId, folder: Path, weights: Sequence[str]) -> None:
    """Refuse a folder without weights, which huggingface_hub returns if the hub cannot be reached."""
    try:
        if wanted.file is None and is_checkpoint(folder):
            weight_files(folder)
        elif not any(fnmatchcase(file, pattern) for file in gguf_files(folder) for pattern in weights):
            what = wanted.file or "config.json with model*.safetensors, or a GGUF file that was asked for"
            raise FormatError(f"expected {what}, found none")
    except FormatError as error:
        raise FileError(f"pull: {given}: {error}: the hub cannot be reached, or does not have it") from None


def _names(wanted: ModelId, path: str, in_cache: bool) -> list[str]:
    """Return names for `--model` and `pyturbo.load`: one, or one for each GGUF file."""
    folder = Path(path)
    files = [] if is_checkpoint(folder) else gguf_files(folder)
    if not in_cache:
        return [str(folder / file) for file in files] or [path]
    several = files if len(files) > 1 else [wanted.file]
    return [str(ModelId(wanted.repository, wanted.revision, file)) for file in several]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
