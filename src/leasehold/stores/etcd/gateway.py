"""Requests to whichever member of etcd answers: failover, login, and what became of a request.

``post`` is a generator that yields calls. ``send`` and ``send_async`` carry one out, on a thread and on an event loop.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator

from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold.errors import LeaseholdError
from leasehold.stores.etcd import failures
from leasehold.stores.etcd.connection import (
    Broken,
    Connection,
    NotSent,
    addresses,
    addresses_async,
    wait,
    wait_async,
)
from leasehold.stores.etcd.failures import Refused
from leasehold.stores.etcd.http import Reply, request
from leasehold.stores.etcd.pool import Pool
from leasehold.stores.etcd.urls import Endpoint, Target
from leasehold.stores.etcd.wall import WallClock
from leasehold.stores.state_text import parse

LOGIN = "/v3/auth/authenticate"
HANGS = 2.0  # seconds after which another member is tried, unless it was told to change something


class Call(NamedTuple):
    """One request to one member, sent once. Performing it returns a Reply, or raises NotSent or Broken."""

    endpoint: Endpoint
    path: str
    token: str
    body: bytes
    give_up: float
    open_by: float  # the same for a new connection


Posting: TypeAlias = "Generator[Call, Reply, dict[str, Any]]"


class Gateway:
    """All members of one etcd, and one user there."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.server = target.server
        self.wall = WallClock()
        self.context = target.tls_context()
        self._order = target.endpoints  # the one to try first is the one that answered last
        self._token = ""
        self._logs_in = bool(target.user)
        self._pool = Pool()

    # ------------------------------------------------------------ a request

    def post(self, path: str, body: bytes, give_up: float, harmless: bool = False) -> Posting:
        """The reply to a request, from the first member that answers. ``harmless``: it may be sent again, and a failure
        is never unknown. Raises Refused (nothing was done), StoreUnavailable or OutcomeUnknown."""
        failure: LeaseholdError | None = None
        order = self._order
        for place, endpoint in enumerate(order, 1):
            limit, open_by = self._limits(len(order) - place, give_up)
            try:
                return (yield from self._post_to(endpoint, path, body, open_by if harmless else limit, open_by))
            except NotSent as error:
                failure = failures.unreachable(self.server, error)
            except Broken as error:
                if not harmless:
                    self.distrust(endpoint)
                    raise failures.unanswered(self.server, error) from error
                failure = failures.unreachable(self.server, error)
            except Refused as error:
                if not error.elsewhere and error.definite:
                    raise
                if not harmless and not error.definite:
                    self.distrust(endpoint)
                    raise failures.undecided(self.server, error) from error
                failure = failures.refused(self.server, error)
            self.distrust(endpoint)
        assert failure is not None  # noqa: S101 # there is at least one member
        raise failure

    def _limits(self, others: int, give_up: float) -> tuple[float, float]:
        """Until when a member may take, and until when it may take to connect: one that hangs costs at most half of
        what is left, as long as there are others."""
        if not others:
            return give_up, give_up
        now = time.monotonic()
        limit = now + (give_up - now) / 2
        return limit, min(limit, now + HANGS)

    def distrust(self, endpoint: Endpoint) -> None:
        """Another member is tried first from now on."""
        order = self._order
        if order[0] == endpoint:
            self._order = (*order[1:], endpoint)

    @property
    def first(self) -> Endpoint:
        """The member that answered last."""
        return self._order[0]

    def _post_to(self, endpoint: Endpoint, path: str, body: bytes, give_up: float, open_by: float) -> Posting:
        """Once more after a new login, when the token was refused: nothing was done then."""
        token = self._token
        if self._logs_in and not token:
            token = yield from self._log_in(endpoint, open_by)
        try:
            return self._read((yield Call(endpoint, path, token, body, give_up, open_by)))
        except Refused as error:
            if not error.bad_token or not self.target.user:
                raise
        token = yield from self._log_in(endpoint, open_by)
        return self._read((yield Call(endpoint, path, token, body, give_up, open_by)))

    def _read(self, reply: Reply) -> dict[str, Any]:
        self.wall.heard(reply.date)
        if reply.status != 200:
            raise failures.refusal(reply)
        try:
            found: dict[str, Any] = parse(reply.body.decode().strip())  # a stream ends its lines
        except ValueError as error:
            raise Broken("its reply is no JSON") from error
        return found

    def _log_in(self, endpoint: Endpoint, give_up: float) -> Generator[Call, Reply, str]:
        """A token; nothing where etcd knows no users. What fails here has not been sent, or was refused."""
        login = json.dumps({"name": self.target.user, "password": self.target.password}).encode()
        try:
            found = self._read((yield Call(endpoint, LOGIN, "", login, give_up, give_up)))
        except Broken as error:
            raise NotSent(str(error)) from error
        except Refused as error:
            if str(error) != failures.NO_AUTH:
                error.definite = True
                raise
            self._logs_in = False
            self._token = ""
            return ""
        token = str(found.get("token", ""))
        self._token, self._logs_in = token, True
        return token

    # ------------------------------------------------------------ a call

    @property
    def token(self) -> str:
        """The one in use, for streams."""
        return self._token

    def send(self, call: Call) -> Reply:
        """On the calling thread."""
        packed = request(call.path, str(call.endpoint), call.token, call.body)
        while (connection := self._pool.take(call.endpoint)) is not None:
            try:
                return wait(connection, connection.post(packed), call.give_up, Broken)
            except NotSent:  # the server closed it a moment ago
                pass
            finally:
                self._pool.give_back(connection)
        connection = self.new_connection(call.endpoint)
        try:
            wait(connection, connection.open(addresses(call.endpoint)), call.open_by, NotSent)
            return wait(connection, connection.post(packed), call.give_up, Broken)
        finally:
            self._pool.give_back(connection)

    async def send_async(self, call: Call) -> Reply:
        """In the running task."""
        packed = request(call.path, str(call.endpoint), call.token, call.body)
        while (connection := self._pool.take(call.endpoint)) is not None:
            try:
                return await wait_async(connection, connection.post(packed), call.give_up, Broken)
            except NotSent:
                pass
            finally:
                self._pool.give_back(connection)
        connection = self.new_connection(call.endpoint)
        try:
            found = await addresses_async(call.endpoint, call.open_by)
            await wait_async(connection, connection.open(found), call.open_by, NotSent)
            return await wait_async(connection, connection.post(packed), call.give_up, Broken)
        finally:
            self._pool.give_back(connection)

    def new_connection(self, endpoint: Endpoint) -> Connection:
        """Not open yet."""
        connection = Connection(endpoint, self.context)
        self._pool.add(connection)
        return connection

    # ------------------------------------------------------------ the end

    def forked(self) -> None:
        self._pool.close_copies()

    def close(self) -> None:
        self._pool.close()
