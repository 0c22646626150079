"""``pyturbo info``: describe a checkpoint without reading its weights."""

from __future__ import annotations

import argparse
from typing import Any

from pyturbo._arguments import byte_count
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.cli._forecast import show_forecast
from pyturbo.cli._output import print_json, print_table, size, table
from pyturbo.cli._usage import UsageError, add_model_name, one_model, usage
from pyturbo.describe import describe
from pyturbo.forecast import forecast
from pyturbo.model import default_model

HELP = "describe a model: architecture, sizes, formats, and the memory it needs here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_name(parser, positional=True)
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="with a packed model: also show the expected speed with this much memory, such as 12GB",
    )


def run(arguments: argparse.Namespace) -> None:
    with usage("memory"):
        memory = None if arguments.memory is None else byte_count("memory", arguments.memory)
    expected = None
    with open_checkpoint(one_model(arguments.named, arguments.model) or default_model()) as checkpoint:
        facts = describe(checkpoint)
        if isinstance(checkpoint, PackedCheckpoint):
            expected = forecast(checkpoint, memory)
        elif memory is not None:
            raise UsageError(
                "--memory: expected a packed model with it; others are always in memory as a whole"
            )
    if arguments.json:
        print_json(facts | {"streaming": None if expected is None else expected.facts()}, indent=2)
        return
    _show(facts, marked=expected is None)
    if expected is not None:
        experts, other = size(expected.expert_bytes), size(expected.other_bytes)
        least = size(expected.least_memory)
        print(f"\nExperts {experts}, everything else {other}. It runs in {least} of memory at least.")
        show_forecast(expected)


def _show(facts: dict[str, Any], *, marked: bool) -> None:
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
    _show_memory(facts, marked=marked)


def _summary(facts: dict[str, Any]) -> list[tuple[str, str]]:
    layers = ", ".join(f"{count} {kind}" for kind, count in facts["layers"].items())
    files = f"{len(facts['files'])}: {size(facts['file_bytes'])}"
    if facts["other_bytes"]:
        files += f", and {size(facts['other_bytes'])} not used"
    mapped, copied = size(facts["mapped_bytes"]), size(facts["copied_bytes"])
    return [
        ("model", facts["path"]),
        ("architecture", f"{facts['architecture']}: {layers}"),
        ("parameters", f"{facts['parameters']:,}, {facts['parameters_per_token']:,} of them used per token"),
        ("tokenizer", _described(facts["tokenizer"])),
        ("sampling", _sampling(facts["sampling"])),
        *(("  ignored", f"{name}: {why}") for name, why in facts["sampling_ignored"].items()),
        ("context", f"{facts['context']:,} tokens"),
        ("files", files),
        ("weights", f"{size(facts['bytes'])}: {mapped} mapped, {copied} in memory"),
        ("while loading", f"{size(facts['peak_bytes'])} of memory at most, besides mapped files"),
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


def _show_memory(facts: dict[str, Any], *, marked: bool) -> None:
    """Print the memory of conversations, with marks of those that do not fit if all weights must."""
    machine = facts["machine_memory"]
    contexts = list(next(iter(facts["state_bytes"].values())))
    columns = [f"{context:,} tokens" for context in contexts]
    rows = table("memory, weights and one conversation", *columns, right=tuple(columns))
    for kv, states in facts["state_bytes"].items():
        needs = [facts["bytes"] + nbytes for nbytes in states.values()]
        marks = [" !" if marked and need > machine else "" for need in needs]
        rows.add_row(f"kv {kv}", *(size(need) + mark for need, mark in zip(needs, marks)))
    print_table(rows)
    print(f"This machine has {size(machine)}" + ("; ! marks what does not fit." if marked else "."))
