"""``pyturbo info``: what a checkpoint is and what it needs, without reading its weights."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pyturbo._machine import machine_memory
from pyturbo._native import device_list
from pyturbo.checkpoint import Checkpoint, open_checkpoint
from pyturbo.cli._output import print_json, print_table, size, table
from pyturbo.cli._usage import add_model_name, one_model
from pyturbo.describe import Survey, survey
from pyturbo.engine.graph import Layout, pace_of
from pyturbo.errors import ArgumentError, TurboError
from pyturbo.layers.attention import Attention
from pyturbo.layers.kv_cache import KV_SETTINGS
from pyturbo.model import default_model
from pyturbo.text import Tokenizer

HELP = "describe a model: architecture, sizes, formats, and the memory it needs here"

_CONTEXTS = (4096, 32768, 131072)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_name(parser, positional=True)


def run(arguments: argparse.Namespace) -> None:
    with open_checkpoint(one_model(arguments.named, arguments.model) or default_model()) as checkpoint:
        facts = describe(checkpoint)
    if arguments.json:
        print_json(facts, indent=2)
    else:
        _show(facts)


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the command shows, as plain data."""
    found = survey(checkpoint)
    weights = found.weights
    active = 1 - found.chosen
    experts = found.parts["experts"].parameters if "experts" in found.parts else 0
    return {
        "path": str(checkpoint.path),
        "architecture": checkpoint.config["model_type"],
        "layers": _layers(found),
        "context": found.network.context,
        "vocabulary": found.network.vocab,
        "tokenizer": _tokenizer(checkpoint),
        "sampling": checkpoint.sampling.stated(),
        "sampling_ignored": checkpoint.sampling.ignored,
        "parameters": weights.parameters,
        "parameters_per_token": round(weights.parameters - experts * active),
        "bytes": weights.nbytes,
        "mapped_bytes": found.mapped_bytes,
        "copied_bytes": found.copied_bytes,
        "peak_bytes": found.peak_bytes,
        "files": found.files,
        "file_bytes": found.file_bytes,
        "other_bytes": found.other_bytes,
        "parts": {name: asdict(part) for name, part in found.parts.items()},
        "formats": dict(found.formats.most_common()),
        "machine_memory": machine_memory(),
        "state_bytes": _state_bytes(found),
    }


def _layers(found: Survey) -> dict[str, int]:
    counts: dict[str, int] = {}
    for layer in found.network.layers:
        kind = {"self_attn": "attention", "linear_attn": "delta net"}[layer.mixer.name.rpartition(".")[2]]
        if isinstance(layer.mixer, Attention) and (window := layer.mixer.kv_heads.window):
            kind = f"attention over {window} tokens"
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def _state_bytes(found: Survey) -> dict[str, dict[int, int]]:
    """Bytes of a conversation here by kv setting and context, up to the model's own."""
    most, chunk = found.network.context, pace_of(device_list()[0]).chunk
    contexts = [*(context for context in _CONTEXTS if context < most), most]
    sizes: dict[str, dict[int, int]] = {}
    for kv in KV_SETTINGS:
        with suppress(ArgumentError):  # heads that the setting has no form for
            sizes[kv] = {context: Layout.of(found.network, context, chunk, kv).nbytes for context in contexts}
    return sizes


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Describe the tokenizer, or what is wrong with it; None where there is none."""
    try:
        source = checkpoint.tokenizer
        if source.path is None and not source.tokens:
            return None
        tokenizer = Tokenizer(source)
    except TurboError as error:
        return {"fault": str(error)}
    fault = None if tokenizer.chat_template is None else _template_fault(tokenizer.chat_template)
    return {
        "kind": source.kind,
        "size": tokenizer.vocab_size,
        "ends": [tokenizer.piece(token) for token in tokenizer.eos_ids],
        "chat_template": tokenizer.chat_template is not None and fault is None,
        "chat_template_fault": fault,
    }


def _template_fault(template: str) -> str | None:
    """Return why a chat template cannot be compiled; None where it can."""
    from pyturbo.text.chat_template import ChatTemplate

    try:
        ChatTemplate(template, {})
    except TurboError as error:
        return str(error)
    return None


def _show(facts: dict[str, Any]) -> None:
    from rich.markup import escape

    rows = table("", "")
    rows.show_header = False
    for name, value in _summary(facts):
        rows.add_row(name, escape(value))
    print_table(rows)
    print()
    rows = table("part", "parameters", "bytes", "share", right=("parameters", "bytes", "share"))
    for name, part in facts["parts"].items():
        share = f"{part['nbytes'] / facts['bytes']:.1%}"
        rows.add_row(name, f"{part['parameters']:,}", size(part["nbytes"]), share)
    rows.add_row("all", f"{facts['parameters']:,}", size(facts["bytes"]))
    print_table(rows)
    print()
    rows = table("format", "tensors", right=("tensors",))
    for name, count in facts["formats"].items():
        rows.add_row(name, str(count))
    print_table(rows)
    print()
    _show_memory(facts)


def _summary(facts: dict[str, Any]) -> list[tuple[str, str]]:
    layers = ", ".join(f"{count} {kind}" for kind, count in facts["layers"].items())
    files = f"{len(facts['files'])}: {size(facts['file_bytes'])}"
    if facts["other_bytes"]:
        files += f", and {size(facts['other_bytes'])} not used"
    mapped, copied = size(facts["mapped_bytes"]), size(facts["copied_bytes"])
    return [
        ("model", facts["path"]),
        ("architecture", f"{facts['architecture']}: {layers}"),
        ("parameters", f"{facts['parameters']:,}, {facts['parameters_per_token']:,} of them for a token"),
        ("tokenizer", _described(facts["tokenizer"])),
        ("sampling", _sampling(facts["sampling"])),
        *(("  ignored", f"{name}: {why}") for name, why in facts["sampling_ignored"].items()),
        ("context", f"{facts['context']:,} tokens"),
        ("files", files),
        ("weights", f"{size(facts['bytes'])}: {mapped} mapped, {copied} in memory"),
        ("while loading", f"{size(facts['peak_bytes'])} of memory at most, beside what is mapped"),
    ]


def _described(tokenizer: dict[str, Any] | None) -> str:
    if tokenizer is None:
        return "none"
    if "fault" in tokenizer:
        return f"cannot be used: {tokenizer['fault']}"
    template = "with a chat template" if tokenizer["chat_template"] else "without a chat template"
    if tokenizer["chat_template_fault"] is not None:
        template = f"with a chat template that cannot be used: {tokenizer['chat_template_fault']}"
    return f"{tokenizer['kind']}, {tokenizer['size']:,} tokens, {template}"


def _sampling(stated: dict[str, float | int]) -> str:
    shown = [f"{name} {value:g}" for name, value in stated.items()]
    return ", ".join(shown if stated.get("temperature") else ["always the likeliest token", *shown])


def _show_memory(facts: dict[str, Any]) -> None:
    contexts = list(next(iter(facts["state_bytes"].values())))
    columns = [f"{context:,} tokens" for context in contexts]
    rows = table("memory, weights and one conversation", *columns, right=tuple(columns))
    for kv, states in facts["state_bytes"].items():
        needs = [facts["bytes"] + nbytes for nbytes in states.values()]
        fits = [need <= facts["machine_memory"] for need in needs]
        rows.add_row(f"kv {kv}", *(size(need) + ("" if fit else " !") for need, fit in zip(needs, fits)))
    print_table(rows)
    print(f"This machine has {size(facts['machine_memory'])}; ! is more than that.")
