"""A program: a Ray cluster of two nodes on this machine, each with a replica that serves the bundled model.

It prints its URL, and ends when its standard input does. Responses name the process that wrote them.
"""

from __future__ import annotations

import os
import sys

os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"  # on a busy machine five seconds are too few

import ray
from ray import serve
from ray.cluster_utils import Cluster
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import pyturbo
from pyturbo.serve import Shelf, Source, create_app
from pyturbo.serve.ray import application


class Signed:
    """Adds the number of this process to responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-process", str(os.getpid()).encode())]
            await send(message)

        await self._app(scope, receive, signed)


def make_app() -> ASGIApp:
    """Return what each replica runs."""

    def load() -> pyturbo.Model:
        return pyturbo.load(device="cpu", threads=1, prefix_cache="64MB")

    app = create_app(Shelf([Source("stories", load)], pyturbo.Engine))
    app.add_middleware(Signed)
    return app


def main(port: int) -> None:
    node = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(application(make_app, min_replicas=2, max_replicas=2, actor={"num_cpus": 1}), name="stories")
    print(f"http://127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
