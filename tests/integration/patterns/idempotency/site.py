"""A shop for real servers:    LEASEHOLD_URL=... JOURNAL=... uvicorn tests.integration.patterns.idempotency.site:app

Each payment is a line in the journal, made when it begins; ``?pause=`` is how long it takes, and it waits until the
file ``?gate=`` is there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import leasehold
from leasehold.patterns.idempotency import GLOBAL, IdempotencyMiddleware
from tests.support.patterns.tools import note

JOURNAL = os.environ["JOURNAL"]


async def pay(request: Request) -> Response:
    """The effect, and then some time."""
    body = await request.body()
    note(JOURNAL, f"{request.query_params['id']} {os.getpid()}")
    await asyncio.sleep(float(request.query_params.get("pause", 0)))
    while (gate := request.query_params.get("gate")) and not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110  # made by the test
        await asyncio.sleep(0.005)
    answer = {"paid": body.decode(), "by": os.getpid()}
    return JSONResponse(answer, 201, background=BackgroundTask(note, JOURNAL, f"{request.query_params['id']} after"))


async def stream(request: Request) -> Response:
    """A response in parts."""

    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield f"{number}\n".encode()
            await asyncio.sleep(0.001)

    note(JOURNAL, f"{request.query_params['id']} {os.getpid()}")
    return StreamingResponse(parts())


async def up(request: Request) -> Response:
    """Here I am."""
    return Response()


app = Starlette(
    routes=[Route("/pay", pay, methods=["POST"]), Route("/stream", stream, methods=["POST"]), Route("/", up)],
    middleware=[Middleware(IdempotencyMiddleware, hold=leasehold.aio.connect(), caller=GLOBAL, ttl=1.5)],
)
