"""``pyturbo chat``: a conversation of several turns."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from pyturbo import models
from pyturbo._messages import shown
from pyturbo.checkpoint import hub_cache
from pyturbo.checkpoint.config import read_config
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
from pyturbo.cli._output import Waiting, dim_note, note, print_json, size
from pyturbo.cli._prompt import is_interactive, reader
from pyturbo.cli._usage import EXAMPLE, UsageError, at_least_one, one_model, path
from pyturbo.conversation import Conversation
from pyturbo.engine import session_file
from pyturbo.engine.generation import Completion
from pyturbo.errors import ArgumentError, TurboError

HELP = "chat with a model"

_COMMANDS = """\
/save PATH   save the conversation to a file
/load PATH   continue a saved conversation
/reset       start again, with the system message
/stats       speed and memory of the last reply
/help        this list
/exit        leave, as Ctrl-D does
Ctrl-C stops a reply, Alt-Enter inserts a line break."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, positional=True)
    add_prefix_argument(parser)
    parser.add_argument(
        "--context",
        type=int,
        help="maximum number of tokens (default: 8192 or the model's maximum, or as saved)",
    )
    parser.add_argument("--system", help="system message of the conversation")
    parser.add_argument("--load", type=path, metavar="PATH", help="continue a saved conversation")
    add_sampling_arguments(parser)
    parser.add_argument("--stats", action="store_true", help="print speed and memory after each reply")


def run(arguments: argparse.Namespace) -> None:
    name = one_model(arguments.named, arguments.model)
    _check(arguments)
    if name is None:
        raise UsageError(_which_model())
    model = load_model(arguments, name, prefix_cache(arguments))
    if arguments.load is None:
        chat = _Chat(arguments, Conversation(model, arguments.context, arguments.system))
    else:
        chat = _Chat(arguments, Conversation.load(model, arguments.load, arguments.context))
        chat.note_loaded(arguments.load)
    interactive, read = is_interactive(), reader()
    if interactive:
        note("/help lists the commands.")
    while True:
        try:
            if not chat.say(read()):
                return
        except EOFError:
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
        except TurboError as error:
            if not interactive or arguments.debug:
                raise
            note(f"pyturbo: {error}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse wrong options before a model is loaded."""
    check_sampling(arguments)
    at_least_one("--context", arguments.context)
    if arguments.load is None:
        return
    if arguments.system is not None:
        raise UsageError("--system: cannot be combined with --load, which brings its own system message")
    with session_file.File(arguments.load) as file:
        kv, tokens = file.header.get("kv"), file.header.get("position")
    if kv != arguments.kv:
        saved = shown(kv).strip("'")
        raise UsageError(f"--kv: expected {saved}, as {arguments.load} was saved, got {arguments.kv}")
    if arguments.context is not None and isinstance(tokens, int) and arguments.context < tokens:
        raise UsageError(
            f"--context: expected at least the {tokens} tokens of {arguments.load}, got {arguments.context}"
        )


def _which_model() -> str:
    """Return the message for a missing model: the one in the package cannot chat."""
    cached = [f"\n  pyturbo chat {name}" for name, copy in hub_cache.models().items() if _can_run(copy)]
    return (
        "expected a model, since the one in the package continues stories and cannot chat. To get one:"
        f"\n  pyturbo pull {EXAMPLE}\n  pyturbo chat {EXAMPLE}\n"
        + (f"Already in {hub_cache.cache_folder()}:{''.join(cached)}\n" if cached else "")
        + "MODEL may also be a directory or a .gguf file"
    )


def _can_run(copy: Path) -> bool:
    """Return whether the architecture of a directory is known; True for GGUF files, which are not opened."""
    if not hub_cache.is_checkpoint(copy):
        return True
    try:
        return read_config(copy / "config.json")["model_type"] in models.known()
    except TurboError:
        return False


class _Chat:
    """Handles the lines of a chat."""

    def __init__(self, arguments: argparse.Namespace, conversation: Conversation) -> None:
        self._arguments, self._conversation = arguments, conversation
        self._last = Completion()
        self._with_path: dict[str, Callable[[str], None]] = {"/save": self._save, "/load": self._load}
        self._alone: dict[str, Callable[[], None]] = {
            "/reset": self._reset,
            "/stats": self._show_stats,
            "/help": lambda: note(_COMMANDS),
        }

    def say(self, line: str) -> bool:
        """Handle a line; return False if it ends the chat."""
        name, _, rest = line.strip().partition(" ")
        leaves = name in ("/exit", "/quit")
        if rest and (leaves or name in self._alone):
            raise ArgumentError(f"{name}: expected no argument, got {rest.strip()}")
        if name in self._with_path:
            self._with_path[name](_required(name, rest.strip()))
        elif name in self._alone:
            self._alone[name]()
        elif name.startswith("/") and "/" not in name[1:] and not leaves:
            known = ", ".join([*self._with_path, *self._alone, "/exit"])
            raise ArgumentError(f"expected one of {known}, got {name}")
        elif line.strip() and not leaves:
            self._reply(line)
        return not leaves

    def _load(self, place: str) -> None:
        self._conversation = Conversation.load(self._conversation.model, place)
        self.note_loaded(place)

    def note_loaded(self, place: str) -> None:
        """Say what the conversation was loaded from."""
        note(f"loaded {place}: {self._extent()}")

    def _save(self, place: str) -> None:
        self._conversation.save(place)
        note(f"saved {place}: {self._extent()}, {size(Path(place).stat().st_size)}")

    def _reset(self) -> None:
        self._conversation.reset()
        system = ", with the system message" if self._conversation.messages else ""
        note(f"the conversation starts again{system}")

    def _extent(self) -> str:
        conversation = self._conversation
        count = len(conversation.messages)
        messages = "1 message" if count == 1 else f"{count} messages"
        return f"{messages}, {conversation.session.position} of {conversation.session.context} tokens"

    def _reply(self, line: str) -> None:
        conversation, completion = self._conversation, Completion()
        options = sampling(self._arguments)
        forgotten = conversation.forgotten
        chunks = conversation.reply(line, stats=completion.stats, **options)
        session = chunks.session
        bar = Waiting("reading", conversation.reply_start, lambda: session.position)
        try:
            with closing(chunks):  # also if an interrupt comes while a chunk is printed
                for chunk in chunks:
                    bar.close()
                    if not completion.tokens and conversation.forgotten > forgotten:
                        self._tell_forgotten()
                    completion.add(chunk)
                    if not self._arguments.json:
                        print(chunk.text, end="", flush=True)
        finally:
            bar.close()
            completion.message = chunks.message
            self._last = completion
            if self._arguments.json:
                print_json(asdict(completion) | {"reread": conversation.reread})
            else:
                print(flush=True)
        if not self._arguments.json and completion.finish_reason == "length":
            dim_note(cut_note(completion, session))
        if self._arguments.stats:
            self._show_stats()

    def _tell_forgotten(self) -> None:
        conversation = self._conversation
        context, most = conversation.session.context, conversation.model.max_context
        longer = f"; --context N, up to {most}, remembers more" if context < most else ""
        note(
            f"[longer than the context of {context} tokens: the oldest {conversation.forgotten} messages are "
            f"left out{longer}]"
        )

    def _show_stats(self) -> None:
        conversation = self._conversation
        line, *experts = stats_lines(self._last.stats, conversation.session)
        if conversation.reread:
            line += f"; {conversation.reread} tokens were read again"
        note(f"{line}; {conversation.session.position} of {conversation.session.context} tokens in use")
        for more in experts:
            note(more)


def _required(command: str, text: str) -> str:
    if not text:
        raise ArgumentError(f"{command}: expected a path")
    return path(text)
