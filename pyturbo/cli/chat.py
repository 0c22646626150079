"""``pyturbo chat``: a conversation of several turns."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict

from pyturbo.cli._model import add_model_arguments, add_sampling_arguments, load_model, sampling, stats_line
from pyturbo.cli._output import Waiting, note
from pyturbo.cli._prompt import is_interactive, reader
from pyturbo.conversation import Conversation
from pyturbo.errors import ArgumentError, TurboError
from pyturbo.generation import Completion

HELP = "talk with a model"

_COMMANDS = """\
/save PATH   keep the conversation in a file
/load PATH   go on with a conversation that was kept
/reset       begin anew
/stats       speed and memory of the last reply
/help        this list
/exit        leave; so does Ctrl-D
Ctrl-C stops a reply, Alt-Enter begins a new line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--context", type=int, help="room for so many tokens (default: up to 8192)")
    parser.add_argument("--system", help="a system message in front of the conversation")
    parser.add_argument("--load", metavar="PATH", help="go on with a conversation that was kept")
    add_sampling_arguments(parser)
    parser.add_argument("--stats", action="store_true", help="speed and memory after each reply")


def run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments)
    conversation = Conversation(model, arguments.context, arguments.system)
    if arguments.load:
        conversation.load(arguments.load)
    chat = _Chat(arguments, conversation)
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


class _Chat:
    """What is done with each line."""

    def __init__(self, arguments: argparse.Namespace, conversation: Conversation) -> None:
        self._arguments, self._conversation = arguments, conversation
        self._last = Completion()
        self._commands: dict[str, Callable[[str], None]] = {
            "/save": lambda path: conversation.save(_required("/save", path)),
            "/load": lambda path: conversation.load(_required("/load", path)),
            "/reset": lambda _: conversation.reset(),
            "/stats": lambda _: self._show_stats(),
            "/help": lambda _: note(_COMMANDS),
        }

    def say(self, line: str) -> bool:
        """Whether to go on after this line."""
        name, _, rest = line.strip().partition(" ")
        if name in ("/exit", "/quit"):
            return False
        if name in self._commands:
            self._commands[name](rest.strip())
        elif name.startswith("/") and "/" not in name[1:]:
            raise ArgumentError(f"expected one of {', '.join([*self._commands, '/exit'])}, got {name}")
        elif line.strip():
            self._reply(line)
        return True

    def _reply(self, line: str) -> None:
        conversation, completion = self._conversation, Completion()
        options = sampling(self._arguments)
        chunks = conversation.reply(line, stats=completion.stats, **options)
        session = conversation.session
        bar = Waiting("reading", conversation.reply_start, lambda: session.position)
        try:
            with closing(chunks):  # an interrupt while a chunk is printed ends the reply too
                for chunk in chunks:
                    bar.close()
                    completion.add(chunk)
                    if not self._arguments.json:
                        print(chunk.text, end="", flush=True)
        finally:
            bar.close()
            self._last = completion
            if self._arguments.json:
                print(json.dumps(asdict(completion) | {"reread": conversation.reread}), flush=True)
            else:
                print(flush=True)
        if self._arguments.stats:
            self._show_stats()

    def _show_stats(self) -> None:
        conversation = self._conversation
        line = stats_line(self._last.stats, conversation.session)
        if conversation.reread:
            line += f"; the template changed what was said before: {conversation.reread} tokens read again"
        note(f"{line}; {conversation.session.position} of {conversation.session.context} tokens in use")


def _required(command: str, path: str) -> str:
    if not path:
        raise ArgumentError(f"{command}: expected a path")
    return path
