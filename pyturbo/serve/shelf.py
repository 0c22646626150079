"""The models of a server: loaded when they are asked for, closed when their memory is needed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pyturbo._messages import shown, size
from pyturbo.batching import Engine
from pyturbo.errors import ArgumentError, StateError, TurboError
from pyturbo.model import Model
from pyturbo.serve.requests.request_error import RequestError, log

MOST_PREPARING = 64  # requests of a model whose templates and grammars are at work, or wait for that


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
        name: The name that requests give.
        load: Loads it, in a thread of its own.
        nbytes: The memory that it takes when it is loaded.
    """

    name: str
    load: Callable[[], Model]
    nbytes: int = 0


@dataclass(eq=False)
class Served:
    """A model that is loaded, and the engine that runs its replies.

    Attributes:
        preparing: Requests under way that are no replies yet.
        embeddings: Those that have texts read; each holds `embedding` for a text.
        used: When the last one ended, as `time.monotonic` has it.
        loaded: When it was loaded, in seconds since 1970.
    """

    source: Source
    model: Model
    engine: Engine
    preparing: int = 0
    embeddings: int = 0
    embedding: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = 0.0
    loaded: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def usable(self) -> bool:
        """Whether it can reply, with files that are as they were. If not, it is loaded again."""
        return self.engine.alive and not self.model.runner.origin.changed

    @property
    def full(self) -> bool:
        """Whether no further reply may wait, or as many requests are prepared as may be."""
        return self.engine.full or self.preparing >= MOST_PREPARING

    @property
    def fingerprint(self) -> str:
        """A short text that changes with the weights."""
        return f"fp_{self.model.fingerprint[:12]}"

    @property
    def chats(self) -> bool:
        """Whether it replies to messages; every model continues text."""
        return self.model.has_tokenizer and self.model.tokenizer.chat_template is not None

    def close(self) -> None:
        """End its replies, and give back its memory."""
        self.engine.close()
        self.model.close()


def load_source(source: Source) -> Model:
    """Load a model, and hash its weights, which takes a while, too, and which every reply says.

    A tokenizer that cannot be used is an error now, not that of every request. Without one, ids can be read.
    """
    model = source.load()
    try:
        model.tokenizer if model.has_tokenizer else None  # noqa: B018
    except BaseException:
        model.close()
        raise
    model.fingerprint  # noqa: B018
    return model


async def _close(models: Sequence[Served]) -> None:
    """Close models, all of them, whichever fails to."""
    for served in models:
        log.info("closing %s", served.name)
    ends = (asyncio.to_thread(served.close) for served in models)
    for error in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(error, BaseException):
            raise error


class Shelf:
    """Models by name. The first one is used where a request names none.

    All methods are for one event loop.

    Attributes:
        names: Of all models, in the order in which they were given.
    """

    def __init__(
        self, sources: Iterable[Source], engine: Callable[[Model], Engine], memory: int | None = None
    ) -> None:
        """Take what makes the engine of a model, and the bytes that all models may take together."""
        self._sources: dict[str, Source] = {}
        for source in sources:
            if source.name in self._sources:
                raise ArgumentError(f"Shelf: expected another name than {shown(source.name)}, got it twice")
            if memory is not None and source.nbytes > memory:
                raise ArgumentError(
                    f"Shelf: {source.name}: expected at most {size(memory)}, the memory of all models, "
                    f"got {size(source.nbytes)}"
                )
            self._sources[source.name] = source
        if not self._sources:
            raise ArgumentError("Shelf: expected at least one model, got none")
        self.names = tuple(self._sources)
        self._engine, self._memory = engine, memory
        self._served: dict[str, Served] = {}
        self._users: Counter[str] = Counter()  # requests that use a model, or wait until it is loaded
        self._loading, self._closed = asyncio.Lock(), False
        self._loads: dict[str, asyncio.Task[None]] = {}

    @property
    def served(self) -> list[Served]:
        """The models that are loaded."""
        return [*self._served.values()]

    def source(self, name: str | None) -> Source:
        """Return a model that may not be loaded yet. A name that is not known is an error."""
        source = self._sources.get(self.names[0] if name is None else name)
        if source is None:
            raise RequestError(
                "not_found_error",
                f"model: expected one of {', '.join(self.names)}, got {shown(name)}",
                param="model",
                code="model_not_found",
            )
        return source

    def place(self, name: str, model: Model) -> None:
        """Put a model that is loaded already in its place."""
        self._served[name] = Served(self.source(name), model, self._engine(model))

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Served]:
        """Give a model to a request, loaded if need be. It is not closed meanwhile."""
        source = self.source(name)
        self._users[source.name] += 1
        try:
            while (served := self._served.get(source.name)) is None or not served.usable:
                await asyncio.shield(self._load(source))  # others may wait for it, whoever goes away
            try:
                yield served
            finally:
                served.used = time.monotonic()
        finally:
            self._users[source.name] -= 1

    def users(self, name: str) -> int:
        """Return how many requests use a model, or wait for it."""
        return self._users[name]

    def _load(self, source: Source) -> asyncio.Task[None]:
        """Return what loads a model, for all who wait for it."""
        if source.name not in self._loads:
            self._loads[source.name] = task = asyncio.ensure_future(self._loaded(source))
            task.add_done_callback(lambda _: self._loads.pop(source.name))
        return self._loads[source.name]

    async def _loaded(self, source: Source) -> None:
        async with self._loading:
            self._require_open()
            if (failed := self._served.pop(source.name, None)) is not None:
                await asyncio.to_thread(failed.close)
            await self._make_room(source)
            await self._place_new(source)

    async def _place_new(self, source: Source) -> None:
        log.info("loading %s", source.name)
        try:
            model = await asyncio.to_thread(load_source, source)
        except TurboError as error:
            message = f"{source.name} cannot be loaded: {error}"
            raise RequestError("api_error", message, status=503) from error
        try:
            self._require_open()
            self.place(source.name, model)
        except BaseException:
            model.close()
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise StateError("the server is shutting down")

    async def _make_room(self, source: Source) -> None:
        """Close models that nobody uses, the one that waited longest first, until this one fits."""
        if self._memory is None:
            return
        too_many = sum(served.source.nbytes for served in self.served) + source.nbytes - self._memory
        idle = [served for served in self.served if not self.users(served.name)]
        idle.sort(key=lambda served: served.used)
        closed: list[Served] = []
        while too_many > 0 and idle:
            closed.append(idle.pop(0))
            too_many -= closed[-1].source.nbytes
        if too_many > 0:
            raise RequestError("overloaded_error", "other models are in use, and leave no memory for it")
        for served in closed:  # before the first wait, during which somebody might ask for one of them
            del self._served[served.name]
        await _close(closed)

    async def close(self) -> None:
        """Close all models, and load no more: replies under way end with a StateError."""
        self._closed = True
        served, self._served = self.served, {}
        await _close(served)
