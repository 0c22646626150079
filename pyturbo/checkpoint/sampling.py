"""How a checkpoint wants its replies sampled: generation_config.json, or the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._sampling import Sampler
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint._shown import shown
from pyturbo.errors import ArgumentError, FormatError

#: Of GGUF files, by the names that generation_config.json has for them.
_GGUF_NAMES = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


@dataclass(frozen=True, repr=False)
class SamplingDefaults:
    """What the checkpoint says of the options of `pyturbo.Sampler`; None where it says nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __repr__(self) -> str:
        return f"SamplingDefaults({', '.join(f'{name}={value}' for name, value in self.stated().items())})"

    def stated(self) -> dict[str, float | int]:
        """What it says something of."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def directory_sampling(directory: Path) -> SamplingDefaults:
    """From generation_config.json; `do_sample` decides whether tokens are drawn at all."""
    path = directory / "generation_config.json"
    config = json_file.read_object(path) if path.is_file() else {}
    drawn = config.get("do_sample")
    if drawn is not None and not isinstance(drawn, bool):
        raise FormatError(f"{path}: do_sample: expected true or false, got {shown(drawn)}")
    values = _checked(str(path), {field.name: field.name for field in fields(SamplingDefaults)}, config)
    if drawn is False:
        values["temperature"] = 0.0
    elif drawn:
        values.setdefault("temperature", 1.0)
    return SamplingDefaults(**values)


def gguf_sampling(path: Path, metadata: Mapping[str, Any]) -> SamplingDefaults:
    """From the keys general.sampling.*."""
    values = _checked(str(path), _GGUF_NAMES, metadata)
    shortest = {name: float(str(np.float32(value))) for name, value in values.items() if name != "top_k"}
    return SamplingDefaults(**values | shortest)


def _checked(where: str, names: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are there, each as the sampler takes it."""
    values = {}
    for name, key in names.items():
        value = found.get(key)
        if value is None:
            continue
        if name == "top_k" and value == -1:  # off, as some engines write it
            value = 0
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ArgumentError(f"Sampler: {name}: expected a number, got {shown(value)}")
            Sampler(**{name: value})  # type: ignore[arg-type]
        except ArgumentError as error:
            wrong = str(error).removeprefix(f"Sampler: {name}: ")
            raise FormatError(f"{where}: {key}: {wrong}") from None
        values[name] = value if name == "top_k" else float(value)
    return values
