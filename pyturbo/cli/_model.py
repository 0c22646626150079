"""Options and notes that the commands which run a model share."""

from __future__ import annotations

import argparse
from typing import Any

from pyturbo._arguments import byte_count
from pyturbo._device import Device, device_list
from pyturbo._machine import peak_memory
from pyturbo.cli._output import byte_bar, count_bar, size
from pyturbo.cli._usage import add_model_name, at_least_one, option, path, text_of, usage
from pyturbo.engine.generation import Completion, Options, Stats
from pyturbo.engine.prefix_cache import PrefixCache
from pyturbo.engine.session import Session
from pyturbo.layers.kv_cache import kv_format
from pyturbo.model import Model, load
from pyturbo.streaming import ExpertUse
from pyturbo.text import constraint
from pyturbo.text.constraint import CONSTRAINTS
from pyturbo.turbo_codec import WIDTHS

_SAMPLING = {
    "max_tokens": (int, 256, "maximum number of tokens in the reply"),
    "temperature": (float, 0.0, "0 always takes the likeliest token"),
    "top_p": (float, 1.0, "sample from the likeliest tokens that reach this total probability"),
    "top_k": (int, 0, "sample from this many of the likeliest tokens, 0 from all"),
    "min_p": (float, 0.0, "sample from tokens that are at least this likely relative to the likeliest"),
    "repetition_penalty": (float, 1.0, "above 1 makes recent tokens less likely"),
    "seed": (int, None, "seed of the random numbers"),
}
#: Further options, which have no default of a checkpoint.
_FURTHER = {
    "presence_penalty": (float, 0.0, "is subtracted from the logits of recent tokens"),
    "frequency_penalty": (float, 0.0, "the same for each time that a token is among them"),
    "typical_p": (float, 1.0, "sample from tokens of this total probability that are the least surprising"),
    "top_n_sigma": (
        float,
        0.0,
        "sample from logits this many standard deviations below the largest, 0 from all",
    ),
    "xtc_probability": (float, 0.0, "how often the likeliest tokens are left out"),
    "xtc_threshold": (float, 0.1, "the probability of these tokens"),
    "dry_multiplier": (float, 0.0, "makes tokens less likely that would continue a repetition"),
    "dry_base": (float, 1.75, "by how much this grows with each token of the repetition"),
    "dry_allowed_length": (int, 2, "the length of a repetition that costs the multiplier"),
    "dry_window": (int, 64, "how many recent tokens are searched for repetitions, 0 for all"),
    "min_tokens": (int, 0, "minimum number of tokens in the reply"),
}
#: Options whose default a checkpoint may state.
_OF_THE_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def add_model_arguments(parser: argparse.ArgumentParser, *, positional: bool) -> None:
    """Add the options of a model; with `positional` the model may also be the first argument."""
    add_model_name(parser, positional=positional)
    add_load_arguments(parser)


def add_load_arguments(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the options of loading a model, or `several`."""
    add_device_arguments(parser)
    *widths, last = WIDTHS
    parser.add_argument(
        "--kv",
        default="f16",
        help="format of keys and values: f16, f32, or compressed: turbo8, turbo6v4, turbo4, any turbo<k>v<v> "
        f"with {', '.join(map(str, widths))} or {last} bits for k and v (default: %(default)s)",
    )

    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="memory for the whole process, such as 12GB: experts of a packed model that do not fit are read "
        "from disk when they are needed"
        + ("; with several models: for the weights of those that are loaded at once" if several else "")
        + " (default: most of the free memory)",
    )


def add_prefix_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of commands whose prompts may begin like earlier ones."""
    parser.add_argument(
        "--prefix-cache",
        type=path,
        metavar="DIR",
        help="keep in this folder what was read: a prompt that begins like an earlier one is read from where "
        f"they part (at most {PrefixCache.disk})",
    )


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the device that a model runs on."""
    parser.add_argument("--device", help="one of those that pyturbo devices lists (default: the first)")
    parser.add_argument("--threads", type=int, help="number of CPU threads (default: one per core)")
    parser.add_argument(
        "--precision",
        choices=("default", "fast"),
        default="default",
        help="fast rounds activations to 8 bits, on GPUs those of prompts, which changes the output "
        "(default: %(default)s)",
    )


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (kind, default, text) in _SAMPLING.items():
        own = name in _OF_THE_MODEL
        shown = f"the model's own, else {default}" if own else default
        shown = "a new one each time" if shown is None else shown
        parser.add_argument(
            option(name), type=kind, default=None if own else default, help=f"{text} (default: {shown})"
        )
    parser.add_argument(
        "--stop", action="append", default=[], help="end the reply at this text; may be repeated"
    )
    _add_further_arguments(parser)
    _add_constraints(parser)


def _add_further_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("further options of sampling")
    for name, (kind, default, text) in _FURTHER.items():
        group.add_argument(option(name), type=kind, default=default, help=f"{text} (default: {default})")
    group.add_argument(
        "--dry-breaker",
        action="append",
        dest="dry_breakers",
        metavar="TEXT",
        help="a text that ends a repetition; may be repeated (default: line break, colon, quote, asterisk)",
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        type=_bias,
        metavar="TOKEN=BIAS",
        help="add to the logit of a token, given by its id or its text; may be repeated",
    )
    group.add_argument(
        "--reasoning-budget",
        type=int,
        metavar="N",
        help="maximum number of tokens of thoughts in a chat, 0 for none (default: no limit)",
    )
    group.add_argument("--ignore-eos", action="store_true", help="never let the model end the reply")


def _add_constraints(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what the reply may be, one of these (needs the extra grammar)")
    group.add_argument("--schema", type=path, metavar="FILE", help="a JSON schema that the reply fits")
    group.add_argument("--regex", help="a regular expression that all of the reply matches")
    group.add_argument("--grammar", type=path, metavar="FILE", help="a Lark grammar of the reply")


def _bias(text: str) -> tuple[int | str, float]:
    """Parse an entry of --logit-bias; digits are an id."""
    token, _, bias = text.rpartition("=")
    try:
        value = float(bias)
    except ValueError:
        token = ""
    if not token:
        raise argparse.ArgumentTypeError(f"expected TOKEN=BIAS, as in 42=-1.5, got {text!r}")
    return int(token) if token.isdecimal() else token, value


def sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `Model.stream`."""
    names = (*_SAMPLING, "stop", *_FURTHER, "dry_breakers", "ignore_eos", "reasoning_budget", *CONSTRAINTS)
    options = {name: getattr(arguments, name) for name in names}
    return options | {"logit_bias": dict(arguments.logit_bias or ()) or None}


def check_sampling(arguments: argparse.Namespace, logprobs: int = 0) -> None:
    """Refuse options that `Model.stream` would refuse, before a model is loaded.

    The files of --schema and --grammar are read, once: `arguments` then has their texts.
    """
    for name in ("schema", "grammar"):
        if getattr(arguments, name) is not None:
            setattr(arguments, name, text_of(option(name), getattr(arguments, name)))
    given = {name: value for name, value in sampling(arguments).items() if value is not None}
    with usage(*given, "logprobs"):
        options = Options(**given, logprobs=logprobs)
        options.sampler(
            {token: bias for token, bias in (options.logit_bias or {}).items() if type(token) is int}
        )
        options.stop_strings()
        if options.constraint is not None:
            constraint.validate(*options.constraint)


def open_device(arguments: argparse.Namespace) -> Device:
    """Open the device to load a model on."""
    at_least_one("--threads", arguments.threads)
    name = device_list()[0] if arguments.device is None else arguments.device
    with usage("device", "threads", "precision"):
        return Device(name, threads=arguments.threads, precision=arguments.precision)


def load_model(
    arguments: argparse.Namespace, name: str | None, prefix_cache: PrefixCache | None = None
) -> Model:
    """Load a model, with progress bars for weights that have to be read or copied and kernels to compile."""
    with usage("kv"):
        kv = kv_format(arguments.kv).name
    memory = memory_bytes(arguments)
    device = open_device(arguments)
    with byte_bar("reading weights") as progress:
        model = load(name, device, kv, progress=progress, memory=memory, prefix_cache=prefix_cache)
    if device.traits.host_memory != "any":  # a GPU
        _prepare(model)
    return model


def memory_bytes(arguments: argparse.Namespace) -> int | None:
    """Return what `--memory` allows."""
    with usage("memory"):
        return None if arguments.memory is None else byte_count("memory", arguments.memory)


def prefix_cache(arguments: argparse.Namespace) -> PrefixCache | None:
    """Return the settings that `--prefix-cache` names."""
    with usage("prefix_cache"):
        return None if arguments.prefix_cache is None else PrefixCache(folder=arguments.prefix_cache)


def _prepare(model: Model) -> None:
    """Compile kernels and copy weights to the device, which the first prompt would wait for."""
    with count_bar("compiling kernels") as kernels, byte_bar("copying weights to the device") as weights:
        bars = {"kernels": kernels, "weights": weights}
        model.device.progress = lambda what, done, total: bars[what](done, total)
        try:
            model.runner.prepare(model.runner.context_for(1))
        finally:
            model.device.progress = None


def cut_note(completion: Completion, session: Session) -> str:
    """Return the note that follows a reply which was cut off."""
    if session.position + len(session.pending) > session.context:
        most = session.max_context
        more = f"; --context N allows up to {most}" if session.context < most else ""
        return f"[the context of {session.context} tokens is full{more}]"
    return f"[cut at {completion.stats.tokens} tokens; --max-tokens N allows more]"


def stats_lines(stats: Stats, session: Session) -> list[str]:
    """Return the speed and memory of a reply; a second line is about experts that are read from disk."""
    memory = session.memory()
    slots = f"slots for experts {memory.experts / 2**20:.1f} MiB, " if memory.experts else ""
    known = f"{stats.cached_tokens} tokens known, " if stats.cached_tokens else ""
    line = (
        f"{known}{stats.prompt_tokens} tokens read at {stats.prefill_speed:.1f}/s, first token after "
        f"{stats.prefill_seconds:.2f} s, {stats.tokens} written at {stats.decode_speed:.1f}/s; "
        f"weights {memory.weights / 2**20:.1f} MiB, {slots}state {memory.state / 2**20:.1f} MiB, "
        f"scratch {memory.scratch / 2**20:.1f} MiB, {peak_memory() / 2**20:.0f} MiB peak resident memory"
    )
    return [line, *_expert_lines(stats)]


def _expert_lines(stats: Stats) -> list[str]:
    """Say how the experts of the reply were found, if the model reads them from disk."""
    prompt, reply = stats.prefill_experts, stats.decode_experts
    if prompt is None:
        return []
    read = f"{size(prompt.read_bytes)} read for the prompt, {_waited(prompt, stats.prefill_seconds)}"
    if reply is None or stats.tokens < 2:
        return [f"experts: {read}"]
    per_token = size(reply.read_bytes / (stats.tokens - 1))
    return [
        f"experts: {reply.hits} hits, {reply.misses} misses ({reply.hit_rate:.1%} hits), "
        f"{per_token} read per token, {_waited(reply, stats.decode_seconds)}; {read}"
    ]


def _waited(use: ExpertUse, seconds: float) -> str:
    return f"{min(1.0, use.wait_seconds / seconds) if seconds else 0.0:.0%} of the time waiting"
