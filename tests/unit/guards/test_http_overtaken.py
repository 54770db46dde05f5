"""A client that hangs while a newer owner waits: its request ends, and nobody who is at work is interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasehold.guards.http import FencingMiddleware, fencing
from leasehold.guards.http.admission import ActiveRequest, ActiveRequests
from leasehold.guards.memory import FenceGuard
from tests.support.guards.http_tools import B, request, token

HALF, REST = ({"type": "http.request", "body": b"half", "more_body": more} for more in (True, False))
LONG, SHORT = 30.0, 0.05  # a patience that does not end during a test, and one that does

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Gone(Exception):
    """What a framework makes of http.disconnect."""


class Watched(ActiveRequests):
    """A register that says when somebody has to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()

    def wait_for_earlier(self, visit: ActiveRequest, wake: Callable[[], None]) -> bool:
        """Those that are waited for have been told."""
        free = super().wait_for_earlier(visit, wake)
        if not free:
            self.waits.set()
        return free


class Save:
    """Reads all of its body, and writes. What it has heard, and who has written."""

    def __init__(self, patience: float | None = None, wait: float = 20) -> None:
        self.middleware = FencingMiddleware(self.app, FenceGuard(), wait=wait)
        if patience is not None:
            self.middleware._patience = patience
        self.inside = self.middleware._admission.active = Watched()
        self.heard: list[str] = []
        self.writes: list[int] = []
        self.work: Callable[[Receive], Awaitable[object]] | None = None  # between the body of fence 11 and its write

    async def app(self, scope: Any, receive: Receive, send: Send) -> None:
        """The handler."""
        more, fence = True, fencing(scope).fence
        while more:
            message = await receive()
            self.heard.append(message["type"])
            if message["type"] == "http.disconnect":
                raise Gone
            more = message["more_body"]
        if self.work is not None and fence == 11:
            await self.work(receive)
        self.writes.append(fence)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"saved"})

    async def older(self, receive: Receive, send: Send | None = None) -> None:
        """The request of A, through a connection of the test's own."""
        fields = [(name.lower().encode(), value.encode()) for name, value in token(11)]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": fields}
        await self.middleware(scope, receive, send or taken)

    async def newer(self, fence: int = 12) -> int:
        """The request of B, whose client is well: its status."""
        return (await request(self.middleware, "POST", token(fence, owner=B))).status

    async def at_the_door(self) -> None:
        """Until B has lined up behind A, which has been told."""
        async with asyncio.timeout(10):
            await self.inside.waits.wait()

    def empty(self) -> bool:
        """Is nobody left inside?"""
        return len(self.inside) == 0 and not self.inside._requests


class Line:
    """What a server gives to ``receive``: as much as was sent, and then it hangs."""

    def __init__(self, *messages: Any) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.hangs = asyncio.Event()
        self.sent(*messages)

    def sent(self, *messages: Any) -> None:
        """By the client."""
        for message in messages:
            self.queue.put_nowait(message)

    async def receive(self) -> Any:
        """The next message."""
        if self.queue.empty():
            self.hangs.set()
        return await self.queue.get()


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So much time has gone by, for everybody on this loop."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


async def taken(_: Any) -> None:
    """By a client that reads."""


async def test_half_a_body_keeps_no_newer_owner_out() -> None:
    """A is frozen in the middle of its body. B comes, A's handler hears that its client has gone, and B goes in."""
    service, line = Save(SHORT), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    assert await service.newer() == 200
    with pytest.raises(Gone):
        await older
    assert service.writes == [12] and service.empty()
    assert service.heard == ["http.request", "http.disconnect", "http.request"]


async def test_it_stays_gone() -> None:
    """A handler that asks again hears the same, even when the rest of the body has come in the meantime."""
    service, line = Save(SHORT), Line(HALF)
    again: list[str] = []

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if fencing(scope).fence == 11:
            while (await receive())["type"] != "http.disconnect":
                pass
            line.sent(REST)
            again.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    service.middleware.app = app
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    assert await service.newer() == 200
    await older
    assert again == ["http.disconnect"] and service.empty()


async def test_nobody_is_hurried_without_a_newer_owner() -> None:
    """A slow client may be slow, whatever its own holder sends besides, and whatever older owners try."""
    service, line = Save(patience=0), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    answers = [await request(service.middleware, "POST", token(fence)) for fence in (11, 10)]
    assert [one.status for one in answers] == [200, 409] and not older.done()
    line.sent(REST)
    await older
    assert service.writes == [11, 11] and service.empty()


async def test_a_body_that_comes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A was slow and not frozen, for long before B came: its work is done, and B's comes after it."""
    service, line = Save(LONG), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    later(monkeypatch, 2 * LONG)
    newer = asyncio.create_task(service.newer())
    await service.at_the_door()
    line.hangs.clear()
    line.sent(HALF)
    await line.hangs.wait()
    line.sent(REST)
    assert await newer == 200
    await older
    assert service.writes == [11, 12] and service.empty()


async def test_byte_by_byte_is_not_in_time() -> None:
    """Each piece comes soon, and the whole never: the patience is for all of it."""
    service, begun, pieces = Save(patience=0.2), asyncio.Event(), list[bool]()

    async def receive() -> Any:
        begun.set()
        await asyncio.sleep(0.01)
        pieces.append(service.inside.waits.is_set())
        return HALF if pieces.count(True) < 50 else REST

    older = asyncio.create_task(service.older(receive))
    await begun.wait()
    assert await service.newer() == 200
    with pytest.raises(Gone):
        await older
    assert service.writes == [12] and service.empty()


async def test_a_handler_that_is_at_work_is_not_interrupted() -> None:
    """It has its whole body, and listens whether its client goes. It hears nothing of B, which waits for its write."""
    service, line = Save(patience=0), Line(HALF, REST)
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def work(receive: Receive) -> None:
        listening = asyncio.ensure_future(receive())
        at_work.set()
        await go_on.wait()
        assert not listening.done()
        line.sent({"type": "http.disconnect"})
        assert (await listening)["type"] == "http.disconnect"

    service.work = work
    older = asyncio.create_task(service.older(line.receive))
    await at_work.wait()
    newer = asyncio.create_task(service.newer())
    await service.at_the_door()
    await asyncio.sleep(SHORT)
    assert not newer.done() and service.writes == []
    go_on.set()
    assert await newer == 200
    await older
    assert service.writes == [11, 12] and service.empty()


async def test_work_is_no_wait_for_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was overtaken and took long can still answer: its patience with the client has not been used."""
    service, line, answered, tasks = Save(LONG, wait=10 * LONG), Line(REST), list[str](), list[asyncio.Task[int]]()

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        answered.append(message["type"])

    async def work(_: Receive) -> None:
        tasks.append(asyncio.create_task(service.newer()))
        await service.at_the_door()
        await asyncio.sleep(0)
        later(monkeypatch, 2 * LONG)

    service.work = work
    await service.older(line.receive, send)
    assert answered == ["http.response.start", "http.response.body"]
    assert await tasks[0] == 200 and service.writes == [11, 12] and service.empty()


async def test_an_answer_is_taken_even_where_nobody_waits() -> None:
    """With wait=0, too, a client is not taken for one that hangs because its answer takes a turn of the loop."""
    service, line, answered = Save(wait=0), Line(REST), list[str]()

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        answered.append(message["type"])

    async def work(_: Receive) -> None:
        assert await service.newer() == 503

    service.work = work
    await service.older(line.receive, send)
    assert answered == ["http.response.start", "http.response.body"] and service.empty()


async def test_a_response_that_nobody_takes() -> None:
    """A is frozen while it reads: the handler is told with an OSError, as ASGI has it, and B goes in."""
    service, line, hangs = Save(SHORT), Line(REST), asyncio.Event()

    async def send(_: Any) -> None:
        hangs.set()
        await asyncio.Event().wait()

    older = asyncio.create_task(service.older(line.receive, send))
    await hangs.wait()
    assert await service.newer() == 200
    with pytest.raises(OSError, match="a newer owner waits"):
        await older
    assert service.writes == [11, 12] and service.empty()


@pytest.mark.slow
async def test_a_handler_that_goes_on_all_the_same_is_inside() -> None:
    """It was told, and does not care: newer owners get 503 until it returns, and never work beside it."""
    service, line = Save(SHORT, wait=0.2), Line(HALF)
    told, go_on = asyncio.Event(), asyncio.Event()
    polite = service.app

    async def stubborn(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await polite(scope, receive, send)
        except Gone:
            told.set()
            await go_on.wait()
            service.writes.append(11)

    service.middleware.app = stubborn
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    assert await service.newer() == 503
    await told.wait()
    assert await service.newer() == 503 and service.writes == []
    go_on.set()
    await older
    assert await service.newer() == 200
    assert service.writes == [11, 12] and service.empty()


async def test_who_does_not_wait_gets_in_later() -> None:
    """With wait=0 B is refused at once, and its next try is served: A has been told by the first."""
    service, line = Save(SHORT, wait=0), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    assert await service.newer() == 503
    with pytest.raises(Gone):
        await older
    assert await service.newer() == 200
    assert service.writes == [12] and service.empty()


async def test_two_that_wait_and_one_that_hangs() -> None:
    """B waits for A, and C for both. A is gone, and they go in by turns."""
    service, line = Save(SHORT), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    second = asyncio.create_task(service.newer(12))
    await service.at_the_door()
    assert [await service.newer(13), await second] == [200, 200]
    with pytest.raises(Gone):
        await older
    assert service.writes == [12, 13] and service.empty()


def test_the_newer_owner_is_on_another_loop() -> None:
    """One middleware, two loops in two threads: A is told on its own."""
    service, hangs, ended = Save(SHORT), threading.Event(), list[BaseException]()

    async def receive() -> Any:
        hangs.set()
        await asyncio.Event().wait()

    def run() -> None:
        try:
            asyncio.run(service.older(receive))
        except Gone as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert hangs.wait(60)
    assert asyncio.run(service.newer()) == 200
    thread.join(60)
    assert len(ended) == 1 and service.writes == [12] and service.empty()


# ---------------------------------------------------------------- what is not ours


async def test_a_request_that_is_cancelled_while_it_hangs() -> None:
    """The server ends it: that is a cancellation and no disconnect, also when it was overtaken."""
    service, line = Save(LONG), Line(HALF)
    older = asyncio.create_task(service.older(line.receive))
    await line.hangs.wait()
    newer = asyncio.create_task(service.newer())
    await service.at_the_door()
    older.cancel()
    with pytest.raises(asyncio.CancelledError):
        await older
    assert await newer == 200 and service.heard == ["http.request"] * 2 and service.empty()


async def test_errors_of_the_server_are_its_own() -> None:
    """A TimeoutError that the server raises for a slow client goes to the handler as it is."""
    service = Save(LONG)

    async def receive() -> Any:
        raise TimeoutError("the server gave up")

    with pytest.raises(TimeoutError, match="the server gave up"):
        await service.older(receive)
    assert service.empty()
