"""config.json: one flat object for the text model, and the rules of its quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyturbo._messages import shown
from pyturbo.checkpoint import json_file
from pyturbo.checkpoint.names import text_name
from pyturbo.errors import FormatError
from pyturbo.ops.fp_format import FP_FORMATS
from pyturbo.ops.gguf_format import GGUF_TYPES, BlockType

_NESTED = ("text_config", "vision_config", "audio_config")

#: Bits and group size of each mode, used if the config does not state them.
MODES = {"affine": (4, 64), **FP_FORMATS}

#: Those, and the block types of GGUF.
_ALL_MODES = {**MODES, **{name: (block.bits, block.values) for name, block in GGUF_TYPES.items()}}

#: Methods of transformers for which the tensors show what is quantised, and how.
_BY_TENSORS = ("mxfp4",)


def read_config(path: Path) -> dict[str, Any]:
    """Return the entries of the top level, overridden by those of `text_config` if there is one.

    `model_type` is that of the top level, without `_text` at its end.
    """
    top = json_file.read_object(path)
    text = top.get("text_config") or {}
    if not isinstance(text, dict):
        raise FormatError(f"{path}: text_config: expected an object, got {shown(text)}")
    config = {key: value for key, value in top.items() if key not in _NESTED} | text
    model_type = top.get("model_type", text.get("model_type"))
    if not isinstance(model_type, str):
        raise FormatError(f"{path}: model_type: expected a name, got {shown(model_type)}")
    config["model_type"] = model_type.removesuffix("_text")
    return config


@dataclass(frozen=True)
class Format:
    """The format that one matrix is quantised in."""

    bits: int
    group_size: int  # for a block type of GGUF, the values of a block
    mode: str

    @staticmethod
    def blocks(kind: str) -> Format:
        """Return the format of a block type of GGUF."""
        return Format(GGUF_TYPES[kind].bits, GGUF_TYPES[kind].values, kind)

    @property
    def block(self) -> BlockType | None:
        """Return the block type of GGUF that this is; None for codes in words."""
        return GGUF_TYPES.get(self.mode)

    def width(self, columns: int) -> int:
        """Return the number of values in a row, given its number of words, or of bytes for blocks."""
        if self.block is None:
            return columns * 32 // self.bits
        return columns // self.block.bytes * self.block.values

    def __str__(self) -> str:
        return f"{self.bits} bits in groups of {self.group_size}" if self.mode == "affine" else self.mode


class Quantization:
    """The `quantization` entry of a config: a format for all modules, and formats of single modules.

    The tensors of a module decide whether it is quantised; the config decides what they leave open.
    """

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self._default: Format | None = None
        self._overrides: dict[str, Format | None] = {}
        key = "quantization" if config.get("quantization") is not None else "quantization_config"
        entry = config.get(key)
        if entry is None:
            return
        where = f"{path}: {key}"
        if not isinstance(entry, dict):
            raise FormatError(f"{where}: expected an object, got {shown(entry)}")
        if key == "quantization_config" and entry.get("quant_method") in _BY_TENSORS:
            return
        if key == "quantization_config" and "quant_method" in entry:
            raise FormatError(f"{where}: quant_method {shown(entry['quant_method'])} is not supported")
        self._default = read_format(where, entry)
        for name, value in entry.items():
            if isinstance(value, dict):
                self._overrides[text_name(name)] = read_format(f"{where}: {shown(name)}", value)
            elif value is False:
                self._overrides[text_name(name)] = None

    def format(self, path: str) -> Format | None:
        """Return the format of a module, None if the config says that it has none."""
        return self._overrides.get(path, self._default)


def read_format(where: str, entry: dict[str, Any]) -> Format:
    """Read a format. Without a mode it is affine, whatever the top level says; null is the mode's default."""
    mode = entry.get("mode", "affine")
    if not isinstance(mode, str) or mode not in _ALL_MODES:
        raise FormatError(f"{where}: mode: expected one of {', '.join(_ALL_MODES)}, got {shown(mode)}")
    numbers = []
    for name, default in zip(("bits", "group_size"), _ALL_MODES[mode]):
        value = entry.get(name)
        value = default if value is None else value
        if type(value) is not int or not 0 < value <= 1024:
            raise FormatError(f"{where}: {name}: expected a small number, got {shown(value)}")
        numbers.append(value)
    return Format(numbers[0], numbers[1], mode)
