"""``pyturbo pull``: a checkpoint from the Hugging Face hub."""

from __future__ import annotations

import argparse
import json
import sys

from pyturbo.errors import FileError, StateError

HELP = "download a checkpoint from the Hugging Face hub"

_WEIGHTS = ("*.safetensors", "*.gguf")
_SMALL = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "LICENSE*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="such as mlx-community/Qwen3-0.6B-4bit")
    parser.add_argument("--revision", help="a branch, a tag or a commit (default: main)")
    parser.add_argument("--to", metavar="DIR", help="a folder (default: the cache of huggingface_hub)")
    parser.add_argument(
        "--include", action="append", metavar="PATTERN", help="of weights only files like '*Q4_K_M.gguf'"
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
    wanted = [*_SMALL, *(arguments.include or _WEIGHTS)]
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        path = huggingface_hub.snapshot_download(
            arguments.id, revision=arguments.revision, local_dir=arguments.to, allow_patterns=wanted
        )
    except LocalEntryNotFoundError as error:  # also an HTTP error where the answer came from no server
        raise FileError(
            f"pull: {arguments.id}: the hub cannot be reached, and it is not in the cache"
        ) from error
    except RepositoryNotFoundError as error:
        raise FileError(f"pull: {arguments.id}: there is no such model, or it asks for a login") from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise FileError(f"pull: {arguments.id}: {_first_line(error)}") from error
    print(json.dumps({"path": path}) if arguments.json else path)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
