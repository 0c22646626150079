"""``pyturbo generate``: one prompt, one reply, as it is written."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from pyturbo.errors import ArgumentError
from pyturbo.generation import Completion, Prompt, Stats
from pyturbo.model import Model, load
from pyturbo.profile import Profile

_SAMPLING = {
    "max_tokens": (int, 256, "longest reply"),
    "temperature": (float, 0.0, "0: always the likeliest token"),
    "top_p": (float, 1.0, "sample among the likeliest tokens of this total probability"),
    "top_k": (int, 0, "sample among so many of the likeliest tokens, 0: all"),
    "min_p": (float, 0.0, "sample among tokens of at least this part of the best one's probability"),
    "repetition_penalty": (float, 1.0, "above 1: what was written lately becomes less likely"),
    "seed": (int, None, "of the random numbers"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help="default: what is read from standard input")
    parser.add_argument("--model", required=True, help="a checkpoint directory or a .gguf file")
    parser.add_argument("--device", help="see pyturbo devices")
    parser.add_argument("--threads", type=int, help="default: one per core")
    parser.add_argument("--kv", default="f16", help="keys and values as f16 or f32 (default: %(default)s)")
    parser.add_argument(
        "--context", type=int, help="room for so many tokens (default: what the reply may need)"
    )
    parser.add_argument("--system", help="a system message in front of the prompt")
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, not as a chat")
    for name, (kind, default, text) in _SAMPLING.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, default=default, help=f"{text} (default: {default})")
    parser.add_argument(
        "--stop", action="append", default=[], help="end the reply at this text; may be repeated"
    )
    parser.add_argument("--stats", action="store_true", help="speed and memory, on standard error")
    parser.add_argument("--profile", action="store_true", help="time of each kernel, on standard error")


def run(arguments: argparse.Namespace) -> None:
    model = _load(arguments)
    ids = model.prompt_ids(_prompt(arguments, model))
    room = model.room(len(ids) + arguments.max_tokens) if arguments.context is None else arguments.context
    session = model.session(room)
    session.timings = Profile() if arguments.profile else None
    options: dict[str, Any] = {name: getattr(arguments, name) for name in _SAMPLING}
    completion = Completion()
    chunks = model.stream(ids, **options, stop=arguments.stop, session=session, stats=completion.stats)
    try:
        for chunk in chunks:
            completion.add(chunk)
            if not arguments.json:
                print(chunk.text, end="", flush=True)
    finally:
        if not arguments.json:
            print()
    if arguments.json:
        print(json.dumps(asdict(completion), ensure_ascii=False))
    notes = Console(stderr=True)
    if arguments.stats:
        notes.print(_stats_line(completion.stats, session.memory().state), highlight=False, soft_wrap=True)
    if session.timings is not None:
        notes.print(session.timings.table())


def _load(arguments: argparse.Namespace) -> Model:
    """With a bar for what has to be read, where someone looks."""
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading weights", total=None, visible=False)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return load(
            arguments.model, arguments.device, arguments.kv, threads=arguments.threads, progress=progress
        )


def _prompt(arguments: argparse.Namespace, model: Model) -> Prompt:
    if arguments.prompt is None and sys.stdin.isatty():
        raise ArgumentError("expected a prompt, as an argument or on standard input")
    text = sys.stdin.read() if arguments.prompt is None else arguments.prompt
    if arguments.raw or model.tokenizer.chat_template is None:
        if arguments.system:
            raise ArgumentError("--system: expected a chat, got a prompt to continue as it is")
        return str(text)
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    return [*system, {"role": "user", "content": text}]


def _stats_line(stats: Stats, state_bytes: int) -> str:
    return (
        f"{stats.prompt_tokens} tokens read at {stats.prefill_speed:.1f}/s, first token after "
        f"{stats.prefill_seconds:.2f} s, {stats.tokens} written at {stats.decode_speed:.1f}/s, "
        f"{state_bytes / 2**20:.1f} MiB of state"
    )
