"""How to get a connection: with the parameters of a URL, or as a pool of psycopg's or an engine of SQLAlchemy's does.

A pool or an engine of the user's says how to connect; the connections are the store's own, so that no renewal waits for
a query of the application. Those of asyncio connect on their event loop, at the request of any other thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from inspect import isawaitable
from urllib.parse import quote

import psycopg

from leasehold._core.light_typing import Any, Protocol
from leasehold.errors import InvalidRequest, LeaseholdError, StoreUnavailable
from leasehold.stores.postgresql import failures
from leasehold.stores.postgresql.connect import connect
from leasehold.stores.postgresql.session import Session

LEAST_CONNECT = 2  # seconds: psycopg takes no less
MOST_CONNECT = 10  # seconds, for one host


class Source(Protocol):
    """Opens sessions, on any thread but that of its event loop."""

    server: str  # as errors name it, without its password
    url: str  # the same as a URL, without login and options
    awaited: bool  # it belongs to an event loop

    def connect(self, give_up: float) -> Session:
        """Raises StoreUnavailable or InvalidRequest."""
        ...


class Parameters:
    """Connects with parameters of libpq."""

    awaited = False

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self.server, self.url = named(parameters), url_of(parameters)

    def connect(self, give_up: float) -> Session:
        return Session(_opened(self.server, lambda: connect(self._parameters, give_up)))


class Pool:
    """Connects as this ``psycopg_pool.ConnectionPool`` would."""

    awaited = False

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.server, self.url = _names_of_pool(pool)

    def connect(self, give_up: float) -> Session:
        return Session(_opened(self.server, lambda: self._connect(give_up)))

    def _connect(self, give_up: float) -> Any:
        pool = self._pool
        text, settings = _resolved(pool.conninfo) or "", _resolved(pool.kwargs) or {}
        connection = pool.connection_class.connect(text, **_limited(settings, give_up))
        configure = getattr(pool, "_configure", None)
        if configure is not None:
            configure(connection)
        return connection


class Engine:
    """Connects as this engine of SQLAlchemy would."""

    awaited = False

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.server, self.url = _names_of_engine(engine.url)

    def connect(self, give_up: float) -> Session:
        return Session(_opened(self.server, self._connect))

    def _connect(self) -> Any:
        borrowed = self._engine.raw_connection()
        connection = borrowed.driver_connection
        borrowed.detach()  # the engine opens another one when it needs it
        connection.autocommit = True
        return connection


class OnLoop(ABC):
    """Connects on the event loop that a pool or an engine of asyncio belongs to: the first on which the store is
    used."""

    awaited = True

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.server = self.url = ""

    def connect(self, give_up: float) -> Session:
        loop = self.loop
        if loop is None or loop.is_closed():
            raise StoreUnavailable(f"{self.server}: the event loop of its pool or engine is closed")
        opening = asyncio.run_coroutine_threadsafe(self._connect(give_up), loop)

        def wait() -> Any:
            try:
                return opening.result(max(give_up - time.monotonic(), 0))
            except TimeoutError:
                opening.cancel()
                raise

        return Session(_opened(self.server, wait))

    @abstractmethod
    async def _connect(self, give_up: float) -> Any:
        """A connection of psycopg's, on the running event loop."""


class AsyncPool(OnLoop):
    """Connects as this ``psycopg_pool.AsyncConnectionPool`` would."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self._pool = pool
        self.server, self.url = _names_of_pool(pool)

    async def _connect(self, give_up: float) -> Any:
        pool = self._pool
        text, settings = await _awaited(_resolved(pool.conninfo)), await _awaited(_resolved(pool.kwargs))
        connection = await pool.connection_class.connect(text or "", **_limited(settings or {}, give_up))
        configure = getattr(pool, "_configure", None)
        if configure is not None:
            await configure(connection)
        return connection


class AsyncEngine(OnLoop):
    """Connects as this ``AsyncEngine`` of SQLAlchemy would."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self._engine = engine
        self.server, self.url = _names_of_engine(engine.url)

    async def _connect(self, give_up: float) -> Any:
        borrowed = await self._engine.raw_connection()
        connection = borrowed.driver_connection
        borrowed.detach()
        await connection.set_autocommit(True)
        return connection


def source_of(thing: Any) -> Source:
    """For a pool or an engine. Raises InvalidRequest for anything else."""
    names = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(thing).__mro__}
    if "psycopg_pool.AsyncConnectionPool" in names:
        return AsyncPool(thing)
    if "psycopg_pool.ConnectionPool" in names:
        return Pool(thing)
    if {"sqlalchemy.Engine", "sqlalchemy.AsyncEngine"} & names:
        if thing.dialect.name != "postgresql" or thing.dialect.driver not in ("psycopg", "psycopg_async"):
            raise InvalidRequest(
                f"connect() takes an engine on PostgreSQL over psycopg 3 (postgresql+psycopg://...), not one over "
                f"{thing.dialect.name}+{thing.dialect.driver}"
            )
        return AsyncEngine(thing) if "sqlalchemy.AsyncEngine" in names else Engine(thing)
    raise InvalidRequest(
        f"connect() takes a pool of psycopg's or an engine of SQLAlchemy's, not {type(thing).__name__}"
    )


# ---------------------------------------------------------------- parameters


def named(parameters: Mapping[str, Any]) -> str:
    """The server, for messages."""
    return "PostgreSQL at " + ",".join([f"{host}:{port}" for host, port in _addresses(parameters)])


def url_of(parameters: Mapping[str, Any]) -> str:
    """The server and the database, as a URL without login and options. A host may be the folder of a socket."""
    places = ",".join([f"{quote(host, safe=':[]')}:{port}" for host, port in _addresses(parameters)])
    return f"postgresql://{places}/{quote(str(parameters.get('dbname') or ''))}"


def _addresses(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "localhost").split(",")
    ports = str(parameters.get("port") or 5432).split(",")
    return [(host, ports[min(place, len(ports) - 1)] or "5432") for place, host in enumerate(hosts)]


def _names_of_pool(pool: Any) -> tuple[str, str]:
    try:
        known = psycopg.conninfo.conninfo_to_dict(pool.conninfo, **(pool.kwargs or {}))
    except (TypeError, psycopg.Error):  # functions, or parameters of a class of the user's
        return "PostgreSQL", "postgresql behind a pool of psycopg's"
    return named(known), url_of(known)


def _names_of_engine(url: Any) -> tuple[str, str]:
    known = {"host": url.host, "port": url.port, "dbname": url.database}
    return named(known), url_of(known)


def _limited(settings: Mapping[str, Any], give_up: float) -> dict[str, Any]:
    """With an end, without prepared statements, and in autocommit: our transactions begin and end by our own text."""
    seconds = min(max(math.ceil(give_up - time.monotonic()), LEAST_CONNECT), MOST_CONNECT)
    return {"connect_timeout": seconds, **settings, "autocommit": True, "prepare_threshold": None}


def _resolved(setting: Any) -> Any:
    return setting() if callable(setting) else setting


async def _awaited(setting: Any) -> Any:
    return await setting if isawaitable(setting) else setting


def _opened(server: str, connect: Callable[[], Any]) -> Any:
    """What ``connect`` gives; its errors as errors of ours."""
    try:
        return connect()
    except LeaseholdError:
        raise
    except Exception as error:
        cause = error.__cause__ or error  # SQLAlchemy shows the driver's error as its cause
        known = next((one for one in (error, cause) if isinstance(one, psycopg.Error)), None)
        state = (known.sqlstate if known is not None else None) or ""
        text = failures.TEXTS.get(state) or failures.TEXTS.get(state[:2])
        if text is not None:
            raise StoreUnavailable(f"{server} {text} ({state})") from error
        if isinstance(known, psycopg.ProgrammingError):
            raise InvalidRequest(f"{server}: {' '.join(str(known).split())[:200]}") from error
        raise failures.unreachable(server, known or error) from error
