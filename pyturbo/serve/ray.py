"""The application on many machines, with Ray Serve. It needs the extra `ray`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, ReplicaID, ReplicaResult, RequestRouter, RunningReplica
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message

from pyturbo._arguments import index
from pyturbo.serve.access import Access, route_path
from pyturbo.serve.replicas.in_process import messages_of, passed_on
from pyturbo.serve.replicas.prefixes import Prefixes, blocks_of
from pyturbo.serve.replies.sse import event
from pyturbo.serve.requests.body import read_all
from pyturbo.serve.requests.request_error import RequestError
from pyturbo.serve.settings import Settings

_ATTEMPTS = 3
_LOST = RequestError("api_error", "the machine that wrote this reply was lost", status=503)


@dataclass(frozen=True)
class Forwarded:
    """A request on its way to a replica.

    Attributes:
        blocks: Hashes of its prompt, by which a replica is chosen.
    """

    scope: dict[str, Any] = field(repr=False)
    body: bytes = field(repr=False)
    blocks: Sequence[int] = field(default=(), repr=False)


class PrefixRouter(RequestRouter):  # type: ignore[misc]
    """Sends a request to the replica that has read most of its prompt, unless that one is full."""

    def initialize_state(self) -> None:
        self._prefixes = Prefixes()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the replicas in the order in which they are asked."""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        best = self._prefixes.best(_blocks(pending_request), {*replicas})
        if best is None:
            return [candidate_replicas]
        others = [replica for name, replica in replicas.items() if name != best]
        return [[replicas[best]], others] if others else [[replicas[best]]]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult
    ) -> None:
        """Remember where a prompt is read."""
        self._prefixes.note(_blocks(pending_request), replica_id.unique_id)


def _blocks(pending: PendingRequest | None) -> Sequence[int]:
    given = pending.args[0] if pending is not None and pending.args else None
    return given.blocks if isinstance(given, Forwarded) else ()


class Worker:
    """A replica: the application in a process of its own."""

    def __init__(self, make_app: Callable[[], ASGIApp]) -> None:
        self._app = make_app()

    async def answer(self, request: Forwarded) -> AsyncGenerator[Message, None]:
        """Yield the messages of the response."""
        scope = {**request.scope, "app": self._app, "state": {}}
        messages = messages_of(self._app, scope, request.body)
        try:
            async for message in messages:
                yield message
        finally:
            await messages.aclose()


class Front:
    """Gives each request to a replica, and to another one if that is lost before it has answered."""

    def __init__(self, workers: DeploymentHandle, settings: Settings) -> None:
        self._workers, self._settings = workers.options(stream=True), settings
        self._access = Access(self, settings)  # type: ignore[arg-type]

    async def __call__(self, request: Request) -> Response:
        """Answer a request, unless it is one that every replica would refuse."""
        path = route_path(request.scope)
        try:
            self._access.check(request.method, path, request.headers)
            body = await read_all(request, self._settings)
        except RequestError as error:
            return error.response(path, self._settings.retry_seconds)
        return await self._answer(request, path, body, await asyncio.to_thread(blocks_of, body))

    async def _answer(self, request: Request, path: str, body: bytes, blocks: Sequence[int]) -> Response:
        try:
            start, first, rest = await self._begun(Forwarded(passed_on(request.scope), body, blocks))
        except BackPressureError:
            busy = RequestError("overloaded_error", "too many requests wait already", code="queue_full")
            return busy.response(path, self._settings.retry_seconds)
        except (RayActorError, DeploymentUnavailableError):
            return _LOST.response(path, self._settings.retry_seconds)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        if not first.get("more_body"):
            return Response(first.get("body", b""), start["status"], headers)
        return StreamingResponse(_pieces(path, first, rest), start["status"], headers)

    async def _begun(self, forwarded: Forwarded) -> tuple[Message, Message, Any]:
        """Return the first two messages of a response, and the rest of them."""
        for attempt in range(_ATTEMPTS):
            messages = self._workers.answer.remote(forwarded)
            try:
                return await messages.__anext__(), await messages.__anext__(), messages
            except RayActorError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


async def _pieces(path: str, first: Mapping[str, Any], rest: Any) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a response; a client that goes away ends it."""
    ended = False
    try:
        yield first["body"]
        async for message in rest:
            yield message.get("body", b"")
        ended = True
    except RayActorError:
        ended = True
        yield event(_LOST.body(path), "error" if path.startswith("/v1/messages") else None)
    finally:
        if not ended:
            rest.cancel()


def application(
    make_app: Callable[[], ASGIApp],
    settings: Settings | None = None,
    *,
    fronts: int = 1,
    min_replicas: int = 1,
    max_replicas: int = 1,
    requests: int = 40,
    busy_requests: int = 8,
    queue: int = 64,
    actor: Mapping[str, Any] | None = None,
) -> serve.Application:
    """Return a Ray Serve application whose replicas are what `make_app` makes, such as `create_app`.

    `settings` are those of the application: who may use it, and how large bodies may be. `fronts` is how many
    processes take requests; two survive the loss of a machine.

    A replica takes up to `requests` at once, which should be the slots and the queue of its engine; `queue`
    more wait for one. Replicas are added when they have more than `busy_requests` on average. `actor` are
    Ray's options of each replica, such as `{"num_cpus": 16}` or `{"num_gpus": 1}`.
    """
    least = index("application: min_replicas", min_replicas, least=1)
    worker = serve.deployment(
        Worker,
        max_ongoing_requests=index("application: requests", requests, least=1),
        max_queued_requests=index("application: queue", queue, least=1),
        autoscaling_config=AutoscalingConfig(
            min_replicas=least,
            max_replicas=index("application: max_replicas", max_replicas, least=least),
            target_ongoing_requests=index("application: busy_requests", busy_requests, least=1),
        ),
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
        ray_actor_options=dict(actor or {}),
    )
    front = serve.deployment(
        Front,
        max_ongoing_requests=1024,
        num_replicas=index("application: fronts", fronts, least=1),
        ray_actor_options={"num_cpus": 0},
    )
    return front.bind(worker.bind(make_app), Settings() if settings is None else settings)
