"""A model on a device."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import AsyncGenerator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyturbo import models
from pyturbo._arguments import index
from pyturbo._native import Device, FileWatch, device_list
from pyturbo._once import once
from pyturbo.checkpoint import SamplingDefaults, TokenizerSource, open_checkpoint
from pyturbo.checkpoint.identity import Identity
from pyturbo.checkpoint.tensors import Progress
from pyturbo.engine import session_file
from pyturbo.engine.generation import Chunk, Completion, Options, Prompt, Stats, is_chat, prompt_ids
from pyturbo.engine.graph import Graph, Layout, Output, pace_of
from pyturbo.engine.reply import Reply, chunks_of, in_thread, require_room
from pyturbo.engine.session import Session
from pyturbo.errors import ArgumentError, StateError
from pyturbo.layers.decoder import Decoder
from pyturbo.layers.kv_cache import kv_format
from pyturbo.layers.step import KvFormat
from pyturbo.text import Tokenizer

#: Programs kept at once; each has its own scratch memory.
MAX_GRAPHS = 8


def default_model() -> Path:
    """The checkpoint that is part of the package: a small writer of children's stories."""
    return Path(__file__).parent / "bundled"


def load(
    path_or_id: str | PathLike[str] | None = None,
    device: Device | str | None = None,
    kv: str = "f16",
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    precision: str | None = None,
) -> Model:
    """The model of a checkpoint: a directory of safetensors, or a GGUF file. None: `default_model`.

    "owner/name" is a model that `pyturbo pull` has downloaded; see `pyturbo.checkpoint.open_checkpoint`.

    Weights are mapped where the file allows it; `progress` is called with the bytes read of the others.
    `threads` and `precision` are those of `Device`. `kv` is how keys and values are kept: "f16",
    "f32", or compressed as "turbo8", "turbo4", "turbo4v2": `turbo<k>v<v>` has k bits for each coordinate of a
    key and v for a value's, of 2, 3, 4, 6 and 8.

    Examples:
        >>> model = pyturbo.load()
        >>> model
        Model('qwen3_5_moe', layers=8, vocab=4096, context=2048, kv='f16', device='cpu')
        >>> pyturbo.load("no-such-file.gguf")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyturbo.errors.FileError: no-such-file.gguf: no such file or directory...
    """
    setting = kv_format(kv)
    if isinstance(device, Device):
        for name, value in (("threads", threads), ("precision", precision)):
            if value is not None:
                raise ArgumentError(f"load: {name}: expected none beside a Device, which has its own")
    elif device is None or isinstance(device, str):
        name = device_list()[0] if device is None else device
        device = Device(name, threads=threads, precision=precision or "default")
    else:
        raise ArgumentError(f"load: device: expected a name or a Device, got {device!r}")
    with open_checkpoint(default_model() if path_or_id is None else path_or_id) as checkpoint:
        network = models.build(checkpoint, progress)
        identity = Identity(checkpoint)
        model = Model(
            checkpoint.config, network, checkpoint.tokenizer, device, setting, identity, checkpoint.sampling
        )
        model.watch_files(checkpoint.watches())
        return model


class Model:
    """Weights and recorded programs, shared by any number of sessions. `pyturbo.load` makes it.

    Attributes:
        config: What the checkpoint says of itself.
        network: The layers, with their weights.
        device: Where it runs.
        kv: How keys and values are kept.
        sampling: How the checkpoint wants its replies sampled, where the caller does not say.

    Examples:
        >>> model = pyturbo.load()
        >>> model.generate("The cat sat on the", max_tokens=3).text
        ' bench and watched'
    """

    def __init__(
        self,
        config: dict[str, Any],
        network: Decoder,
        tokenizer: TokenizerSource,
        device: Device,
        kv: KvFormat,
        identity: Identity,
        sampling: SamplingDefaults,
    ) -> None:
        Layout.of(network, 1, 1, kv.name)  # refuses what these layers cannot keep that way
        self.config, self.network, self.device, self.kv = config, network, device, kv.name
        self.sampling = sampling
        #: How its programs read tokens.
        self.pace = pace_of(device.name)
        self._tokenizer, self._identity = tokenizer, identity
        self._watches: Sequence[FileWatch] = ()
        self._graphs: dict[tuple[int, int, Output], Graph] = {}  # the one used last at the end
        #: Held by the thread whose replay runs: programs share scratch memory.
        self.replaying = threading.Lock()

    def __repr__(self) -> str:
        network, kind = self.network, self.config.get("model_type", "?")
        return (
            f"Model({kind!r}, layers={len(network.layers)}, vocab={network.vocab}, "
            f"context={network.context}, kv={self.kv!r}, device={self.device.name!r})"
        )

    def __copy__(self) -> Model:
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self

    def __reduce__(self) -> NoReturn:
        raise StateError("a model cannot be pickled: pass its path, and load it there")

    @property
    def max_context(self) -> int:
        """The most tokens a conversation can have."""
        return int(self.network.context)

    def session(self, context: int | None = None) -> Session:
        """A conversation with room for `context` tokens; up to 4096 where nothing is said."""
        tokens = min(4096, self.max_context) if context is None else index("session: context", context)
        if not 1 <= tokens <= self.max_context:
            raise ArgumentError(f"session: context: expected 1 to {self.max_context}, got {tokens}")
        self.check_files()
        return Session(self, tokens)

    def watch_files(self, watches: Sequence[FileWatch]) -> None:
        """Remember the files that weights come from, which must be as they were when they were mapped."""
        self._watches = watches
        self.check_files()

    def check_files(self) -> None:
        """Raises a FileError where a file that weights are mapped from became shorter or was written to."""
        for watch in self._watches:
            watch.check()

    @property
    def has_tokenizer(self) -> bool:
        """Whether the checkpoint came with one."""
        return self._tokenizer.kind == "gguf" or self._tokenizer.path is not None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Any of these tokens ends a reply."""
        return self.tokenizer.eos_ids if self.has_tokenizer else self._tokenizer.eos_ids

    @once
    def tokenizer(self) -> Tokenizer:
        """From the checkpoint. FormatError where it has none."""
        return Tokenizer(self._tokenizer)

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
    ) -> Reply:
        """Continues a prompt, one chunk a token, each as soon as it is known.

        The prompt is text, token ids, or the messages of a chat. With a `session` it continues that
        conversation, where an empty prompt goes on with what was said last; without one it starts its own.
        Messages are a whole conversation: a session that has read the beginning of it goes on from there, and
        forgets what else it has read. `logprobs` is how many of the likeliest tokens each chunk lists;
        `stats` is filled as the reply goes on. The other options are those of `pyturbo.Sampler`; one that is
        not given is what the checkpoint says (`Model.sampling`), unless `temperature` is given as 0.

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
            max_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed, stop, logprobs
        ).with_defaults(self.sampling)
        if session is not None and (not isinstance(session, Session) or session.model is not self):
            raise ArgumentError(f"session: expected one of this model, got {session!r}")
        ids = self.prompt_ids(prompt, session)
        if session is None:
            session = self.session(self.room(len(ids) + options.max_tokens))
        stats = Stats() if stats is None else stats
        require_room(session, ids, whole=is_chat(prompt))
        chunks = chunks_of(self, session, ids, options, stats, whole=is_chat(prompt))
        return Reply(session, chunks, stats)

    def generate(self, prompt: Prompt, *arguments: Any, **options: Any) -> Completion:
        """As `stream`, with the whole reply at once.

        Examples:
            >>> model = pyturbo.load()
            >>> reply = model.generate("Once upon a time", 40, temperature=0.7, seed=1, stop=".")
            >>> reply.text, reply.finish_reason
            (', there was a little girl named Lily', 'stop')
            >>> reply.stats.prompt_tokens
            4
        """
        stats = options.pop("stats", None)
        completion = Completion(stats=Stats() if stats is None else stats)
        reply = self.stream(prompt, *arguments, **options, stats=completion.stats)
        for chunk in reply:
            completion.add(chunk)
        if reply.cancelled:
            completion.finish_reason = "cancelled"
        return completion

    def astream(self, prompt: Prompt, *arguments: Any, **options: Any) -> AsyncGenerator[Chunk, None]:
        """As `stream`, for asyncio: the reply runs in a thread of its own, and the loop goes on meanwhile.

        Cancelling the task, or leaving the loop and closing the iterator, ends the reply within one token, or
        one chunk of a prompt.

        Examples:
            >>> import asyncio
            >>> async def story():
            ...     return [chunk.text async for chunk in pyturbo.load().astream("Once upon a time", 3)]
            >>> asyncio.run(story())
            [',', ' there', ' was']
        """
        return in_thread(lambda: self.stream(prompt, *arguments, **options))

    def prompt_ids(self, prompt: Prompt, session: Session | None = None) -> list[int]:
        """The tokens of text, of token ids, or of a chat through the checkpoint's own template.

        Within a conversation text gets no token for its beginning, and there may be no tokens at all.
        """
        begun = session is not None and (session.position > 0 or bool(session.pending))
        ids = prompt_ids(self, prompt, special=not begun)
        if not ids and not begun:
            raise ArgumentError("prompt: expected at least one token, got none")
        if ids:
            self.check_ids(ids)
        return ids

    def room(self, tokens: int) -> int:
        """A context for so many tokens, one of few sizes since each has its own programs."""
        return min(max(512, 1 << (tokens - 1).bit_length()), self.max_context)

    @once
    def fingerprint(self) -> str:
        """What tells this model from others: its configuration, and bytes of every tensor."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        digest.update(self._identity.digest())
        self.check_files()  # what was hashed is what was loaded
        return digest.hexdigest()

    def load_session(self, path: str | PathLike[str], context: int | None = None) -> Session:
        """Read the conversation that `Session.save` wrote, exact to the byte on the same kind of device.

        `context` gives it other room, from the tokens it has read upwards; None: what it had. `restore` is
        the same method.

        Examples:
            >>> model = pyturbo.load()
            >>> session = model.session(context=64)
            >>> reply = model.generate("Once upon a time", 4, session=session)
            >>> session.save("story.session")
            >>> again = model.load_session("story.session", context=128)
            >>> again.position == session.position, again.context
            (True, 128)
        """
        with session_file.Reader(path) as file:
            saved = file.saved(self)
            room = saved.context if context is None else index("load_session: context", context)
            if room < saved.position:
                raise ArgumentError(
                    f"load_session: context: expected at least {saved.position}, the tokens that "
                    f"{file.path} has, got {room}"
                )
            layout = Layout.of(self.network, saved.context, saved.chunk, self.kv)
            file.check_state(layout.used_bytes(saved.position))
            session = self.session(room)
            session.load(layout, file.read, saved.position, saved.pending)
            file.finish(session.tokens, self.network.vocab)
        session.notes = saved.notes
        return session

    restore = load_session

    def logits(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """The logits of every position, from a fresh state: float32 [tokens, vocab].

        Examples:
            >>> model = pyturbo.load()
            >>> tokens = model.tokenizer.encode("Once upon a time")
            >>> model.logits(tokens).shape
            (4, 4096)
        """
        ids = self.check_ids(token_ids)
        return np.concatenate([logits for (logits,) in self.session(len(ids)).advance(ids, "all")])

    def layer_outputs(self, token_ids: ArrayLike) -> NDArray[np.float32]:
        """What leaves each layer, from a fresh state: float32 [layers, tokens, hidden].

        To compare with another implementation layer by layer.
        """
        ids = self.check_ids(token_ids)
        return np.concatenate([np.stack(x) for x in self.session(len(ids)).advance(ids, "layers")], axis=1)

    def check_ids(self, token_ids: ArrayLike) -> NDArray[np.int32]:
        """Token ids as an array, known to be of the vocabulary; an ArgumentError for anything else."""
        try:
            ids = np.asarray(token_ids)
        except ValueError as error:
            raise ArgumentError(f"token_ids: expected a list of integers: {error}") from None
        if ids.shape == (0,):
            raise ArgumentError("token_ids: expected at least one token, got none")
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ArgumentError(f"token_ids: expected a list of integers, got {ids.dtype} {list(ids.shape)}")
        if ids.min() < 0 or ids.max() >= self.network.vocab:
            wrong = ids[(ids < 0) | (ids >= self.network.vocab)][0]
            raise ArgumentError(f"token_ids: expected 0 to {self.network.vocab - 1}, got {wrong}")
        return ids.astype(np.int32)

    def graph(self, context: int, tokens: int, output: Output) -> tuple[int, Graph]:
        """How many of so many tokens to read next, and the program for it, which is recorded once.

        Its replays take turns with those of all programs of the model; see `replaying`.
        """
        single = output == "last" and tokens <= self.pace.single
        key = (context, 1 if single else self.pace.chunk, output)
        self.device.require_open()  # before a lock that another thread held at a fork
        with self.replaying:
            graph = self._graphs.pop(key, None) or Graph(self, *key)
            while len(self._graphs) >= MAX_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = graph
        return min(tokens, key[1]), graph

    @property
    def scratch_bytes(self) -> int:
        """Memory for results between launches, of all programs recorded so far."""
        self.device.require_open()
        with self.replaying:
            return sum(graph.scratch_bytes for graph in self._graphs.values())
