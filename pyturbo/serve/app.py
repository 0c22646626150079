"""The application: paths, and what stands before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyturbo.errors import TurboError
from pyturbo.serve.access import Access, allowed_origins, route_path
from pyturbo.serve.anthropic.messages import count_tokens, messages
from pyturbo.serve.health import health
from pyturbo.serve.metrics import Counted, Metrics, metrics
from pyturbo.serve.openai.chat import chat_completions
from pyturbo.serve.openai.completions import completions
from pyturbo.serve.openai.embeddings import embeddings
from pyturbo.serve.openai.models import model, models
from pyturbo.serve.openai.responses import responses, stored_response
from pyturbo.serve.page import routes as page_routes
from pyturbo.serve.requests.body import given_fields
from pyturbo.serve.requests.request_error import RequestError, request_error_of
from pyturbo.serve.server_state import State, state_of
from pyturbo.serve.settings import Settings
from pyturbo.serve.shelf import Shelf
from pyturbo.serve.tokens import detokenize, tokenize

ROUTES = (
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/responses/{name}", stored_response, methods=["GET", "DELETE"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/v1/models", models),
    Route("/v1/models/{name:path}", model),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/health", health),
    Route("/metrics", metrics),
)


def create_app(shelf: Shelf, settings: Settings | None = None) -> Starlette:
    """Return an ASGI application that serves the models of a shelf, which it closes at its end.

    Examples:
        >>> from pyturbo.serve import Shelf, Source, create_app
        >>> shelf = Shelf([Source("stories", pyturbo.load)], pyturbo.Engine)
        >>> from starlette.testclient import TestClient
        >>> with TestClient(create_app(shelf)) as client:
        ...     asked = {"prompt": "Once upon a", "max_tokens": 3}
        ...     client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        ' time, there'
    """
    settings = Settings() if settings is None else settings
    state = State(settings, shelf, Metrics(lambda: shelf.served))

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await shelf.close()

    before = [
        Middleware(Counted, metrics=state.metrics, paths=[route.path for route in ROUTES]),
        Middleware(Access, settings=settings),
    ]
    if settings.origins:
        allowed = {"allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        before.insert(0, Middleware(CORSMiddleware, allow_origins=allowed_origins(settings), **allowed))  # type: ignore[arg-type]
    handlers = dict.fromkeys((RequestError, TurboError, HTTPException, Exception), _failed)
    app = Starlette(
        routes=[*ROUTES, *page_routes()], middleware=before, exception_handlers=handlers, lifespan=life
    )
    app.state.shared = state
    return app


async def _failed(request: Request, error: Exception) -> Response:
    """Tell the client why its request failed, in the form that it expects."""
    if isinstance(error, HTTPException):
        kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
        message = f"{request.method} {request.url.path}: {error.detail.lower()}"
        found, headers = RequestError(kind, message, status=error.status_code), error.headers
    else:
        scope = request.scope
        found, headers = request_error_of(error, route_path(scope), given_fields(scope)), None
    response = found.response(route_path(request.scope), state_of(request).settings.retry_seconds)
    response.headers.update(headers or {})
    return response
