"""``pyturbo serve``: answer clients of OpenAI's and Anthropic's interfaces."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyturbo._arguments import byte_count
from pyturbo._messages import least_size, size
from pyturbo.batching import Engine
from pyturbo.batching.state_room import free_for_states, one_conversation, state_room
from pyturbo.checkpoint import open_checkpoint
from pyturbo.cli._model import add_load_arguments, add_prefix_argument, load_model, memory_bytes
from pyturbo.cli._output import note
from pyturbo.cli._usage import UsageError, at_least_one, path, text_of, usage
from pyturbo.describe import survey
from pyturbo.engine.prefix_cache import PrefixCache
from pyturbo.errors import StateError
from pyturbo.model import Model, default_model

if TYPE_CHECKING:
    from pyturbo.serve import Settings, Source

HELP = "answer clients of OpenAI's and Anthropic's interfaces"

KEY_VARIABLE = "PYTURBO_API_KEY"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        nargs="*",
        type=_named,
        metavar="[NAME=]MODEL",
        help="a checkpoint directory, a .gguf file, or the id of a downloaded model, with the name that "
        "clients use; the first is loaded at once, others when a client asks for them",
    )
    parser.add_argument(
        "--model", action="append", default=[], type=_named, metavar="[NAME=]MODEL", help="the same"
    )
    add_load_arguments(parser, several=True)
    add_prefix_argument(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8080, help="port to listen on; 0 takes a free one (default: %(default)s)"
    )
    group = parser.add_argument_group("conversations")
    group.add_argument("--slots", type=int, default=8, help="how many run at once (default: %(default)s)")
    group.add_argument(
        "--queue",
        type=int,
        default=32,
        help="how many more may wait; others are refused (default: %(default)s)",
    )
    group.add_argument(
        "--context",
        type=int,
        default=4096,
        help="tokens that each has room for, or more if prompt and reply need it (default: %(default)s)",
    )
    group.add_argument(
        "--state-memory",
        metavar="BYTES",
        help="memory for all of them, such as 4GB, of each model that is loaded (default: half of the free "
        "memory that the models leave, shared out equally among them, and at least one conversation)",
    )
    group.add_argument(
        "--max-tokens",
        type=int,
        default=1024,
        help="tokens of a reply, where a request does not say (default: %(default)s)",
    )
    group.add_argument(
        "--max-reply",
        type=int,
        default=8192,
        help="the most tokens of a reply, whatever a request says: it has memory for all of them from its "
        "beginning (default: %(default)s)",
    )
    group.add_argument(
        "--prefix-memory",
        metavar="BYTES",
        help="memory for prompts that were read, so that none is read twice, shared out equally among the "
        "models; 0 for none (default: an eighth of the machine's)",
    )
    group.add_argument(
        "--pooling",
        choices=("mean", "last"),
        default="mean",
        help="how the states of a text become its vector where a request for embeddings does not say "
        "(default: %(default)s)",
    )
    group = parser.add_argument_group("access")
    group.add_argument(
        "--api-key-file",
        type=path,
        metavar="FILE",
        help=f"keys, one on each line, of which a request must have one; {KEY_VARIABLE} may name one too",
    )
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which clients address the server (default: those of this machine for a local "
        "address, otherwise any)",
    )
    group.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may use the server, such as https://example.org, or * for all",
    )
    parser.add_argument(
        "--drain-seconds",
        type=int,
        default=30,
        metavar="N",
        help="how long replies may go on after a signal (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    for name in ("threads", "slots", "queue", "context", "max_tokens", "max_reply", "drain_seconds"):
        at_least_one(f"--{name.replace('_', '-')}", getattr(arguments, name))
    if not 0 <= arguments.port < 1 << 16:
        raise UsageError(f"--port: expected an integer from 0 to 65535, got {arguments.port}")
    given = [*arguments.models, *arguments.model] or [("pyturbo", None)]
    prefixes = _prefix_cache(arguments, len(given))
    with usage("state_memory"):
        given_room = arguments.state_memory
        state_memory = None if given_room is None else byte_count("state_memory", given_room)
    try:
        from pyturbo.serve import Shelf, create_app, server
        from pyturbo.serve.listening import listening
        from pyturbo.serve.shelf import load_source
    except ImportError as error:
        raise StateError(f'serve: needs {error.name}: pip install "pyturbo-llm[serve]"') from None
    settings = _settings(arguments)
    memory = memory_bytes(arguments)
    if len(given) > 1:
        arguments.memory = None  # it is for all models together
    sources = [_source(arguments, name, model, prefixes) for name, model in given]
    weights = sum(source.nbytes for source in sources)
    on_host = free_for_states(weights if memory is None else min(weights, memory))

    def engine(model: Model) -> Engine:
        context, room = arguments.context, state_memory
        if room is None:
            room = state_room(model, on_host, len(given), context)
        return Engine(model, slots=arguments.slots, queue=arguments.queue, context=context, memory=room)

    with usage():
        shelf = Shelf(sources, engine, memory if len(given) > 1 else None)
    sockets = listening(arguments.host, arguments.port)
    shelf.place(sources[0].name, load_source(sources[0]))
    room = _room(shelf.served[0].engine, arguments.context)
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"http://{host}:{sockets[0].getsockname()[1]}"

    def ready() -> None:
        note(f"{', '.join(shelf.names)} at {address}/v1, with a page at {address}/; {room}Ctrl-C ends it")
        if not settings.keys and arguments.host not in _LOCAL:
            note(f"anybody who reaches {host} can use it: --api-key-file asks clients for a key")

    server.run(create_app(shelf, settings), sockets, drain_seconds=arguments.drain_seconds, ready=ready)


def _room(engine: Engine, context: int) -> str:
    """Say what conversations may take, for the first line. Too little for one of them is an error."""
    needed, runner = one_conversation(engine.model, context), engine.model.runner
    if runner.budget is not None and runner.most_bytes is not None:
        missing = needed + runner.program_bytes(runner.context_for(context)) - runner.most_bytes
        if missing > 0:
            total = runner.budget.total
            raise UsageError(
                f"--memory: expected at least {least_size(total + missing)} for the model and a conversation "
                f"of {context} tokens (--context), got {size(total)}"
            )
    if engine.memory is None:
        return ""
    if needed > engine.memory:
        raise UsageError(
            f"--state-memory: expected at least {least_size(needed)}, a conversation of {context} tokens "
            f"(--context), got {size(engine.memory)}"
        )
    several = engine.memory >= 2 * needed
    return f"{size(engine.memory)} for {'conversations' if several else 'one conversation at a time'}; "


def _named(text: str) -> tuple[str, str]:
    """Parse a model with or without a name; without one it has that of its file."""
    name, equals, model = text.partition("=")
    if not equals or "/" in name:
        model = path(text)
        name = Path(model).stem if model.endswith(".gguf") else Path(model).name
    if not name or not model:
        raise argparse.ArgumentTypeError(f"expected NAME=MODEL or MODEL, got {text!r}")
    return name, path(model)


def _source(
    arguments: argparse.Namespace, name: str, model: str | None, prefixes: PrefixCache | None
) -> Source:
    from pyturbo.serve import Source

    with open_checkpoint(default_model() if model is None else model) as checkpoint:
        found = survey(checkpoint)
    return Source(
        name, partial(load_model, arguments, model, prefixes), found.mapped_bytes + found.copied_bytes
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    from pyturbo.serve import Settings

    keys = [os.environ[KEY_VARIABLE]] if os.environ.get(KEY_VARIABLE) else []
    if arguments.api_key_file is not None:
        lines = text_of("--api-key-file", arguments.api_key_file).splitlines()
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise UsageError("--api-key-file: expected at least one key, got an empty file")
        keys += found
    hosts = arguments.allow_host or (_LOCAL if arguments.host in _LOCAL else ())
    return Settings(
        keys=keys,
        hosts=hosts,
        origins=arguments.allow_origin,
        max_tokens=arguments.max_tokens,
        max_reply=arguments.max_reply,
        pooling=arguments.pooling,
    )


def _prefix_cache(arguments: argparse.Namespace, models: int) -> PrefixCache | None:
    """Return what each model may keep of prompts: its share of what all of them may."""
    memory = _prefix_memory(arguments.prefix_memory)
    if memory == 0:
        if arguments.prefix_cache is not None:
            raise UsageError("--prefix-memory: expected memory beside --prefix-cache, got 0")
        return None
    with usage("prefix_cache"):
        return PrefixCache(memory, arguments.prefix_cache).share(models)


def _prefix_memory(value: str | None) -> int | None:
    """Parse a number of bytes; 0 is allowed."""
    if value is None or value == "0":
        return None if value is None else 0
    with usage("prefix_memory"):
        return byte_count("prefix_memory", value)
