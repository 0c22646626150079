"""GET /v1/models."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from pyturbo.serve.server_state import State, state_of


async def models(request: Request) -> JSONResponse:
    """List all models, loaded or not, as OpenAI does or as Anthropic does."""
    state = state_of(request)
    found = [_described(request, state, name) for name in state.shelf.names]
    if not _is_anthropic(request):
        return JSONResponse({"object": "list", "data": found})
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]}
    return JSONResponse({"data": found, "has_more": False, **ends})


async def model(request: Request) -> JSONResponse:
    """Describe one model."""
    state = state_of(request)
    return JSONResponse(_described(request, state, state.shelf.source(request.path_params["name"]).name))


def _is_anthropic(request: Request) -> bool:
    """Return whether a request is one of a client of Anthropic, which all have this header."""
    return "anthropic-version" in request.headers


def _described(request: Request, state: State, name: str) -> dict[str, Any]:
    described = _model(state, name)
    if not _is_anthropic(request):
        return described
    created = datetime.fromtimestamp(described["created"], timezone.utc).isoformat()
    return {"type": "model", "id": name, "display_name": name, "created_at": created}


def _model(state: State, name: str) -> dict[str, Any]:
    """Describe a model, with what is known only of one that is loaded."""
    described: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "pyturbo"}
    for served in state.shelf.served:
        if served.name == name:
            described["created"] = served.loaded
            described["max_context"] = served.model.max_context
            described["chat"] = served.chats
    return described | {"loaded": described["created"] > 0}
