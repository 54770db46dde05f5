"""A service with counters, behind a guard at its door. One process, and a guard in its memory.

uvicorn tests.model.stale_owner.service:app

GET /NAME            the counter; with a fence, it is presented first
PUT /NAME            {"value": 1, "note": "..."}: needs a fence
GET /NAME?history    every write, in order
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from leasehold.guards.http import FencingMiddleware, fencing
from leasehold.guards.memory import FenceGuard

values: dict[str, int] = defaultdict(int)
writes: dict[str, list[tuple[int, int, str]]] = defaultdict(list)


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """One request. Its body may come late: the door keeps newer owners out until it has."""
    if scope["type"] == "lifespan":
        return
    name = scope["path"][1:]
    if scope["method"] == "PUT":
        body = await whole(receive)
        if body is None:
            return
        sent = json.loads(body)
        values[name] = sent["value"]
        writes[name].append((fencing(scope).fence, sent["value"], sent["note"]))
    answer: Any = writes[name] if scope["query_string"] == b"history" else values[name]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def whole(receive: Any) -> bytes | None:
    """The body; None when its sender has died before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


app = FencingMiddleware(serve, FenceGuard())
