"""The models of a server: loaded when they are asked for, closed when their memory is needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pyturbo._messages import shown, size
from pyturbo.batching import Engine
from pyturbo.errors import ArgumentError, StateError, TurboError
from pyturbo.model import Model
from pyturbo.serve.request_error import RequestError, log


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
        users: Requests under way.
        preparing: Of these, the ones that are no replies yet.
        used: When the last one began, as `time.monotonic` has it.
        loaded: When it was loaded, in seconds since 1970.
    """

    source: Source
    model: Model
    engine: Engine
    users: int = 0
    preparing: int = 0
    used: float = 0.0
    loaded: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        return self.source.name

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
        self._loading, self._closed = asyncio.Lock(), False

    @property
    def served(self) -> list[Served]:
        """The models that are loaded."""
        return [*self._served.values()]

    def source(self, name: str | None) -> Source:
        """Return a model that may not be loaded yet. A name that is not known is a error."""
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
        served = await self._taken(self.source(name))
        try:
            yield served
        finally:
            served.users -= 1

    async def _taken(self, source: Source) -> Served:
        served = self._served.get(source.name)
        if served is None:
            async with self._loading:
                served = self._served.get(source.name) or await self._loaded(source)
        served.users += 1
        served.used = time.monotonic()
        return served

    async def _loaded(self, source: Source) -> Served:
        self._require_open()
        await self._make_room(source)
        log.info("loading %s", source.name)
        try:
            model = await asyncio.to_thread(source.load)
        except TurboError as error:
            message = f"{source.name} cannot be loaded: {error}"
            raise RequestError("api_error", message, status=503) from error
        try:
            self._require_open()
            self.place(source.name, model)
        except BaseException:
            model.close()
            raise
        return self._served[source.name]

    def _require_open(self) -> None:
        if self._closed:
            raise StateError("the server is shutting down")

    async def _make_room(self, source: Source) -> None:
        """Close models that nobody uses, the one that waited longest first, until this one fits."""
        while self._memory is not None and source.nbytes + self._taken_bytes() > self._memory:
            idle = [served for served in self._served.values() if not served.users]
            if not idle:
                raise RequestError("overloaded_error", "other models are in use, and leave no memory for it")
            oldest = min(idle, key=lambda served: served.used)
            log.info("closing %s", oldest.name)
            del self._served[oldest.name]
            await asyncio.to_thread(oldest.close)

    def _taken_bytes(self) -> int:
        return sum(served.source.nbytes for served in self._served.values())

    async def close(self) -> None:
        """Close all models, and load no more: replies under way end with a StateError."""
        self._closed = True
        served, self._served = self.served, {}
        for each in served:
            await asyncio.to_thread(each.close)
