"""Reading the entries of a configuration, each with its type and range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyturbo.checkpoint import Checkpoint
from pyturbo.checkpoint.file import Array
from pyturbo.errors import FormatError


class Entries:
    """The configuration of a checkpoint. A missing or wrong entry is a FormatError that names it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._where = str(checkpoint.path)
        self._config = checkpoint.config

    def count(self, name: str, default: int | None = None) -> int:
        value = self._config.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError(f"{self._where}: {name}: expected a count, got {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._config.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise FormatError(f"{self._where}: {name}: expected a number, got {value!r}")
        return float(value)

    def rope(self, head_dim: int) -> Array:
        """The inverse frequencies of the rotary embedding: plain, or stretched as Llama 3 does."""
        given = self._config.get("rope_parameters") or self._config.get("rope_scaling") or {}
        if not isinstance(given, dict):
            raise FormatError(f"{self._where}: rope_scaling: expected an object, got {given!r}")
        theta = given.get("rope_theta", self._config.get("rope_theta", 10000.0))
        kind = given.get("rope_type", given.get("type", "default"))
        plain: Array = float(theta) ** (-np.arange(0, head_dim, 2) / head_dim)
        if kind == "default":
            return plain.astype(np.float32)
        if kind != "llama3":
            raise FormatError(f"{self._where}: rope_type: expected default or llama3, got {kind!r}")
        return _llama3(plain, given).astype(np.float32)


def _llama3(plain: Array, given: dict[str, Any]) -> Array:
    """Long waves are slowed by `factor`, short ones kept, those between blended."""
    low, high, factor = (float(given[name]) for name in ("low_freq_factor", "high_freq_factor", "factor"))
    turns = float(given["original_max_position_embeddings"]) * plain / (2 * np.pi)
    blend = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (blend + (1 - blend) / factor)
