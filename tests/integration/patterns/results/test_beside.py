"""The result store beside each store: for threads and asyncio, closed with the coordinator; forks, loops, TLS."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import fakeredis
import pytest
import redis
import redis.asyncio

import leasehold
import leasehold.aio
from leasehold.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.testing.results import Presenter
from tests.support.servers.certificates import Certificates
from tests.support.servers.database import Database
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer
from tests.support.waiting import until
from tests.unit.patterns.results.test_file import in_child

slow = pytest.mark.slow


def targets(tmp_path: Path, url: str) -> dict[str, Any]:
    """What somebody may connect to."""
    return {"sqlite": f"sqlite:///{tmp_path / 'store.db'}", "redis": url}


def use(hold: Any, text: str) -> Any:
    """Write under a lease, and read."""
    with hold.lock("page", 42) as lease:
        results = hold._results
        results.open(lease)
        results.write(lease, text, 60)
        return results.read("page:42")


async def use_awaited(hold: Any, text: str) -> Any:
    """The same for asyncio."""
    async with hold.lock("page", 42) as lease:
        results = hold._results
        await results.open(lease)
        await results.write(lease, text, 60)
        return await results.read("page:42")


def check_both(target: Any) -> None:
    """Threads and asyncio find what the other has written, and the result store ends with its coordinator."""
    with leasehold.connect(target) as hold:
        assert use(hold, "by a thread").text == "by a thread"
        results = hold._results
        assert hold._results is results

    async def main() -> None:
        async with leasehold.aio.connect(target) as hold:
            assert (await hold._results.read("page:42")).text == "by a thread"  # type: ignore[misc]  # awaited
            assert (await use_awaited(hold, "by a task")).text == "by a task"
            ended = hold._results
        with pytest.raises(StoreUnavailable, match="closed"):
            await ended.read("page:42")  # type: ignore[misc]  # awaited

    asyncio.run(main())
    with pytest.raises(StoreUnavailable, match="closed"):
        results.read("page:42")


def test_beside_sqlite(tmp_path: Path) -> None:
    """In a file beside that of the store."""
    check_both(f"sqlite:///{tmp_path / 'store.db'}")
    assert (tmp_path / "store.db-results").exists()


def test_beside_the_embedded_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is made by whoever comes first: to read from the result store, before any lock."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    with leasehold.connect() as hold:
        assert hold._results.read("page:42") is None
        assert use(hold, "text").text == "text"
    assert (tmp_path / "state" / "leasehold" / "leasehold.db-results").exists()


def test_beside_memory() -> None:
    """All coordinators of one space have the same one; those of another have another."""
    with leasehold.connect("memory://one") as first, leasehold.connect("memory://one") as second:
        assert use(first, "text").text == "text"
        assert second._results.read("page:42").text == "text"  # type: ignore[union-attr]  # there, and at once
        with leasehold.connect("memory://other") as other:
            assert other._results.read("page:42") is None


@slow
def test_beside_redis(redis_server: RedisServer, redis_url: str) -> None:
    """On the same server, in the same database, over TCP and over a socket in the file system."""
    for target in (
        redis_url.replace("/0", "/3"),
        redis_server.unix_url.replace("db=0", "db=4"),
        redis_server.client(db=5),
    ):
        check_both(target)
    for db in (3, 4, 5):
        assert redis_server.client(db=db).exists("results:v1:{page:42}:value")
    assert not redis_server.client(db=0).keys("results:*")


@slow
def test_beside_postgresql(postgres_database: Database) -> None:
    """In the same database, in a table beside that of the leases: one for each table of leases."""
    check_both(postgres_database.url)
    with leasehold.connect(f"{postgres_database.url}?table=others") as hold:
        assert hold._results.read("page:42") is None
        assert use(hold, "other").text == "other"
    check_both(f"{postgres_database.url}?schema=public&table=mine")


@slow
def test_beside_redis_with_tls(own_redis: Callable[..., RedisServer], certificates: Certificates) -> None:
    """With the certificates of the store; a certificate that is not ours is refused."""
    server = own_redis(tls=certificates)
    options = "&".join(f"{name}={quote(value)}" for name, value in certificates.arguments().items())
    check_both(f"{server.tls_url}?{options}&ssl_min_version=tlsv1.2")
    strange = f"{server.tls_url}?ssl_certfile={quote(str(certificates.client))}"
    with leasehold.connect(strange) as hold, pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        hold._results.read("page:42")


@slow
def test_beside_redis_with_a_password(own_redis: Callable[..., RedisServer]) -> None:
    """As the user of the URL, or whoever a provider of credentials says; the password is in no message."""
    server = own_redis()
    assert server.ask("ACL SETUSER joe on >5ec2e7 ~* &* +@all") == b"+OK\r\n"
    assert server.ask("CONFIG SET requirepass other") == b"+OK\r\n"
    check_both(server.url.replace("redis://", "redis://joe:5ec2e7@"))
    provider = redis.UsernamePasswordCredentialProvider("joe", "5ec2e7")
    with redis.Redis(port=server.port, credential_provider=provider) as client:
        check_both(client)
    with leasehold.connect(server.url.replace("redis://", "redis://joe:5ec2e8@")) as hold:
        with pytest.raises(StoreUnavailable) as refused:
            hold._results.read("page:42")
        assert "5ec2e8" not in f"{refused.value}"


@slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_after_a_fork(tmp_path: Path, redis_url: str, postgres_database: Database) -> None:
    """Parent and child each have connections of their own; each finds what the other wrote."""
    for target in (*targets(tmp_path, redis_url).values(), postgres_database.url):
        with leasehold.connect(target) as hold:
            assert use(hold, "parent").text == "parent"

            def work(hold: Any = hold) -> None:
                assert hold._results.read("page:42").text == "parent"
                assert use(hold, "child").text == "child"

            in_child(work)
            assert hold._results.read("page:42").text == "child"  # type: ignore[union-attr]  # there, and at once
            assert use(hold, "parent again").text == "parent again"


@slow
def test_one_loop_after_the_other(redis_url: str) -> None:
    """A coordinator for asyncio serves several loops: each has one connection, which ends with it."""
    hold = leasehold.aio.connect(redis_url)

    async def main(number: int) -> str:
        results: Any = hold._results
        await asyncio.gather(*(results.read(f"page:{one}") for one in range(20)))
        return str(await results.read(f"page:{number}"))

    for number in range(3):
        assert asyncio.run(main(number)) == "None"
        assert len(hold._driver._connections) == 1
    asyncio.run(hold.close())


@slow
def test_two_loops_at_once(redis_url: str) -> None:
    """In two threads; closed in one of them, the other one's is closed too."""
    hold = leasehold.aio.connect(redis_url)
    ready, end = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def other() -> None:
        results: Any = hold._results
        assert await results.read("page:1") is None
        ready.set()
        await asyncio.to_thread(end.wait, 30)

    def run() -> None:
        try:
            asyncio.run(other())
        except BaseException as error:
            failures.append(error)

    async def main() -> None:
        results: Any = hold._results
        assert await results.read("page:1") is None
        assert len(hold._driver._connections) == 2
        await hold.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    asyncio.run(main())
    end.set()
    thread.join(30)
    assert not failures


def test_through_a_lent_client() -> None:
    """A client that cannot be reduced to an address is used through its own commands, and is not closed."""
    client = fakeredis.FakeRedis()
    with leasehold.connect(client) as hold:
        assert use(hold, "by a thread").text == "by a thread"

    async def main() -> None:
        async with leasehold.aio.connect(client) as hold:
            assert (await use_awaited(hold, "by a task")).text == "by a task"
        awaited = fakeredis.FakeAsyncRedis()
        async with leasehold.aio.connect(awaited) as hold:
            assert (await use_awaited(hold, "by a task")).text == "by a task"
        assert await awaited.exists("results:v1:{page:42}:value")
        await awaited.aclose()

    asyncio.run(main())
    assert client.exists("results:v1:{page:42}:value")
    with leasehold.connect(fakeredis.FakeAsyncRedis()) as wrong, pytest.raises(InvalidRequest, match=r"aio\.connect"):
        _ = wrong._results


def test_a_store_that_has_none() -> None:
    """A store of somebody's own: the error says what to do."""

    class Own:
        name = "own"

    from leasehold.coordinator.results import default_results

    with pytest.raises(Unsupported, match="give a result store that all processes share"):
        default_results(SimpleNamespace(store=Own()))  # type: ignore[arg-type]  # what is read of an engine


@slow
def test_no_client_library_is_needed(redis_url: str) -> None:
    """Results travel over the connections of the leases: redis-py and valkey-py need not be installed."""
    code = f"""if True:
        import sys
        sys.modules["redis"] = sys.modules["valkey"] = None
        import leasehold
        with leasehold.connect({redis_url!r}) as hold, hold.lock("page", 42) as lease:
            hold._results.write(lease, "text", 60)
            print(hold._results.read("page:42").text)
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert found.stdout == "text\n"


def test_each_call_has_an_error_of_its_own(tmp_path: Path) -> None:
    """Tasks that wait for one connection in vain get one error each: it names their resource, and its cause."""
    url = f"unix://{tmp_path / 'nothing.sock'}"
    with leasehold.connect(url) as hold, pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        hold._results.read("page:42")
    errors: list[Any] = [caught.value]

    async def main() -> None:
        async with leasehold.aio.connect(url) as hold:
            results: Any = hold._results
            errors.extend(
                await asyncio.gather(*(results.read(f"page:{one}") for one in range(3)), return_exceptions=True)
            )

    asyncio.run(main())
    assert [error.resource for error in errors] == ["page:42", "page:0", "page:1", "page:2"]
    assert all(error.__cause__ is not None and error.__cause__ is not error for error in errors)


@slow
def test_a_lost_reply(proxy: Proxy) -> None:
    """Over the connections of the leases, too: a write may have happened, and a read changes nothing."""
    old, new = Presenter("page:42", 10), Presenter("page:42", 11)
    with leasehold.connect(proxy.url) as hold:
        results: Any = hold._results
        results.write(old, "before", 60)
        proxy.cut_replies(1)
        with pytest.raises(OutcomeUnknown, match="may be repeated") as unknown:
            results.write(new, "after", 60)
        assert (unknown.value.resource, unknown.value.fence) == ("page:42", 11)
        assert results.read("page:42").text == "after"
        proxy.cut_replies(1)
        with pytest.raises(StoreUnavailable, match="could not be read"):
            results.read("page:42")
        assert results.read("page:42").text == "after"


@slow
def test_a_lost_reply_in_asyncio(proxy: Proxy) -> None:
    """The same on the connection that all tasks of a loop share: each gets its own reply, or none."""

    async def main() -> None:
        async with leasehold.aio.connect(proxy.url) as hold:
            results: Any = hold._results
            for page in range(5):
                await results.write(Presenter(f"page:{page}", 10), str(page), 60)
            proxy.cut_replies(1)
            with pytest.raises(OutcomeUnknown, match="may be repeated"):
                await results.write(Presenter("page:0", 10), "zero", 60)
            reads = [asyncio.create_task(results.read(f"page:{page}")) for page in range(5)]
            await asyncio.sleep(0)
            reads[2].cancel()
            found: list[Any] = await asyncio.gather(*reads, return_exceptions=True)
            assert isinstance(found.pop(2), asyncio.CancelledError)
            assert [one.text for one in found] == ["zero", "1", "3", "4"]

    asyncio.run(main())


@slow
def test_nothing_more_is_opened(redis_server: RedisServer, redis_url: str) -> None:
    """A thread uses one connection for its lease and its results, and so does an event loop."""
    client = redis_server.client()

    def connections() -> int:
        return sum(one["name"] == "app" for one in client.client_list())

    with leasehold.connect(f"{redis_url}?client_name=app") as hold:
        assert use(hold, "text").text == "text"
        assert len(hold._engine.connections._open) == 1 and connections() <= 2  # the watchdog has one

    async def main() -> None:
        async with leasehold.aio.connect(f"{redis_url}?client_name=app") as hold:
            assert (await use_awaited(hold, "text")).text == "text"
            assert len(hold._driver._connections) == 1 and connections() <= 2

    asyncio.run(main())


@slow
def test_more_threads_than_connections(redis_url: str) -> None:
    """A thread that waits has the only connection. The result of the one that it waits for is stored all the same, so
    that the work is not done twice; and readers wait for each other."""
    calls: list[int] = []
    inside = threading.Event()
    with leasehold.connect(redis_url) as other, leasehold.connect(f"{redis_url}?max_connections=1") as hold:

        def pay(number: int) -> int:
            calls.append(number)
            inside.set()
            until(lambda: other.inspect("pay:7").waiters, "another thread waits")
            return number

        once = hold.once("pay", "{number}")(pay)
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(once, 7)
            assert inside.wait(30)
            second = pool.submit(once, 7)
            assert [first.result(30), second.result(30)] == [7, 7]
            assert calls == [7]
            reads = [pool.submit(hold._results.read, "page:42") for _ in range(50)]
            assert [one.result(30) for one in reads] == [None] * 50


def test_names_are_loaded_when_they_are_used() -> None:
    """Whoever uses a result store in memory loads neither SQL nor Redis."""
    code = "import sys; from leasehold.patterns.results import MemoryResultStore; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    loaded = set(found.stdout.split())
    assert not loaded & {"sqlite3", "redis", "asyncio", "leasehold.patterns.results.sql", "leasehold.guards.sql"}
    import leasehold.patterns.results as room

    assert all(getattr(room, name).__name__ == name for name in room.__all__)
    with pytest.raises(AttributeError):
        _ = room.Nothing
