"""``pyturbo generate``: print the reply to a prompt, token by token."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyturbo.cli._model import (
    add_model_arguments,
    add_prefix_argument,
    add_sampling_arguments,
    check_sampling,
    cut_note,
    load_model,
    prefix_cache,
    sampling,
    stats_lines,
)
from pyturbo.cli._output import Waiting, dim_note, note, print_json
from pyturbo.cli._stdin import PromptText
from pyturbo.cli._usage import UsageError, at_least_one, path
from pyturbo.engine import trace_file
from pyturbo.engine.generation import Completion, Prompt
from pyturbo.engine.profile import Profile
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError
from pyturbo.model import Model

HELP = "print the reply of a model to a prompt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="?", help="the prompt; standard input is appended, or is the prompt if there is none"
    )
    add_model_arguments(parser, positional=False)
    add_prefix_argument(parser)
    parser.add_argument("--stdin", action="store_true", help="wait for standard input to end")
    parser.add_argument(
        "--context", type=int, help="maximum number of tokens (default: enough for the prompt and the reply)"
    )
    parser.add_argument("--system", help="system message before the prompt")
    parser.add_argument(
        "--raw", action="store_true", help="continue the prompt as plain text, without the chat template"
    )
    add_sampling_arguments(parser)
    parser.add_argument(
        "--logprobs",
        type=int,
        default=0,
        metavar="N",
        help="with --json: list the N likeliest tokens of each step",
    )
    parser.add_argument("--n", type=int, help="number of replies to one prompt, printed one after the other")
    parser.add_argument("--stats", action="store_true", help="print speed and memory to standard error")
    parser.add_argument(
        "--profile", action="store_true", help="print the time of each kernel to standard error"
    )
    parser.add_argument(
        "--trace", type=path, metavar="FILE", help="write a timeline of launches and reads for Perfetto"
    )


def run(arguments: argparse.Namespace) -> None:
    _check(arguments)
    prompt = PromptText(arguments.prompt, wait=arguments.stdin)
    model = load_model(arguments, arguments.model, prefix_cache(arguments))
    ids = model.prompt_ids(_messages(arguments, model, prompt.text()))
    room = (
        model.runner.context_for(len(ids) + arguments.max_tokens)
        if arguments.context is None
        else arguments.context
    )
    session = model.session(room)
    timed = arguments.profile or arguments.trace is not None
    session.timings = profile = Profile() if timed else None
    if arguments.n is None:
        replies = [_reply(arguments, model, session, ids)]
    else:
        replies = _replies(arguments, model, session, ids)
    if arguments.json:
        shown = [_shown(reply, session) for reply in replies]
        print_json(shown[0] if arguments.n is None else shown)
    elif replies[-1].finish_reason == "length" and sys.stderr.isatty():
        dim_note(cut_note(replies[-1], session))
    if arguments.stats:
        note("\n".join(line for reply in replies for line in stats_lines(reply.stats, session)))
    if profile is not None and arguments.profile:
        note(str(profile))
    if profile is not None and arguments.trace is not None:
        profile.save_trace(arguments.trace)


def _reply(arguments: argparse.Namespace, model: Model, session: Session, ids: list[int]) -> Completion:
    completion = Completion()
    chunks = model.stream(
        ids,
        **sampling(arguments),
        logprobs=arguments.logprobs,
        session=session,
        stats=completion.stats,
    )
    bar = Waiting("reading the prompt", len(ids), lambda: session.position)
    try:
        for chunk in chunks:
            bar.close()
            completion.add(chunk)
            if not arguments.json:
                print(chunk.text, end="", flush=True)
    finally:
        bar.close()
        completion.message = chunks.message
        if not arguments.json:
            print()
    return completion


def _replies(
    arguments: argparse.Namespace, model: Model, session: Session, ids: list[int]
) -> list[Completion]:
    """Print several replies, with an empty line between two."""
    with Waiting("reading the prompt", len(ids), lambda: session.position):
        options = sampling(arguments)
        replies: list[Completion] = model.generate(
            ids, **options, logprobs=arguments.logprobs, session=session, n=arguments.n
        )
    if not arguments.json:
        print("\n\n".join(reply.text for reply in replies))
    return replies


def _shown(completion: Completion, session: Session) -> dict[str, Any]:
    stats = completion.stats
    shown = asdict(completion) | {"memory": asdict(session.memory())}
    shown["stats"] |= {"prefill_speed": stats.prefill_speed, "decode_speed": stats.decode_speed}
    return shown


def _check(arguments: argparse.Namespace) -> None:
    """Refuse wrong options before a model is loaded."""
    text = arguments.prompt or ""
    if arguments.model is None and text.endswith(".gguf") and Path(text).is_file():
        raise UsageError(f"expected a prompt, got the name of a file; is it the model? --model {text}")
    check_sampling(arguments, arguments.logprobs)
    at_least_one("--context", arguments.context)
    at_least_one("--n", arguments.n)
    if arguments.n is not None and (arguments.profile or arguments.trace is not None):
        raise UsageError("--n: cannot be combined with --profile or --trace, which time one reply")
    if arguments.trace is not None:
        trace_file.check(arguments.trace)
    if arguments.logprobs and not arguments.json:
        raise UsageError("--logprobs: expected --json with it; only JSON lists them")
    if arguments.raw and arguments.system is not None:
        raise UsageError("--system: cannot be combined with --raw, which has no system message")


def _messages(arguments: argparse.Namespace, model: Model, text: str) -> Prompt:
    if arguments.raw or model.tokenizer.chat_template is None:
        if arguments.system is not None:
            raise ArgumentError("--system: expected a model with a chat template, got one without")
        return text
    system = [] if arguments.system is None else [{"role": "system", "content": arguments.system}]
    return [*system, {"role": "user", "content": text}]
