"""Engine: many conversations with one model, whose tokens go through each layer together."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from pyturbo._arguments import byte_count, index
from pyturbo._messages import shown, size
from pyturbo.batching.member import Member
from pyturbo.batching.pace import Pace
from pyturbo.batching.scheduler import Limits, Scheduler, Usage
from pyturbo.batching.stream import Mailbox, Stream
from pyturbo.engine.chooser import Chooser
from pyturbo.engine.generation import Options, Prompt
from pyturbo.engine.prefix_tree import common
from pyturbo.engine.reply import require_room
from pyturbo.errors import ArgumentError, ContextError
from pyturbo.model import Model
from pyturbo.text.dialects import Tools

#: Tokens that are worth waiting for, while another conversation reads them.
_FEWEST_SHARED = 32

_OPTIONS = tuple(field.name for field in fields(Options) if field.name != "chat")


_schedulers: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End all engines, before devices are closed: the later registered function is called first."""
    running = [*_schedulers]
    for scheduler in running:
        scheduler.stop()
    for scheduler in running:
        scheduler.join()


class Engine:
    """Runs many replies at once. Each step reads all weights once for all conversations.

    Replies begin in the order of their priority, then of their arrival. Prompts are read in pieces between
    the steps of others. A reply has the same tokens as with `Model.stream`, up to rounding; steps of up to 7
    conversations on a CPU have the same bits.

    Leaving its `with` statement closes it: for replies that are not at their end that is a StateError.

    Attributes:
        model: The model.

    Examples:
        >>> prompts = "Once upon a", "The cat sat on the"
        >>> with pyturbo.Engine(pyturbo.load()) as engine:
        ...     streams = [engine.submit(prompt, max_tokens=3) for prompt in prompts]
        ...     [stream.result().text for stream in streams]
        [' time, there', ' bench and watched']
    """

    def __init__(
        self,
        model: Model,
        *,
        slots: int = 8,
        queue: int = 256,
        context: int = 4096,
        memory: int | str | None = None,
        piece_ms: float = 50.0,
    ) -> None:
        """Start the engine.

        `slots` is how many conversations run at once, `queue` how many more may wait. `memory`, such as
        "4GB", is for the states of all conversations. Each has room for `context` tokens, or more if its
        prompt and reply need it; equal ones share their programs.

        While others wait for their next token, prompts are read in pieces of at most `piece_ms` milliseconds,
        or as long as a step takes, or of 8 tokens, if these take longer. With compressed keys and values a
        piece is a whole chunk, because its size changes the results.
        """
        if not isinstance(model, Model):
            raise ArgumentError(f"Engine: model: expected a Model, got {shown(model)}")
        if isinstance(piece_ms, bool) or not isinstance(piece_ms, (int, float)) or not 0 < piece_ms < 1e6:
            raise ArgumentError(f"Engine: piece_ms: expected milliseconds above 0, got {shown(piece_ms)}")
        self.model, self._context = model, index("Engine: context", context, least=1)
        self._memory = None if memory is None else byte_count("Engine: memory", memory)
        limits = Limits(
            index("Engine: slots", slots, least=1),
            index("Engine: queue", queue, least=1),
            self._memory,
            partial(_has_room, model),
            partial(_shares, model),
        )
        traits = model.runner.traits
        pace = Pace(piece_ms / 1e3, traits.chunk, traits.single, whole=model.runner.kv.codec is not None)
        model.runner.require_open()
        self._scheduler = Scheduler(limits, pace)
        _schedulers.add(self._scheduler)
        self._finalizer = weakref.finalize(self, self._scheduler.stop)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        if self.closed:
            return "Engine(closed)"
        return f"Engine({self.model!r}, running={self.running}, waiting={self.waiting})"

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> int:
        """Conversations under way."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Replies that have not begun."""
        return self._scheduler.waiting

    @property
    def full(self) -> bool:
        """Whether as many replies wait as may: `submit` would be a BusyError."""
        return self._scheduler.full

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all conversations under way, and of texts that `reading` counts."""
        return self._scheduler.state_bytes

    @property
    def memory(self) -> int | None:
        """The most bytes of these states; None: no limit."""
        return self._memory

    @property
    def usage(self) -> Usage:
        """A copy of the counts and times so far."""
        return replace(self._scheduler.usage)

    @property
    def alive(self) -> bool:
        """Whether it can reply: it is not closed, and no mistake of its own has ended it."""
        return self._scheduler.alive

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._finalizer.alive

    def submit(
        self,
        prompt: Prompt,
        *,
        priority: int = 0,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Stream:
        """Have the model reply to a prompt; return the chunks as they become known, from any thread.

        The prompt is text, token ids, or the messages of a chat, and the options are those of `Model.stream`
        but for `session` and `stats`. A reply of higher `priority` begins before others that wait. If too
        many wait already, it is a BusyError.
        """
        (stream,) = self.submit_several(
            prompt, 1, priority=priority, tools=tools, variables=variables, **options
        )
        return stream

    def submit_several(
        self,
        prompt: Prompt,
        count: int,
        *,
        priority: int = 0,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[Stream]:
        """Have the model reply to one prompt several times. Those that begin together read it once.

        The other arguments are those of `submit`. With a `seed`, each further reply has the next one.
        """
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ArgumentError(f"submit: expected options among {', '.join(_OPTIONS)}, got {unknown[0]}")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ArgumentError(f"submit: priority: expected an integer, got {shown(priority)}")
        index("submit: count", count, least=1)
        model = self.model
        chosen = Options(**options).with_defaults(model.sampling)
        messages, prompt = prompt, model.prompt_text(prompt, tools, variables)
        ids = model.prompt_ids(prompt)
        chosen = model.in_chat(chosen, prompt)
        # Wrong options are an error here, not later.
        choosers = [model.chooser(each) for each in _with_seeds(chosen, count)]
        chosen.stop_strings()
        context = model.runner.context_for(max(len(ids) + chosen.max_tokens, self._context))
        nbytes = self._state_bytes(
            "submit: expected a conversation", context, f"{len(ids)} tokens and {chosen.max_tokens} more"
        )
        before_reply = model.before_reply(messages, prompt, ids, tools, variables)

        def admit(mailbox: Mailbox, chooser: Chooser) -> Member:
            session = model.session(context)
            try:
                if model.runner.most_bytes is not None:
                    model.runner.record(context)  # before others can take the memory for it
                require_room(session, ids, whole=True)
                steps = partial(model.steps, whole=True, before_reply=before_reply, chooser=chooser)
                make = partial(steps, session, ids, chosen, mailbox.stats)
                return Member(mailbox, session, np.asarray(ids, np.int32), make)
            except BaseException:
                session.close()
                raise

        if len(ids) > context:
            raise ContextError(f"prompt: expected at most {context} tokens, a context, got {len(ids)}")
        mailboxes = [Mailbox(len(ids)) for _ in choosers]
        streams = [Stream(mailbox, model.reply_parser(prompt, tools), self) for mailbox in mailboxes]
        replies = [
            (mailbox, partial(admit, mailbox, chooser)) for mailbox, chooser in zip(mailboxes, choosers)
        ]
        self._scheduler.add(priority, nbytes, context, replies)
        return streams

    def require_text(self, tokens: int) -> None:
        """Raise an ArgumentError if a text of `tokens` tokens takes more memory than all states may."""
        self._text_bytes(tokens)

    @contextmanager
    def reading(self, tokens: int, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Count the state of a text while it is read by `Model.embed`, once there is memory for it.

        It waits for that in turn with replies. `check` is called now and then; what it raises ends the wait.
        """
        context = self.model.runner.context_for(tokens)
        with self._scheduler.reading(self._text_bytes(tokens), context, check):
            yield

    def _text_bytes(self, tokens: int) -> int:
        return self._state_bytes(
            "texts: expected a state", self.model.runner.context_for(tokens), f"{tokens} tokens"
        )

    def _state_bytes(self, what: str, context: int, tokens: str) -> int:
        """Return the bytes of a state. If that is more than all may take, it is an error about `what`."""
        runner = self.model.runner
        nbytes = runner.layout(context).nbytes
        if self._memory is not None and nbytes > self._memory:
            raise ArgumentError(
                f"{what} of at most {size(self._memory)}, the memory of the engine, got {size(nbytes)} for "
                f"{tokens}"
            )
        if (most := runner.most_bytes) is not None and nbytes + runner.program_bytes(context) > most:
            raise ArgumentError(
                f"{what} of at most {size(most)} with its programs, which the memory of the model leaves, "
                f"got {size(nbytes + runner.program_bytes(context))} for {tokens}"
            )
        return nbytes

    def drain(self, timeout: float | None = None) -> bool:
        """Accept nothing more, and wait for the replies that run or wait. Returns whether all have ended."""
        return self._scheduler.drain(timeout)

    def close(self) -> None:
        """Cancel all replies, which then raise a StateError, and end the thread. Closing twice is fine."""
        self._finalizer()
        self._scheduler.tell_end()
        self._scheduler.join()


def _has_room(model: Model, nbytes: int, contexts: Collection[int]) -> bool:
    """Return whether a model has memory for a further state, for which it forgets prompts if need be."""
    missing = partial(model.runner.missing_bytes, nbytes, contexts)
    return not missing() or (model.prefix_store is not None and model.prefix_store.make_room(missing))


def _shares(model: Model, member: Member, other: Member) -> bool:
    """Return whether a prompt had better wait until another has been read, which begins with the same tokens.

    It is then a copy of that one, or takes what the prefix store has kept of it.
    """
    shared, store = common(member.prompt, other.prompt), model.prefix_store
    if shared < _FEWEST_SHARED or member.is_twin(other):
        return shared >= _FEWEST_SHARED
    if store is None or not store.restores_anywhere or 2 * shared < len(other.prompt):
        return False
    return shared - store.known(member.prompt) >= _FEWEST_SHARED


def _with_seeds(options: Options, count: int) -> Iterator[Options]:
    """Yield the options of each of several replies."""
    yield options
    for i in range(1, count):
        yield options if options.seed is None else replace(options, seed=(options.seed + i) % 2**64)
