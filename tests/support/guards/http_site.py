"""A guarded service for real servers:

    uvicorn tests.support.guards.http_site:asgi
    gunicorn tests.support.guards.http_site:wsgi

Both keep a counter that is read, thought about for ``?pause=`` seconds and until the file ``?gate=`` is there, and
written. ``/state`` and ``/fresh`` need no token: what there is, and begin anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from leasehold.guards import memory
from leasehold.guards.guard import BaseGuard
from leasehold.guards.http import FencingMiddleware, WSGIFencingMiddleware, fencing
from leasehold.guards.http.admission import ActiveRequests


class Guard(BaseGuard):
    """One that a test can have anew."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        super().__init__(downstream="site")
        self.now = memory.FenceGuard()

    def check(self, *args: Any, **more: Any) -> None:
        """The present one's word."""
        self.now.check(*args, **more)


class State:
    """What the site keeps."""

    def __init__(self) -> None:
        self.guard = Guard()
        self.value = 0
        self.writes: list[int] = []

    def write(self, value: int, fence: int) -> None:
        """The second half of what a handler does."""
        self.value = value
        self.writes.append(fence)

    def fresh(self) -> None:
        """As at the beginning."""
        self.guard.now, self.value, self.writes = memory.FenceGuard(), 0, []

    def told(self, inside: ActiveRequests) -> dict[str, Any]:
        """All of it."""
        return {"value": self.value, "writes": self.writes, "inside": len(inside)}


state = State()


# ---------------------------------------------------------------- ASGI


async def add_one(request: Request) -> Response:
    """Read, think, write."""
    before = state.value
    await asyncio.sleep(float(request.query_params.get("pause", 0)))
    while (gate := request.query_params.get("gate")) and not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110  # made by the test
        await asyncio.sleep(0.005)
    state.write(before + 1, fencing(request).fence)
    return JSONResponse({"value": before + 1})


async def upload(request: Request) -> Response:
    """Take all of it, and write: how much was sent."""
    body = await request.body()
    state.write(state.value + 1, fencing(request).fence)
    return JSONResponse({"size": len(body)})


async def stream(request: Request) -> Response:
    """A response that goes on and on, and writes at its end."""
    fence, size = fencing(request).fence, int(request.query_params.get("size", 1000))

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(int(request.query_params.get("chunks", 3))):
            yield b"x" * size
            await asyncio.sleep(0.01)
        state.write(state.value + 1, fence)

    return StreamingResponse(chunks())


async def tell(request: Request) -> Response:
    """What there is."""
    return JSONResponse(state.told(asgi._admission.active))


async def anew(request: Request) -> Response:
    """A guard that has seen nothing."""
    state.fresh()
    return JSONResponse({})


async def read(request: Request) -> Response:
    """Of a holder, or of anybody."""
    return JSONResponse({"value": state.value})


asgi = FencingMiddleware(
    Starlette(
        routes=[
            Route("/reports/42", add_one, methods=["POST"]),
            Route("/reports/42", read, methods=["GET"]),
            Route("/upload", upload, methods=["POST"]),
            Route("/stream", stream, methods=["POST"]),
            Route("/state", tell),
            Route("/fresh", anew),
        ]
    ),
    state.guard,
    wait=6,
)


# ---------------------------------------------------------------- WSGI


def _wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
    path, asked = environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", ""))
    answer: dict[str, Any] = {}
    if path == "/state":
        answer = state.told(wsgi._admission.active)
    elif path == "/fresh":
        state.fresh()
    elif path == "/upload":
        answer = {"size": len(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))}
    elif environ["REQUEST_METHOD"] == "POST":
        before = state.value
        threading.Event().wait(float(asked.get("pause", ["0"])[0]))
        while "gate" in asked and not os.path.exists(asked["gate"][0]):  # noqa: PTH110  # made by the test
            threading.Event().wait(0.005)
        state.write(before + 1, fencing(environ).fence)
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


wsgi = WSGIFencingMiddleware(_wsgi, state.guard)
