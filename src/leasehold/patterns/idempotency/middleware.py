"""IdempotencyMiddleware for ASGI: Starlette, FastAPI, Quart, Django, or an application of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from leasehold.errors import (
    InvalidRequest,
    LeaseholdError,
    LeaseLost,
    NotAcquired,
    OutcomeUnknown,
    StaleOwner,
    StoreUnavailable,
)
from leasehold.guards.http.admission import check_methods
from leasehold.guards.http.asgi import App, Receive, Scope, Send
from leasehold.guards.http.problems import Problem, RequestRefused
from leasehold.observe import log
from leasehold.patterns.errors import KeyReused, ResultNotKept
from leasehold.patterns.idempotency import response
from leasehold.patterns.idempotency.request import BufferedRequest, Caller, Callers, body_of, key_of
from leasehold.patterns.idempotency.response import Response, refuse, replay

if TYPE_CHECKING:
    from datetime import timedelta

    from leasehold.patterns.once import AsyncOnceKey
    from leasehold.patterns.results.result_store import ResultStore

METHODS = ("POST", "PATCH")
MIB = 2**20
MOST = 8 * MIB  # of a response: as base64 it must fit on a result store
ELSEWHERE = (307, 308, 401)  # the client's library sends it once more by itself: to there, or with a password
LATER = (408, 425, 429)  # the service asks to come back: then it must be served, not replayed
EXTENSION = "http.response."


def keeps_all_but_failures(status: int) -> bool:
    """The rule, unless you give another: the service's own failures are not an answer, and neither is "later" or "not
    here, not like this"."""
    return status < 500 and status not in (*ELSEWHERE, *LATER)


class IdempotencyMiddleware:
    """Serves a request with an ``Idempotency-Key`` once, and answers its repetitions with the same response.

    ``hold`` is a coordinator for asyncio. While a request is served, its key belongs to a lease of ``kind``, whose
    ``ttl`` it is; the response is kept for ``keep`` on ``store``, a result store, or beside the leases. A
    repetition meanwhile
    waits for it, at most ``wait``, and is then told 409. A request that is not served within ``max_hold`` is cancelled,
    with 503; without it, one that hangs keeps its key for as long as it hangs. The same key with another method, path,
    query or body is 422.

    ``caller`` says who asks, and must be given: keys of two callers are two keys, so that nobody gets another's
    response. It is the name of a header, such as ``"Authorization"`` or ``"X-API-Key"``; a function of the scope, plain
    or async, that gives a text; or ``GLOBAL``, where all callers may share their responses. A request with a key of
    which it is not known who asks (without that header, or for which the function gives None) is refused (400).

    ``methods`` are those that are looked at; ``required`` refuses one of these without a key (400). ``keeps``, a
    function of the status, says which responses are kept; after others the key is free again. The rule is: all below
    500, but 307, 308, 401, 408, 425 and 429.

    A request body above ``max_body`` is refused (413). A response is held back until it is stored; one above
    ``max_response`` goes through as it comes and is not kept: it is not served again, and who asks is told so (410).
    A client that goes away ends nothing. Websockets and lifespan go through.
    """

    def __init__(
        self,
        app: App,
        hold: Any,
        *,
        caller: Caller | None = None,
        kind: str = "idempotency",
        keep: float | str | timedelta = "24h",
        ttl: float | str | timedelta = 30,
        wait: float | str | timedelta = 0,
        max_hold: float | str | timedelta | None = None,
        methods: Iterable[str] = METHODS,
        required: bool = False,
        keeps: Callable[[int], bool] = keeps_all_but_failures,
        max_body: int = MIB,
        max_response: int = MIB,
        store: ResultStore | None = None,
    ) -> None:
        self.app = app
        self._once = _check_hold(hold).once(
            kind, "{id}", keep=keep, ttl=ttl, wait=wait, max_hold=max_hold, fingerprint="{request}", store=store
        )
        self._callers = Callers(caller)
        self._methods = check_methods(methods)
        self._required = _check_flag(required)
        self._keeps = _check_call(keeps, "keeps")
        self._max_body, self._max_response = (
            _check_size(max_body, "max_body"),
            _check_size(max_response, "max_response"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"].upper() not in self._methods:
            await self.app(scope, receive, send)
            return
        try:
            key = key_of(scope)
            if key is None and self._required:
                raise RequestRefused(response.MISSING)
            if key is None:
                await self.app(scope, receive, send)
                return
            await self._keyed(key, scope, receive, send)
        except RequestRefused as error:
            await refuse(send, error.problem)

    async def _keyed(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        name = await self._callers.key_id(scope, key)
        body = await body_of(scope, receive, self._max_body)
        if body is None:
            return
        request = [scope["method"].upper(), scope["path"], bytes(scope.get("query_string", b"")), body]
        turn = self._once.begin(id=name, request=request)
        service = KeyedRequest(turn, self._keeps)
        answer = Response(send, self._max_response, service.store)
        await service.serve(self.app, scope, body, answer)
        if not service.began:
            await replay(send, _known(turn))


class KeyedRequest:
    """One request with its key: it is served by the application, and its response stored."""

    def __init__(self, turn: AsyncOnceKey, keeps: Callable[[int], bool]) -> None:
        self._turn, self._keeps = turn, keeps
        self.began = False

    async def serve(self, app: App, scope: Scope, body: bytes, answer: Response) -> None:
        """Unless it was served before. Raises Refused, or what the application raises."""
        turn = self._turn
        try:
            async with turn:
                if not turn.done:
                    self.began = True
                    await _run(app, scope, body, answer)
        except LeaseholdError as error:
            if not self.began:
                problem = _meaning(error)
                if problem is None:
                    raise  # a mistake of the program's own
                raise RequestRefused(problem) from error
            if error.resource != turn.resource or (answer.begun and not answer.complete):
                raise  # the application's own; or a response that was cut
            if not turn.done and not answer.begun:
                raise RequestRefused(response.INTERRUPTED) from error
        await answer.deliver()

    async def store(self, answer: Response) -> None:
        """The response is complete, and not yet given away: what the client sees is what others will see."""
        if not self._keeps(answer.status):
            return
        try:
            await self._turn.complete(answer.kept())
        except OutcomeUnknown as error:
            log.warn("a response was given and could not be stored: %s", error)
        except StaleOwner:
            if not answer.passes:
                answer.replace(response.INTERRUPTED)


def _known(turn: AsyncOnceKey) -> Any:
    """The response that is stored; Refused, where only that there was one is."""
    try:
        return turn.result
    except ResultNotKept as error:
        raise RequestRefused(response.NOT_KEPT) from error


async def _run(app: App, scope: Scope, body: bytes, answer: Response) -> None:
    """What the server offers beyond plain messages could not be stored: the application is not told of it."""
    known = scope.get("extensions") or {}
    scope["extensions"] = {name: one for name, one in known.items() if not name.startswith(EXTENSION)}
    try:
        await app(scope, BufferedRequest(body, answer.finished).receive, answer.send)
    finally:
        scope["extensions"] = known


def _meaning(error: LeaseholdError) -> Problem | None:
    """Of what kept a request from being begun."""
    if isinstance(error, KeyReused):
        return response.REUSED
    if isinstance(error, NotAcquired):
        return response.IN_USE
    later = isinstance(error, (StoreUnavailable, OutcomeUnknown, StaleOwner, LeaseLost))
    return response.UNAVAILABLE if later else None


def _check_hold(hold: Any) -> Any:
    if not getattr(hold, "_asynchronous", False):
        raise InvalidRequest(
            f"hold is a coordinator for asyncio, of leasehold.aio.connect(), not {type(hold).__name__}"
        )
    return hold


def _check_flag(required: object) -> bool:
    if not isinstance(required, bool):
        raise InvalidRequest(f"required is True or False, not {type(required).__name__}")
    return required


def _check_call(given: Any, what: str) -> Any:
    if not callable(given):
        raise InvalidRequest(f"{what} is a function, not {type(given).__name__}")
    return given


def _check_size(size: object, what: str) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MOST:
        raise InvalidRequest(f"{what} is a number of bytes, at most {MOST >> 20} MiB: all of it is held in memory")
    return size
