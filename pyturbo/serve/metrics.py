"""GET /metrics: what a server does, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyturbo.batching import Stream
from pyturbo.serve.access import route_path
from pyturbo.serve.shelf import Served

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)


class Metrics:
    """Counts and times of a server, each in a registry of its own."""

    def __init__(self, served: Callable[[], Iterable[Served]]) -> None:
        """Take what lists the models that are loaded, which are asked when somebody asks for the metrics."""
        self.registry = CollectorRegistry()
        self.registry.register(_Models(served))
        self.requests = Counter(
            "pyturbo_requests", "Requests by path and status.", ("path", "status"), registry=self.registry
        )
        model = ("model",)
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts that were read.")
        self._cached = self._counter("cached_tokens", "Tokens of prompts that were known already.")
        self._tokens = self._counter("reply_tokens", "Tokens of replies.")
        self._embedded = self._counter("embedded_tokens", "Tokens of texts that became vectors.")
        self._queued = Histogram(
            "pyturbo_queued_seconds", "Time before a prompt is read.", model, buckets=_SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self._first = Histogram(
            "pyturbo_first_token_seconds", "Time from the request to its first token.", model,
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._step = Histogram(
            "pyturbo_token_seconds", "Mean time of a token after the first, by reply.", model,
            buckets=_TOKEN_SECONDS, registry=self.registry,
        )  # fmt: skip

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"pyturbo_{name}", text, ("model",), registry=self.registry)

    def note(self, model: str, streams: Sequence[Stream]) -> None:
        """Count the replies to one request, which have ended."""
        for stream in streams:
            stats = stream.stats
            self._prompt.labels(model).inc(stats.prompt_tokens)
            self._cached.labels(model).inc(stats.cached_tokens)
            self._tokens.labels(model).inc(stats.tokens)
            queued = stream.queued_seconds
            if queued is not None:
                self._queued.labels(model).observe(queued)
            if queued is not None and stats.tokens:
                self._first.labels(model).observe(queued + stats.prefill_seconds)
            if stats.tokens > 1:
                self._step.labels(model).observe(stats.decode_seconds / (stats.tokens - 1))

    def note_embedded(self, model: str, tokens: int) -> None:
        """Count the texts of one request for embeddings."""
        self._embedded.labels(model).inc(tokens)


class _Models:
    """Asks the models that are loaded what they do at this moment."""

    def __init__(self, served: Callable[[], Iterable[Served]]) -> None:
        self._served = served

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        label = ["model"]
        running = GaugeMetricFamily("pyturbo_running", "Conversations under way.", labels=label)
        waiting = GaugeMetricFamily("pyturbo_waiting", "Replies that have not begun.", labels=label)
        state = GaugeMetricFamily("pyturbo_state_bytes", "Memory of conversations.", labels=label)
        prefix = GaugeMetricFamily("pyturbo_prefix_bytes", "Memory of known prompts.", labels=label)
        steps = CounterMetricFamily("pyturbo_steps", "Steps of all conversations together.", labels=label)
        busy = CounterMetricFamily("pyturbo_busy_seconds", "Time with something to do.", labels=label)
        hits = CounterMetricFamily("pyturbo_expert_hits", "Experts found in memory.", labels=label)
        misses = CounterMetricFamily("pyturbo_expert_misses", "Experts read from disk.", labels=label)
        for served in self._served():
            engine, model, name = served.engine, served.model, [served.name]
            usage = engine.usage
            running.add_metric(name, engine.running)
            waiting.add_metric(name, engine.waiting)
            state.add_metric(name, engine.state_bytes)
            steps.add_metric(name, usage.steps)
            busy.add_metric(name, usage.busy_seconds)
            if model.prefix_store is not None:
                prefix.add_metric(name, model.prefix_store.nbytes)
            use = model.runner.expert_use()
            if use is not None:
                hits.add_metric(name, use.hits)
                misses.add_metric(name, use.misses)
        yield from (running, waiting, state, prefix, steps, busy, hits, misses)


class Counted:
    """Counts the requests of a server by path and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Iterable[str]) -> None:
        """Take the paths that are counted by name; all others are one."""
        self._app, self._metrics, self._paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope)
        path = path if path in self._paths else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(path, message["status"]).inc()
            await send(message)

        await self._app(scope, receive, counted)


async def metrics(request: Request) -> Response:
    """Return all counts."""
    registry = request.app.state.shared.metrics.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
