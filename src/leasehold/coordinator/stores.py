"""The store for the argument of ``connect``: a URL, a client, a list of either, or nothing. Nothing is opened yet."""

from __future__ import annotations

import os
import sys

from leasehold._core.light_typing import TYPE_CHECKING, Any, Callable, Protocol, cast
from leasehold.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence
    from signal import set_wakeup_fd

    from leasehold._core.ports import Store

    class Client(Protocol):
        """A client of redis-py or valkey-py, sync or asyncio, or an object that behaves like one."""

        def execute_command(self, *args: Any, **options: Any) -> Any: ...

    class Pool(Protocol):
        """A pool of psycopg's, sync or asyncio."""

        conninfo: Any
        kwargs: Any

    class Engine(Protocol):
        """An engine of SQLAlchemy's over psycopg, sync or asyncio."""

        def raw_connection(self) -> Any: ...

    Target = str | Client | Sequence[Client | str] | Pool | Engine | Store
else:
    from _signal import set_wakeup_fd  # ``signal`` makes enums of all signals, which takes milliseconds

SLOTS = ("resource", "namespace")
NO_DESCRIPTOR = -2  # -1 would mean something


def open_store(
    target: Target | None, slot: str | None = None, shared: bool | None = None, namespace: str | None = None
) -> Store:
    """The store that a URL names or a client connects to. Nothing is opened yet. ``slot``: what decides about the
    slot of a lock in a Redis Cluster, ``resource`` or ``namespace``, which needs a ``namespace``. ``shared``:
    refuse the embedded store where nothing is named; None: if the environment says so."""
    if slot is not None and slot not in SLOTS:
        raise InvalidRequest(f"slot must be one of {', '.join(SLOTS)}, not {slot!r}")
    if shared is not None and not isinstance(shared, bool):
        raise InvalidRequest(f"shared must be True or False, not {type(shared).__name__}")
    store = _open(target, shared)
    if slot is not None:
        choose = getattr(store, "choose_slots", None)
        if choose is None:
            raise InvalidRequest(f"slot={slot!r} is for a Redis Cluster: a store on {store.name} has no slots")
        choose(slot)
        if slot == "namespace" and not (os.environ.get("LEASEHOLD_NAMESPACE") if namespace is None else namespace):
            raise InvalidRequest(
                "slot='namespace' needs a namespace: connect(url, namespace='billing', slot='namespace')"
            )
    return store


def _requires_shared() -> bool:
    given = os.environ.get("LEASEHOLD_REQUIRE_SHARED", "")
    if given.lower() not in ("", "0", "no", "false", "1", "yes", "true"):
        raise InvalidRequest(f"LEASEHOLD_REQUIRE_SHARED is 1 or 0, not {given[:20]!r}")
    return given.lower() in ("1", "yes", "true")


def _url_of_environment() -> str | None:
    """A variable that is set to nothing is a mistake: another process may have the URL, and would share nothing with
    this one."""
    url = os.environ.get("LEASEHOLD_URL")
    if url is not None and not url.strip():
        raise InvalidRequest(
            "LEASEHOLD_URL is empty: set it to the URL of the store, such as redis://host, or unset it for the "
            "embedded store of this user"
        )
    return url


def _open(target: Target | None, shared: bool | None) -> Store:
    if _in_sub_interpreter():
        raise Unsupported(
            "Leasehold does not work in a sub-interpreter: leases can be neither renewed nor given back there. Use it "
            "in the main interpreter (under mod_wsgi: WSGIApplicationGroup %{GLOBAL}), or in a process of its own"
        )
    if target is None:
        target = _url_of_environment()
    if target is None and (_requires_shared() if shared is None else shared):
        raise InvalidRequest(
            "no store is named, and the embedded one, which only the processes of this user on this host share, is "
            "refused here: give the URL of a store that all share, such as redis://host, or set LEASEHOLD_URL"
        )
    if target is None:
        from leasehold.stores.sqlite import SQLiteStore, default_path

        return SQLiteStore(default_path())
    if not isinstance(target, str):
        return cast("Store", target) if hasattr(target, "execute_many") else _of_client(target)
    scheme, separator, rest = target.partition("://")
    if not separator:
        scheme = ""
    if scheme == "memory":
        from leasehold.stores.memory import MemoryStore

        return MemoryStore.shared(_without_options(scheme, rest))
    if scheme == "sqlite":
        from leasehold.stores.sqlite import SQLiteStore

        return SQLiteStore(_sqlite_path(rest))
    return _with_a_server(target, scheme)


def _with_a_server(url: str, scheme: str) -> Store:
    """The store on a server that a URL names, or the error of a URL that names none."""
    from leasehold._core.schemes import examples, store_of  # not at the top: the embedded store starts without

    name = store_of(scheme)
    if name is not None:
        return SERVERS[name](url)
    wrong = "the URL has an unknown scheme" if scheme else "that is no URL"
    raise InvalidRequest(f"{wrong}: write {examples()}")


def _in_sub_interpreter() -> bool:
    """In a sub-interpreter the thread that renews would crash the end of the interpreter, where it can be started at
    all, and a fork calls only the hooks of the main one. Python 3.13 renamed the module that knows. It is a library of
    its own, which need not be loaded in the usual case."""
    try:
        set_wakeup_fd(NO_DESCRIPTOR)
    except OSError:  # the main thread of the main interpreter: nobody else gets as far as looking at the descriptor
        return False
    except ValueError:
        pass
    try:
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
        else:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]  # typeshed leaves it out
        return bool(interpreters.get_current() != interpreters.get_main())
    except ImportError:  # a Python that was built without them
        return False


def _of_client(thing: object) -> Store:
    if isinstance(thing, (list, tuple)) and thing:
        return _redlock(thing)
    packages = {cls.__module__.partition(".")[0] for cls in type(thing).__mro__}
    if packages & {"psycopg_pool", "sqlalchemy"}:
        return _postgresql(thing)
    if "kazoo" in packages:
        return _zookeeper(thing)
    if not hasattr(thing, "execute_command") and type(thing).__module__.partition(".")[0] not in ("redis", "valkey"):
        raise InvalidRequest(
            "connect() takes a URL, a Redis client, several of either for a Redlock, a psycopg pool, a SQLAlchemy "
            f"engine, a kazoo client or a store, not {type(thing).__name__}"
        )
    _redis()
    from leasehold.stores.redis.client_store import open_client

    return open_client(thing)


def _redlock(nodes: Any) -> Store:
    """From a URL, or from one client or URL for each node."""
    _redis()
    from leasehold.stores.redis.redlock.store import RedlockStore
    from leasehold.stores.redis.redlock.target import of_list

    if isinstance(nodes, str):
        return RedlockStore(nodes)
    targets, longest_ttl_ms = of_list(nodes)
    return RedlockStore(targets, longest_ttl_ms=longest_ttl_ms)


def _check_poll(server: str) -> None:
    import select

    if not hasattr(select, "poll"):
        raise Unsupported(
            f"a store on {server} waits with poll(), which Windows lacks: use it in the Windows Subsystem for Linux, "
            "or memory:// in tests"
        )


def _redis() -> Any:
    _check_poll("Redis or Valkey")
    try:
        import leasehold.stores.redis.store as package
    except ModuleNotFoundError as error:
        if error.name != "hiredis":
            raise
        raise Unsupported("a store on Redis or Valkey needs hiredis: pip install 'leasehold[redis]'") from error
    return package


def _one_redis(url: str) -> Store:
    store: Store = _redis().RedisStore(url)
    return store


def _sentinel(url: str) -> Store:
    package = _redis()
    from leasehold.stores.redis import sentinel

    store: Store = package.RedisStore(sentinel.from_url(url))
    return store


def _cluster(url: str) -> Store:
    _redis()
    from leasehold.stores.redis.cluster.store import ClusterStore

    return ClusterStore(url)


def _postgresql(target: Any) -> Store:
    """From a URL, a pool of psycopg's or an engine of SQLAlchemy's."""
    _check_poll("PostgreSQL")
    try:
        import leasehold.stores.postgresql.store as package
    except ImportError as error:
        if error.name not in ("psycopg", None):  # None: it is there, and finds no libpq
            raise
        raise Unsupported("a store on PostgreSQL needs psycopg 3: pip install 'leasehold[postgresql]'") from error
    return package.PostgresStore(target)


def _etcd(url: str) -> Store:
    _check_poll("etcd")
    from leasehold.stores.etcd.server import EtcdRecords
    from leasehold.stores.record.store import RecordStore

    return RecordStore("etcd", EtcdRecords.from_url(url))


def _zookeeper(target: Any) -> Store:
    """From a URL, or a client of kazoo's."""
    _check_poll("ZooKeeper")
    try:
        from leasehold.stores.zookeeper.server import ZooKeeper
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        raise Unsupported("a store on ZooKeeper needs kazoo: pip install 'leasehold[zookeeper]'") from error
    from leasehold.stores.record.store import RecordStore

    return RecordStore("zookeeper", ZooKeeper(target))


SERVERS: dict[str, Callable[[str], Store]] = {
    "redis": _one_redis,
    "sentinel": _sentinel,
    "cluster": _cluster,
    "redlock": _redlock,
    "postgresql": _postgresql,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
}


def _without_options(scheme: str, rest: str) -> str:
    """The rest of a URL without options. The error names an option, unless it may be part of a password that is not
    percent-encoded."""
    place, _, query = rest.partition("?")
    if query:
        name = "" if "@" in rest else query.partition("&")[0].partition("=")[0][:40]
        raise InvalidRequest(f"a {scheme} URL takes no options{f': leave out {name}' if name else ''}")
    return place


def _sqlite_path(rest: str) -> str:
    """``sqlite:///relative`` and ``sqlite:////absolute``, as SQLAlchemy writes them."""
    path = _without_options("sqlite", rest)
    if not path.startswith("/"):
        raise InvalidRequest("a sqlite URL has three slashes and a path: sqlite:///path/to/file.db")
    path = path[1:]
    if "%" in path:
        from urllib.parse import unquote

        path = unquote(path)
    if not path or path == ":memory:" or "\0" in path:
        raise InvalidRequest("a sqlite URL names a file; for a store in memory use memory://")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidRequest("the path of a sqlite URL cannot be written as a file name") from None
    return os.path.abspath(path)
