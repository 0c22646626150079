"""GET /health."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from pyturbo.serve.server_state import state_of


async def health(request: Request) -> JSONResponse:
    """Say whether the server can reply, and how busy it is."""
    served = state_of(request).shelf.served
    well = all(each.engine.alive for each in served)
    return JSONResponse(
        {
            "status": "ok" if well else "failed",
            "models": [each.name for each in served],
            "running": sum(each.engine.running for each in served),
            "waiting": sum(each.engine.waiting for each in served),
        },
        200 if well else 503,
    )
