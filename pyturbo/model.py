"""A model on a device."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import models
from pyturbo._arguments import byte_count, callback, index, path_of
from pyturbo._device import Device, device_list
from pyturbo._messages import shown
from pyturbo._once import once
from pyturbo.checkpoint import SamplingDefaults, TokenizerSource, open_checkpoint
from pyturbo.checkpoint.origin import Origin
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.engine import session as sessions
from pyturbo.engine.chooser import Chooser, make_chooser
from pyturbo.engine.embedding import Piece, Pooling, embedding
from pyturbo.engine.generation import Chunk, Completion, Options, Prompt, ReplyOptions, Stats, is_chat
from pyturbo.engine.prefix_cache import PrefixCache
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.reply import (
    Prefixes,
    Reply,
    Steps,
    chunks_of,
    in_thread,
    read_prompt,
    require_room,
    steps_of,
)
from pyturbo.engine.runner import Runner
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, ContextError, StateError
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.kv_cache import kv_format
from pyturbo.placement import place_experts
from pyturbo.streaming import Policy
from pyturbo.text import ChatText, Tokenizer
from pyturbo.text.dialects import Dialect, ReplyParser, Tools, as_functions

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The context of a session, where the caller does not say: this many tokens, or all that the model can have.
DEFAULT_CONTEXT = 8192

#: A text, the token ids of one, or a list of either.
Texts = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]] | NDArray[Any]

_PROMPT = "text, token ids or a list of messages"


def default_model() -> Path:
    """Return the path of the checkpoint that is part of the package, a small writer of children's stories."""
    return Path(__file__).parent / "bundled"


def load(
    path_or_id: str | PathLike[str] | None = None,
    device: Device | str | None = None,
    kv: str = "f16",
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    precision: str | None = None,
    memory: int | str | None = None,
    policy: Policy | None = None,
    prefix_cache: PrefixCache | int | str | None = None,
) -> Model:
    """Load the model of a checkpoint: a directory of safetensors, or a GGUF file. None: `default_model`.

    "owner/name" is a model that `pyturbo pull` has downloaded; see `pyturbo.checkpoint.open_checkpoint`.

    Weights are mapped where the file allows it; `progress` is called with the bytes read of the others.
    `threads` and `precision` are those of `Device`. `kv` is how keys and values are kept: "f16",
    "f32", or compressed as "turbo8", "turbo6v4", "turbo4": `turbo<k>v<v>` has k bits for each coordinate of a
    key and v for a value's, of 2, 3, 4, 6 and 8.

    `memory`, such as "12GB", is all that this process may take: weights, programs and conversations. Experts
    of a packed checkpoint (`pyturbo pack`) that do not fit are read from its files when they are needed, into
    memory that the rest leaves; without `memory` most of the free memory is used. `policy` says how.

    `prefix_cache`, such as "2GB", is memory for what conversations have read: a prompt that begins like an
    earlier one is then read from where they part. A `PrefixCache` names a folder too.

    Examples:
        >>> model = pyturbo.load()
        >>> model
        Model('qwen3_5_moe', layers=8, vocab=4096, context=2048, kv='f16', device='cpu')
        >>> pyturbo.load("no-such-file.gguf")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyturbo.errors.FileError: no-such-file.gguf: no such file or directory...
    """
    if path_or_id is not None:
        path_of("load: path_or_id", path_or_id)
    callback("load: progress", progress)
    setting, prefixes = kv_format(kv), PrefixCache.of(prefix_cache)
    if isinstance(device, Device):
        for name, value in (("threads", threads), ("precision", precision)):
            if value is not None:
                raise ArgumentError(f"load: {name}: expected none beside a Device, which has its own")
    elif device is None or isinstance(device, str):
        name = device_list()[0] if device is None else device
        device = Device(name, threads=threads, precision="default" if precision is None else precision)
    else:
        raise ArgumentError(f"load: device: expected a name or a Device, got {device!r}")
    most = None if memory is None else byte_count("load: memory", memory)
    with open_checkpoint(default_model() if path_or_id is None else path_or_id) as checkpoint:
        placed = place_experts(checkpoint, device, setting, most, policy)
        try:
            network = models.build(checkpoint, progress)
            experts = checkpoint.experts if isinstance(checkpoint, PackedCheckpoint) else None
            runner = Runner(network, device, setting, Origin(checkpoint), placed.budget, experts)
            placed.require_room(runner)
            store = None if prefixes is None else prefixes.store(runner)
        except BaseException:
            placed.close()
            raise
        source, sampling = checkpoint.tokenizer, checkpoint.sampling
        return Model(runner, checkpoint.config, source, sampling, placed.tokenizer, store)


class Model:
    """Weights and recorded programs, shared by any number of sessions. `pyturbo.load` makes it.

    Leaving its `with` statement closes it.

    Attributes:
        config: The checkpoint's configuration.
        runner: The network on its device; see `pyturbo.engine.runner`.
        sampling: How the checkpoint wants its replies sampled, where the caller does not say.
        prefix_store: What conversations have read, if `load` was given a `prefix_cache`; otherwise None.

    Examples:
        >>> with pyturbo.load() as model:
        ...     model.generate("The cat sat on the", max_tokens=3).text
        ' bench and watched'
    """

    def __init__(
        self,
        runner: Runner,
        config: dict[str, Any],
        tokenizer: TokenizerSource,
        sampling: SamplingDefaults,
        made: Tokenizer | None = None,
        prefix_store: PrefixStore | None = None,
    ) -> None:
        """Take the parts of a checkpoint; `made` is its tokenizer if there is one already."""
        self.prefix_store = prefix_store
        self.runner, self.config, self.sampling = runner, config, sampling
        self._tokenizer, self._made = tokenizer, made

    def __repr__(self) -> str:
        kind, device = self.config.get("model_type", "?"), self.device.name
        if self.runner.closed:
            return f"Model({kind!r}, closed)"
        network = self.network
        return (
            f"Model({kind!r}, layers={len(network.layers)}, vocab={network.vocab}, "
            f"context={network.context}, kv={self.kv!r}, device={device!r})"
        )

    def __enter__(self) -> Model:
        self.runner.require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the weights, their files and the programs, once a replay of another thread is over.

        Replies, logits and sessions of a closed model are a StateError, and so is saving a session that is
        left. Its tokenizer and configuration can still be used. Closing twice is fine.
        """
        self.runner.close()
        if self.prefix_store is not None:
            self.prefix_store.flush()
            self.prefix_store.clear()

    def __copy__(self) -> Model:
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self

    def __reduce__(self) -> NoReturn:
        raise StateError("a model cannot be pickled: pass its path, and load it there")

    @property
    def network(self) -> Decoder:
        """The layers, with their weights."""
        return self.runner.network

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.runner.device

    @property
    def kv(self) -> str:
        """How keys and values are kept, as `load` takes it."""
        return self.runner.kv.name

    @property
    def max_context(self) -> int:
        """The most tokens a conversation can have."""
        return int(self.network.context)

    @property
    def fingerprint(self) -> str:
        """A hash that tells this model from others: of its configuration, and of bytes of every tensor."""
        return self.runner.origin.fingerprint

    @property
    def expert_counters(self) -> list[dict[str, Any]]:
        """Counters of the experts that were read, by layer, since the model was loaded.

        Empty if all experts are in memory; docs/streaming.md says what is counted.
        """
        budget = self.runner.budget
        return [] if budget is None or budget.experts is None else budget.experts.stats()

    @property
    def has_tokenizer(self) -> bool:
        """Whether the checkpoint came with one."""
        return self._tokenizer.found

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Any of these tokens ends a reply."""
        return self.tokenizer.eos_ids if self.has_tokenizer else self._tokenizer.eos_ids

    @once
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer. FormatError if it has none."""
        return Tokenizer(self._tokenizer) if self._made is None else self._made

    def session(self, context: int | None = None) -> Session:
        """Start a conversation with room for `context` tokens; 8192 by default, or `max_context` if less."""
        most = self.max_context
        tokens = min(DEFAULT_CONTEXT, most) if context is None else index("session: context", context)
        if not 1 <= tokens <= most:
            raise ArgumentError(f"session: context: expected 1 to {most}, got {tokens}")
        self.runner.origin.check_files()
        return Session(self.runner, tokens)

    def load_session(self, path: str | PathLike[str], context: int | None = None) -> Session:
        """Read the conversation that `Session.save` wrote, exact to the byte on the same kind of device.

        `context` gives it other room, from the tokens it has read upwards; None: the room it had.

        Examples:
            >>> model = pyturbo.load()
            >>> session = model.session(context=64)
            >>> reply = model.generate("Once upon a time", 4, session=session)
            >>> session.save("story.session")
            >>> again = model.load_session("story.session", context=128)
            >>> again.position == session.position, again.context
            (True, 128)
        """
        self.runner.require_open()
        self.runner.origin.check_files()
        return sessions.load(self.runner, path, context)

    def stream(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **more: Unpack[ReplyOptions],
    ) -> Reply:
        """Continue a prompt, one chunk a token, each as soon as it is known.

        The prompt is text, token ids, or the messages of a chat. With a `session` it continues that
        conversation, where an empty prompt goes on with what was said last; without one it starts its own.
        Messages are a whole conversation: a session that has read the beginning of it goes on from there, and
        forgets what else it has read. `logprobs` is how many of the likeliest tokens each chunk lists;
        `stats` is filled as the reply goes on. The other options are those of `pyturbo.Sampler`; one that is
        not given is what the checkpoint says (`Model.sampling`), unless `temperature` is given as 0.
        `ReplyOptions` lists `more` of them, such as a JSON `schema` that the reply fits.

        `tools` are functions that a reply to messages may call; `Reply.parts` and `Reply.message` have the
        calls. `variables` are passed to the chat template, such as enable_thinking. In a chat the text of
        chunks has the markers of thoughts and calls, also where they are special tokens.

        Closing the iterator, `Reply.cancel` from any thread, or an interrupt ends the reply within one token,
        or one chunk of a prompt; the session can go on from there.

        Examples:
            >>> model = pyturbo.load()
            >>> for chunk in model.stream("Once upon a time", max_tokens=3):
            ...     print(repr(chunk.text), round(chunk.logprob, 2), chunk.finish_reason)
            ',' -0.14 None
            ' there' -0.1 None
            ' was' -0.0 length
        """
        options = Options(
            max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop, logprobs, **more
        ).with_defaults(self.sampling)
        messages, whole, prompt = prompt, is_chat(prompt), self.prompt_text(prompt, tools, variables)
        ids, parser = self.prompt_ids(prompt, session), self.reply_parser(prompt, tools)
        options = self.in_chat(options, prompt)
        if session is None:
            session = self.session(self.runner.context_for(len(ids) + options.max_tokens))
        stats = Stats() if stats is None else stats
        require_room(session, ids, whole=whole)
        before_reply = self.before_reply(messages, prompt, ids, tools, variables)
        chunks = self._chunks(session, ids, options, stats, whole=whole, before_reply=before_reply)
        return Reply(session, chunks, stats, parser)

    @overload
    def generate(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        n: None = None,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **more: Unpack[ReplyOptions],
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        n: int,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **more: Unpack[ReplyOptions],
    ) -> list[Completion]: ...
    def generate(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        n: int | None = None,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **more: Unpack[ReplyOptions],
    ) -> Completion | list[Completion]:
        """Return the whole reply at once. The options are those of `stream`.

        With `n` it returns a list of that many replies to one prompt, which is read once. The first has the
        `seed`, each further one the next number. A `session` that is given has then read the prompt, but
        none of the replies; each of these has its own `stats`.

        Examples:
            >>> model = pyturbo.load()
            >>> reply = model.generate("Once upon a time", 40, temperature=0.7, seed=1, stop=".")
            >>> reply.text, reply.finish_reason
            (', there was a little girl named Lily', 'stop')
            >>> reply.stats.prompt_tokens
            4
            >>> replies = model.generate("The cat was", 3, temperature=1, seed=1, n=2)
            >>> [reply.text for reply in replies]
            [' a very big', ' very alert and']
        """
        sampling = (temperature, top_p, top_k, min_p, repetition_penalty, seed, stop)
        if n is None:
            reply = self.stream(
                prompt,
                max_tokens,
                *sampling,
                logprobs=logprobs,
                session=session,
                stats=stats,
                tools=tools,
                variables=variables,
                **more,
            )
            return _completion(reply)
        if stats is not None:
            raise ArgumentError("stats: expected none beside n, since each reply has its own")
        options = Options(max_tokens, *sampling, logprobs, **more).with_defaults(self.sampling)
        return self._several(prompt, index("n", n, least=1), options, session, tools, variables)

    def _several(
        self,
        prompt: Prompt,
        n: int,
        options: Options,
        session: Session | None,
        tools: Tools | None,
        variables: Mapping[str, Any] | None,
    ) -> list[Completion]:
        """Return n replies, each in a copy of a session that has read the prompt."""
        messages, whole, prompt = prompt, is_chat(prompt), self.prompt_text(prompt, tools, variables)
        ids = self.prompt_ids(prompt, session)
        options = self.in_chat(options, prompt)
        if session is None:
            session = self.session(self.runner.context_for(len(ids) + options.max_tokens))
        require_room(session, ids, whole=whole)
        self.chooser(options)  # wrong options are an error before the prompt is read
        options.stop_strings()
        read, replies = Stats(), []
        prefixes = self._prefixes(self.before_reply(messages, prompt, ids, tools, variables))
        read_prompt(session, ids, read, whole=whole, prefixes=prefixes)
        for number in range(n):
            own, stats = options, Stats()
            if options.seed is not None:
                own = replace(options, seed=(options.seed + number) % 2**64)
            with session.fork() as fork:
                chunks = self._chunks(fork, [], own, stats, whole=False)
                replies.append(_completion(Reply(fork, chunks, stats, self.reply_parser(prompt, tools))))
            stats.cached_tokens = session.position
            if number == 0:
                stats.cached_tokens, stats.prompt_tokens = read.cached_tokens, read.prompt_tokens
                stats.prefill_seconds += read.prefill_seconds
                stats.prefill_experts = read.prefill_experts
        return replies

    def astream(
        self,
        prompt: Prompt,
        max_tokens: int = 256,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = (),
        *,
        logprobs: int = 0,
        session: Session | None = None,
        stats: Stats | None = None,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        **more: Unpack[ReplyOptions],
    ) -> AsyncGenerator[Chunk, None]:
        """Continue a prompt in a thread of its own, for asyncio. The options are those of `stream`.

        Cancelling the task, or leaving the loop and closing the iterator, ends the reply within one token, or
        one chunk of a prompt.

        Examples:
            >>> import asyncio
            >>> async def story():
            ...     return [chunk.text async for chunk in pyturbo.load().astream("Once upon a time", 3)]
            >>> asyncio.run(story())
            [',', ' there', ' was']
        """
        sampling = (temperature, top_p, top_k, min_p, repetition_penalty, seed, stop)
        return in_thread(
            lambda: self.stream(
                prompt,
                max_tokens,
                *sampling,
                logprobs=logprobs,
                session=session,
                stats=stats,
                tools=tools,
                variables=variables,
                **more,
            )
        )

    def prompt_text(
        self, prompt: Prompt, tools: Tools | None = None, variables: Mapping[str, Any] | None = None
    ) -> Prompt:
        """Return a chat as the checkpoint's own template writes it; any other prompt as it is.

        `tools` and `variables` are those of `stream`.
        """
        functions = as_functions(tools)
        if not (variables is None or isinstance(variables, Mapping)):
            raise ArgumentError(f"variables: expected a mapping of names to values, got {shown(variables)}")
        given = dict(variables or {})
        if not all(isinstance(name, str) for name in given) or "generate" in given or "tools" in given:
            raise ArgumentError("variables: expected names other than generate and tools")
        if not is_chat(prompt):
            if functions or given:
                name = "tools" if functions else "variables"
                raise ArgumentError(f"{name}: expected messages as the prompt, whose template takes them")
            return prompt
        return self.tokenizer.chat(prompt, tools=functions, **given)  # type: ignore[arg-type]

    def reply_parser(self, prompt: Prompt, tools: Tools | None = None) -> ReplyParser:
        """Return what takes the reply to a prompt of `prompt_text` apart. Only chats have more than text."""
        if isinstance(prompt, ChatText):
            return self.tokenizer.dialect.parser(tools, prompt)
        return Dialect().parser(tools)

    def in_chat(self, options: Options, prompt: Prompt) -> Options:
        """Return the options of the reply to a prompt of `prompt_text`, which a chat changes."""
        return replace(options, chat=prompt if isinstance(prompt, ChatText) else None)

    def prompt_ids(
        self, prompt: Prompt, session: Session | None = None, *, any_length: bool = False
    ) -> list[int]:
        """Return the tokens of text, of token ids, or of a chat through the checkpoint's own template.

        Within a conversation text gets no token for its beginning, and there may be no tokens at all. Text
        that no context has room for is a ContextError before it is encoded, unless it may have `any_length`.
        """
        if session is not None and (not isinstance(session, Session) or not session.is_of(self.runner)):
            raise ArgumentError(f"session: expected one of this model, got {session!r}")
        begun = session is not None and (session.position > 0 or bool(session.pending))
        if isinstance(prompt, str) and not any_length:
            self._require_short("prompt", prompt)
        ids = self._encode(prompt, special=not begun)
        if not ids and not begun:
            raise ArgumentError("prompt: expected at least one token, got none")
        if ids:
            self.runner.check_ids(ids, "prompt")
        return ids

    def _require_short(self, what: str, text: str) -> None:
        """Refuse text that surely has more tokens than a context: encoding it may take a minute."""
        most = self.max_context
        if len(text) > most and (least := self.tokenizer.least_tokens(text)) > most:
            raise ContextError(f"{what}: expected at most {most} tokens, a context, got at least {least}")

    def _encode(self, prompt: Prompt, special: bool) -> list[int]:
        """`special`: text starts with what its tokenizer puts at the beginning of a text."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, special and not isinstance(prompt, ChatText))
        if isinstance(prompt, np.ndarray):
            return [int(token) for token in self.runner.check_ids(prompt, "prompt")]
        if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Sequence):
            raise ArgumentError(f"prompt: expected {_PROMPT}, got {shown(prompt)}")
        if is_chat(prompt):
            return self.tokenizer.encode(self.tokenizer.chat(prompt), special=False)  # type: ignore[arg-type]
        if any(isinstance(item, str) for item in prompt):
            raise ArgumentError(
                f"prompt: expected {_PROMPT}, got a list of texts; ask for one reply at a time"
            )
        return list(prompt)  # type: ignore[arg-type]

    def before_reply(
        self,
        messages: Prompt,
        text: Prompt,
        ids: list[int],
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> int | None:
        """Return how many tokens of a chat come before those that begin the reply, for a prefix store.

        Later turns do not change them. `text` is what `prompt_text` gave for the messages, and `ids` are its
        tokens. None if that is not known, for other prompts, and without a store.
        """
        if self.prefix_store is None or not is_chat(messages) or not isinstance(text, ChatText):
            return None
        said = self.tokenizer.chat(messages, generate=False, tools=as_functions(tools), **(variables or {}))  # type: ignore[arg-type]
        if not text.begins_with(said):
            return None
        beginning = self.tokenizer.encode(text[len(said) :], special=False)
        count = len(ids) - len(beginning)
        return count if ids[count:] == beginning else None

    def _chunks(
        self,
        session: Session,
        ids: Sequence[int],
        options: Options,
        stats: Stats,
        *,
        whole: bool,
        before_reply: int | None = None,
    ) -> Generator[Chunk, None, None]:
        """Return the chunks of a reply; see `pyturbo.engine.reply.chunks_of`."""
        steps = self.steps(session, ids, options, stats, whole=whole, before_reply=before_reply)
        return chunks_of(session, steps)

    def steps(
        self,
        session: Session,
        ids: Sequence[int],
        options: Options,
        stats: Stats,
        *,
        whole: bool,
        before_reply: int | None = None,
        chooser: Chooser | None = None,
    ) -> Steps:
        """Return the steps of a reply for a caller that has the session read; see `engine.reply.steps_of`."""
        return steps_of(
            session,
            ids,
            options,
            stats,
            tokenizer=self._text_of(options),
            eos_ids=self.eos_ids,
            whole=whole,
            prefixes=self._prefixes(before_reply),
            chooser=chooser,
        )

    def _prefixes(self, before_reply: int | None) -> Prefixes:
        return None if self.prefix_store is None else (self.prefix_store, before_reply)

    def chooser(self, options: Options) -> Chooser:
        """Return what draws the tokens of a reply. Wrong options are an error; a constraint takes time."""
        tokenizer = self._text_of(options)
        return make_chooser(options, tokenizer=tokenizer, eos_ids=self.eos_ids, vocab=self.network.vocab)

    def _text_of(self, options: Options) -> Tokenizer | None:
        """Return the tokenizer, None if there is none and no option needs it."""
        return self.tokenizer if self.has_tokenizer or options.needs_tokenizer else None

    def logits(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Return the logits of every position, from a fresh state: float32 [tokens, vocab].

        Examples:
            >>> model = pyturbo.load()
            >>> tokens = model.tokenizer.encode("Once upon a time")
            >>> model.logits(tokens).shape
            (4, 4096)
        """
        ids = self.runner.check_ids(token_ids)
        with self.runner.room("logits", 2 * len(ids) * self.network.vocab * 4):  # chunks, and all of them
            chunks = sessions.outputs(self.runner, ids, "all")
            return np.concatenate([logits for (logits,) in chunks])

    def embed(self, texts: Texts, pooling: Pooling = "mean", *, piece: Piece = None) -> NDArray[np.float32]:
        """Return a vector of length 1 for each text: float32 [texts, hidden].

        It is the "mean" of the states after the final norm, from which logits are computed, or that of the
        "last" token. `texts` is one text, or its token ids, or a list of either. Texts are read one after the
        other, without logits. `piece` is how many tokens are read at once, while replies of other threads
        wait; None: as many as the device reads best. A function is asked before each piece, and what it
        raises ends the reading.

        Examples:
            >>> model = pyturbo.load()
            >>> cat, kitten, storm = model.embed(["The cat ran.", "The kitten ran.", "A storm came."])
            >>> cat.shape, bool(cat @ kitten > cat @ storm)
            ((256,), True)
        """
        if pooling not in ("mean", "last"):
            raise ArgumentError(f"pooling: expected mean or last, got {shown(pooling)}")
        if piece is not None and not callable(piece):
            index("piece", piece, least=1)
        listed = self.embedded_ids(texts)
        with self.runner.room("embeddings", len(listed) * len(self.network.norm.weight) * 4):
            return np.stack([embedding(self.runner, ids, pooling, piece) for ids in listed])

    def embedded_ids(self, texts: Texts) -> list[NDArray[np.int32]]:
        """Return the tokens of the texts that `embed` takes; ContextError if one is too long."""
        several = isinstance(texts, Sequence) and not isinstance(texts, (str, bytes))
        if several and not len(texts):
            raise ArgumentError("texts: expected at least one, got none")
        is_list = several and not isinstance(texts[0], (int, np.integer))
        listed = []
        for text in texts if is_list else [texts]:
            if isinstance(text, str):
                self._require_short("texts", text)
            tokens = self.tokenizer.encode(text) if isinstance(text, str) else text
            ids = self.runner.check_ids(tokens, "texts")
            if len(ids) > self.max_context:
                raise ContextError(f"texts: expected at most {self.max_context} tokens, got {len(ids)}")
            listed.append(ids)
        return listed

    def layer_outputs(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """Return the output of each layer, from a fresh state: float32 [layers, tokens, hidden].

        To compare with another implementation layer by layer.
        """
        ids = self.runner.check_ids(token_ids)
        layers, hidden = len(self.network.layers), len(self.network.norm.weight)
        with self.runner.room("outputs of layers", 2 * layers * len(ids) * hidden * 4):
            chunks = sessions.outputs(self.runner, ids, "layers")
            return np.concatenate([np.stack(outputs) for outputs in chunks], axis=1)


def _completion(reply: Reply) -> Completion:
    """Take a reply to its end."""
    completion = Completion(stats=reply.stats)
    for chunk in reply:
        completion.add(chunk)
    if reply.cancelled:
        completion.finish_reason = "cancelled"
    completion.message = reply.message
    return completion
