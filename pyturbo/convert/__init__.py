"""Conversion of published checkpoints: float safetensors in, a quantised MLX directory out.

The result equals that of ``mlx_lm.convert -q`` tensor for tensor. Memory does not grow with the model: values
pass through in blocks of rows.

The module can be called: `pyturbo.convert(source, target)` is `pyturbo.convert.convert(source, target)`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pyturbo._arguments import callback, flag, index, path_of
from pyturbo._callable import make_callable
from pyturbo._dtypes import bfloat16
from pyturbo._messages import shown
from pyturbo.checkpoint import json_file, open_checkpoint
from pyturbo.checkpoint.config import MODES, Format
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.convert import work
from pyturbo.convert.folder import copied_files, copy_file, require_room, write_json
from pyturbo.convert.plan import Plan, make_plan
from pyturbo.convert.shards import LARGEST, Shards
from pyturbo.convert.target import INDEX, check
from pyturbo.errors import ArgumentError, FormatError
from pyturbo.files.replace import new_folder, target_of, writing
from pyturbo.ops.affine_format import check_format

DTYPES: dict[str, np.dtype[Any]] = {
    "bf16": bfloat16,
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}

#: Types by their names in config.json.
_CONFIG_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}


@dataclass(frozen=True)
class Converted:
    """The result of a conversion."""

    path: Path
    parameters: int
    source_bytes: int
    nbytes: int  # size of all tensors
    files: int


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    bits: int | None = None,
    group_size: int | None = None,
    dtype: str | None = None,
    *,
    mode: str = "affine",
    force: bool = False,
    shard_bytes: int = LARGEST,
    progress: Progress | None = None,
) -> Converted:
    """Quantise the checkpoint in the directory `source` into a new directory `target`.

    `mode` is "affine", by default with 4 bits in groups of 64, or "mxfp4", "mxfp8" or "nvfp4", which fix
    `bits` and `group_size`.

    `dtype` is the type of scales and of tensors that are not quantised: "bf16", "f16" or "f32"; None is the
    type in the configuration. `progress` is called with bytes of the source.

    `target` is a new folder, or an empty one; `force` replaces a checkpoint that convert wrote, and nothing
    else. The folder appears under that name when it is complete; a failure or an interrupt leaves nothing.
    """
    common = _common_format(mode, bits, group_size)
    path_of("convert: source", source)
    callback("convert: progress", progress)
    force, shard_bytes = flag("convert: force", force), index("convert: shard_bytes", shard_bytes, least=1)
    if dtype is not None and not (isinstance(dtype, str) and dtype in DTYPES):
        raise ArgumentError(f"convert: dtype: expected one of {', '.join(DTYPES)}, got {shown(dtype)}")
    place = target_of("convert: target", target)
    with ExitStack() as opened:
        checkpoint = opened.enter_context(open_checkpoint(source))
        if not isinstance(checkpoint, DirectoryCheckpoint):
            raise FormatError(f"{source}: expected a directory of safetensors, got a GGUF file")
        if isinstance(checkpoint, PackedCheckpoint):
            raise FormatError(
                f"{source}: expected a checkpoint to convert, got a packed one; convert its source instead"
            )
        origin = Path(os.path.realpath(checkpoint.path))
        with writing(place):
            check(place, origin, force)
        config = _read_config(checkpoint.path)
        plan = make_plan(checkpoint, common, _dtype(config, dtype))
        copied = copied_files(checkpoint.path, opened)
        outputs = [output for job in plan.jobs for output in job.outputs]
        total = sum(output.nbytes for output in outputs)
        parameters = sum(job.parameters for job in plan.jobs)
        with new_folder(place, lambda where: check(where, origin, force)) as folder:
            require_room(place, folder, total)
            shards = Shards(folder, outputs, shard_bytes)
            try:
                work.run(plan.jobs, shards, progress)
                shards.sync()
            finally:
                shards.close()
            listing = {"metadata": {"total_size": total, "total_parameters": parameters}}
            write_json(folder / INDEX, listing | {"weight_map": dict(sorted(shards.weight_map.items()))})
            write_json(folder / "config.json", dict(sorted(_quantized(config, common, plan).items())))
            for file in copied:
                copy_file(file, folder / file.path.name)
    read = sum(job.source_bytes for job in plan.jobs)
    return Converted(Path(target), parameters, read, total, len(set(shards.weight_map.values())))


def _common_format(mode: str, bits: int | None, group_size: int | None) -> Format:
    """Return the format that is asked for; None stands for the default of the mode."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(f"convert: mode: expected one of {', '.join(MODES)}, got {shown(mode)}")
    own_bits, own_group = MODES[mode]
    asked = own_bits if bits is None else bits, own_group if group_size is None else group_size
    if mode == "affine":
        return Format(*check_format("convert", *asked), mode)
    if asked != MODES[mode]:
        raise ArgumentError(
            f"convert: bits and group_size: expected {own_bits} and {own_group} for {mode}, "
            f"got {asked[0]} and {asked[1]}"
        )
    return Format(own_bits, own_group, mode)


def _read_config(path: Path) -> dict[str, Any]:
    """Read config.json without the entries that a converted model does not have."""
    config = json_file.read_object(path / "config.json")
    for key in ("quantization", "quantization_config"):
        if config.get(key) is not None:
            raise FormatError(f"{path}: {key}: expected a model in floating point, got a quantised one")
    if (path / "generation_config.json").is_file():
        ends = json_file.read_generation_config(path / "generation_config.json").get("eos_token_id")
        config |= {"eos_token_id": ends} if ends else {}
    return {key: value for key, value in config.items() if key not in ("_name_or_path", "vision_config")}


def _dtype(config: dict[str, Any], asked: str | None) -> np.dtype[Any] | None:
    said = config.get("torch_dtype")
    if said is None and isinstance(config.get("text_config"), dict):
        said = config["text_config"].get("dtype")
    name = asked or (_CONFIG_DTYPES.get(said) if isinstance(said, str) else None)
    return None if name is None else DTYPES[name]


def _quantized(config: dict[str, Any], common: Format, plan: Plan) -> dict[str, Any]:
    entry: dict[str, Any] = asdict(common)
    for path, form in plan.overrides.items():
        entry[path] = {"group_size": form.group_size, "bits": form.bits}
    return config | {"quantization": entry, "quantization_config": entry}


make_callable(__name__, convert)
