"""GET /v1/models."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from pyturbo.serve.server_state import State, state_of


async def models(request: Request) -> JSONResponse:
    """List all models, loaded or not."""
    state = state_of(request)
    return JSONResponse({"object": "list", "data": [_model(state, name) for name in state.shelf.names]})


async def model(request: Request) -> JSONResponse:
    """Describe one model."""
    state = state_of(request)
    return JSONResponse(_model(state, state.shelf.source(request.path_params["name"]).name))


def _model(state: State, name: str) -> dict[str, Any]:
    """Describe a model, with what is known only of one that is loaded."""
    described: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "pyturbo"}
    for served in state.shelf.served:
        if served.name == name:
            described["created"] = served.loaded
            described["max_context"] = served.model.max_context
            described["chat"] = served.chats
    return described | {"loaded": described["created"] > 0}
