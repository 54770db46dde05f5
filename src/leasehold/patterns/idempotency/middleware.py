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
from leasehold.patterns.idempotency import response as problems
from leasehold.patterns.idempotency.request import BufferedRequest, Caller, Callers, body_of, key_of
from leasehold.patterns.idempotency.response import Response, refuse, replay

if TYPE_CHECKING:
    from datetime import timedelta

    from leasehold.patterns.once import AsyncOnceKey
    from leasehold.patterns.results.result_store import ResultStore

METHODS = ("POST", "PATCH")
MIB = 2**20
MOST = 8 * MIB  # bytes of a body: a response must fit on a result store as base64
REPEATED_BY_CLIENTS = (307, 308, 401)  # HTTP libraries send the request again: elsewhere, or with a password
TRY_LATER = (408, 425, 429)  # the service asks for another try, which must then be served, not replayed
EXTENSION = "http.response."  # prefix of the ASGI extensions that a stored response cannot use


def keeps_all_but_failures(status: int) -> bool:
    """The default rule: all responses but failures of the service, "try later" and "repeat it elsewhere"."""
    return status < 500 and status not in (*REPEATED_BY_CLIENTS, *TRY_LATER)


class IdempotencyMiddleware:
    """Serves a request with an ``Idempotency-Key`` once, and answers its repetitions with the same response.

    ``hold`` is a coordinator for asyncio. While a request is served, its key belongs to a lease of ``kind`` with this
    ``ttl``; the response is kept for ``keep`` on ``store``, a result store, or beside the leases. A repetition that
    arrives meanwhile waits for it, at most ``wait``, and then gets 409. A request that is not served within
    ``max_hold`` is cancelled, with 503; without it, a request that hangs keeps its key for as long as it hangs. The
    same key with another method, path, query or body is 422.

    ``caller`` identifies the client, and must be given: keys of two clients are two keys, so that no client gets the
    response of another. It is the name of a header, such as ``"Authorization"`` or ``"X-API-Key"``; a function of the
    scope, plain or async, that returns a text; or ``GLOBAL``, where all clients may share their responses. A request
    with a key whose client is not known (without that header, or for which the function returns None) is refused
    (400).

    ``methods`` are those that are handled; ``required`` refuses one of these without a key (400). ``keeps``, a function
    of the status, says which responses are kept; after others the key is free again. By default all below 500 are kept,
    except 307, 308, 401, 408, 425 and 429.

    A request body above ``max_body`` is refused (413). A response is held back until it is stored; one above
    ``max_response`` is passed on as it comes and not kept: the request is not served again, and a repetition gets 410.
    A client that disconnects ends nothing. Websockets and lifespan events pass through.
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
                raise RequestRefused(problems.MISSING)
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
        use = self._once.begin(id=name, request=request)
        keyed = KeyedRequest(use, self._keeps)
        await keyed.serve(self.app, scope, body, Response(send, self._max_response, keyed.store))
        if not keyed.began:
            await replay(send, _stored(use))


class KeyedRequest:
    """One request with its key: the application serves it, and its response is stored."""

    def __init__(self, use: AsyncOnceKey, keeps: Callable[[int], bool]) -> None:
        self._use, self._keeps = use, keeps
        self.began = False

    async def serve(self, app: App, scope: Scope, body: bytes, response: Response) -> None:
        """Serve it, unless it was served before. Raises RequestRefused, or what the application raises."""
        use = self._use
        try:
            async with use:
                if not use.done:
                    self.began = True
                    await _run(app, scope, body, response)
        except LeaseholdError as error:
            if not self.began:
                problem = _problem(error)
                if problem is None:
                    raise  # a mistake in the program
                raise RequestRefused(problem) from error
            if error.resource != use.resource or (response.begun and not response.complete):
                raise  # an error of the application; or a response that was cut off
            if not use.done and not response.begun:
                raise RequestRefused(problems.INTERRUPTED) from error
        await response.deliver()

    async def store(self, response: Response) -> None:
        """Store a complete response before its end is sent: the client sees what its repetitions will see."""
        if not self._keeps(response.status):
            return
        try:
            await self._use.complete(response.kept())
        except OutcomeUnknown as error:
            log.warn("a response was given and could not be stored: %s", error)
        except StaleOwner:
            if not response.passes:
                response.replace(problems.INTERRUPTED)


def _stored(use: AsyncOnceKey) -> Any:
    """The stored response. RequestRefused, if only the fact that there was one is stored."""
    try:
        return use.result
    except ResultNotKept as error:
        raise RequestRefused(problems.NOT_KEPT) from error


async def _run(app: App, scope: Scope, body: bytes, response: Response) -> None:
    """Run the application, without the server's extensions for responses: those could not be stored."""
    known = scope.get("extensions") or {}
    scope["extensions"] = {name: one for name, one in known.items() if not name.startswith(EXTENSION)}
    try:
        await app(scope, BufferedRequest(body, response.finished).receive, response.send)
    finally:
        scope["extensions"] = known


def _problem(error: LeaseholdError) -> Problem | None:
    """The response for an error that prevented a request from being served."""
    if isinstance(error, KeyReused):
        return problems.REUSED
    if isinstance(error, NotAcquired):
        return problems.IN_USE
    later = isinstance(error, (StoreUnavailable, OutcomeUnknown, StaleOwner, LeaseLost))
    return problems.UNAVAILABLE if later else None


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
