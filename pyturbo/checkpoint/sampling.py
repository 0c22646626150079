"""Sampling defaults of a checkpoint, from generation_config.json or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._messages import shown
from pyturbo._sampling import Sampler
from pyturbo.checkpoint import json_file
from pyturbo.errors import ArgumentError

#: Options by their names in generation_config.json, with their keys in GGUF files.
_GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


@dataclass(frozen=True, repr=False)
class SamplingDefaults:
    """Options of `pyturbo.Sampler` as the checkpoint states them; None if it does not state one.

    Attributes:
        ignored: Entries of the checkpoint that cannot be used, by their names in it, and why.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignored: dict[str, str] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        shown_values = {**self.stated(), **({"ignored": self.ignored} if self.ignored else {})}
        return f"SamplingDefaults({', '.join(f'{name}={value}' for name, value in shown_values.items())})"

    def stated(self) -> dict[str, float | int]:
        """Return the options that the checkpoint states."""
        values = {name: getattr(self, name) for name in _GGUF_NAMES}
        return {name: value for name, value in values.items() if value is not None}


def directory_sampling(directory: Path) -> SamplingDefaults:
    """Read generation_config.json; `do_sample` decides whether tokens are sampled at all."""
    path = directory / "generation_config.json"
    config = json_file.read_generation_config(path) if path.is_file() else {}
    values, ignored = _usable({name: name for name in _GGUF_NAMES}, config)
    drawn = config.get("do_sample")
    if drawn is not None and (not isinstance(drawn, (int, float)) or drawn not in (0, 1)):
        ignored["do_sample"] = f"expected true or false, got {shown(drawn)}"
    elif drawn:
        values.setdefault("temperature", 1.0)
    elif drawn is not None:
        values["temperature"] = 0.0
    return SamplingDefaults(**values, ignored=ignored)


def gguf_sampling(metadata: Mapping[str, Any]) -> SamplingDefaults:
    """Read the keys general.sampling.*."""
    found = {key: metadata.get(key) for key in _GGUF_NAMES.values()}
    with np.errstate(over="ignore"):
        shortest = {
            key: float(str(np.float32(value))) for key, value in found.items() if type(value) is float
        }
    values, ignored = _usable(_GGUF_NAMES, found | shortest)
    return SamplingDefaults(**values, ignored=ignored)


def _usable(names: Mapping[str, str], found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the usable values as the sampler takes them, and what is wrong with the others."""
    values, ignored = {}, {}
    for name, key in names.items():
        value = found.get(key)
        if value is None:
            continue
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentError(f"expected a number, got {shown(value)}")
            if isinstance(value, int) and value.bit_length() > 64:
                raise ArgumentError(f"expected a number in range, got {shown(value)}")
            if name == "top_k":
                value = _count(value)
            Sampler(**{name: value})  # type: ignore[arg-type]
        except ArgumentError as error:
            ignored[key] = str(error).removeprefix(f"Sampler: {name}: ")
        else:
            values[name] = value if name == "top_k" else float(value)
    return values, ignored


def _count(value: float) -> float:
    """Return the value of an option that counts; some engines write -1 for off."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return 0 if value == -1 else value
