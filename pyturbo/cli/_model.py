"""What commands that run a model have in common: the model, and how a reply is sampled."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from pyturbo.cli._output import byte_bar
from pyturbo.generation import Stats
from pyturbo.model import Model, load
from pyturbo.session import Session

_SAMPLING = {
    "max_tokens": (int, 256, "longest reply"),
    "temperature": (float, 0.0, "0: always the likeliest token"),
    "top_p": (float, 1.0, "sample among the likeliest tokens of this total probability"),
    "top_k": (int, 0, "sample among so many of the likeliest tokens, 0: all"),
    "min_p": (float, 0.0, "sample among tokens of at least this part of the best one's probability"),
    "repetition_penalty": (float, 1.0, "above 1: what was written lately becomes less likely"),
    "seed": (int, None, "of the random numbers"),
}


def add_model_arguments(
    parser: argparse.ArgumentParser, *, option: bool = True, threads: Callable[[str], Any] = int
) -> None:
    """`option`: the model is an option, not the first argument. `threads` reads the number of threads."""
    text = "a checkpoint directory or a .gguf file"
    if option:
        parser.add_argument("--model", help=text)
    else:
        parser.add_argument("model", nargs="?", help=text)
    parser.add_argument("--device", help="see pyturbo devices")
    parser.add_argument("--threads", type=threads, help="default: one per core")
    parser.add_argument(
        "--kv",
        default="f16",
        help="keys and values as f16, f32, or compressed: turbo8, turbo4, turbo4v2 or any turbo<k>v<v> "
        "with k and v of 2, 3, 4, 6 and 8 bits (default: %(default)s)",
    )


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (kind, default, text) in _SAMPLING.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, default=default, help=f"{text} (default: {default})")
    parser.add_argument(
        "--stop", action="append", default=[], help="end the reply at this text; may be repeated"
    )


def sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `Model.stream`."""
    return {name: getattr(arguments, name) for name in (*_SAMPLING, "stop")}


def load_model(arguments: argparse.Namespace) -> Model:
    """With a bar for what has to be read."""
    with byte_bar("reading weights") as progress:
        return load(
            arguments.model, arguments.device, arguments.kv, threads=arguments.threads, progress=progress
        )


def peak_memory() -> int:
    """The most bytes this process has had in memory, mapped files included."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def stats_line(stats: Stats, session: Session) -> str:
    memory = session.memory()
    return (
        f"{stats.prompt_tokens} tokens read at {stats.prefill_speed:.1f}/s, first token after "
        f"{stats.prefill_seconds:.2f} s, {stats.tokens} written at {stats.decode_speed:.1f}/s; "
        f"weights {memory.weights / 2**20:.1f} MiB, state {memory.state / 2**20:.1f} MiB, "
        f"scratch {memory.scratch / 2**20:.1f} MiB, {peak_memory() / 2**20:.0f} MiB resident at most"
    )
