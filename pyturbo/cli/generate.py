"""``pyturbo generate``: one prompt, one reply, as it is written."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from pyturbo.cli._model import add_model_arguments, add_sampling_arguments, load_model, sampling, stats_line
from pyturbo.cli._output import Waiting, note, print_table
from pyturbo.errors import ArgumentError
from pyturbo.generation import Completion, Prompt
from pyturbo.model import Model
from pyturbo.profile import Profile
from pyturbo.session import Session

HELP = "write the reply of a model to a prompt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", help="default: what is read from standard input")
    add_model_arguments(parser)
    parser.add_argument(
        "--context", type=int, help="room for so many tokens (default: what the reply may need)"
    )
    parser.add_argument("--system", help="a system message in front of the prompt")
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, not as a chat")
    add_sampling_arguments(parser)
    parser.add_argument(
        "--logprobs", type=int, default=0, metavar="N", help="with --json: the N likeliest tokens each time"
    )
    parser.add_argument("--stats", action="store_true", help="speed and memory, on standard error")
    parser.add_argument("--profile", action="store_true", help="time of each kernel, on standard error")


def run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments)
    ids = model.prompt_ids(_prompt(arguments, model))
    room = model.room(len(ids) + arguments.max_tokens) if arguments.context is None else arguments.context
    session = model.session(room)
    session.timings = Profile() if arguments.profile else None
    completion = _reply(arguments, model, session, ids)
    if arguments.json:
        stats = completion.stats
        speeds = {"prefill_speed": stats.prefill_speed, "decode_speed": stats.decode_speed}
        shown = asdict(completion) | {"memory": asdict(session.memory())}
        shown["stats"] |= speeds
        print(json.dumps(shown, ensure_ascii=False))
    if arguments.stats:
        note(stats_line(completion.stats, session))
    if session.timings is not None:
        print_table(session.timings.table(), stderr=True)


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
        if not arguments.json:
            print()
    return completion


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
