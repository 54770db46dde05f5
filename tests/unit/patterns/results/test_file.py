"""SQLiteResultStore: a file of its own, several processes and threads, forks, locks, other people's files; and
ThreadedResultStore."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import InvalidRequest, StaleOwner, StoreUnavailable
from leasehold.patterns.results import MemoryResultStore, SQLiteResultStore, ThreadedResultStore, sqlite
from leasehold.stores.sqlite import file
from leasehold.stores.sqlite.file import connect
from leasehold.testing.results import Presenter
from tests.support.tables import each

NAME = "order:42"
OLD, NEW = Presenter(NAME, 10), Presenter(NAME, 11)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a result store may be."""
    return tmp_path / "app.results"


@pytest.fixture
def results(path: Path) -> Iterator[SQLiteResultStore]:
    """One in a new file."""
    results = SQLiteResultStore(path)
    yield results
    results.close()


def test_it_is_made_on_first_use(path: Path) -> None:
    """Making the object touches nothing; the file is for its user alone."""
    results = SQLiteResultStore(path)
    assert not path.exists()
    assert results.read(NAME) is None
    assert path.stat().st_mode & 0o777 == 0o600
    results.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        results.read(NAME)


def test_two_make_it_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody makes it while we look whose it is: we see it as it was before or as it is after, never half of each,
    which would look like a file of another program."""
    rivals: list[SQLiteResultStore] = []

    def make(statement: str) -> None:
        if statement == "PRAGMA user_version" and not rivals:
            rivals.append(SQLiteResultStore(path))
            with suppress(StoreUnavailable):  # or it is told that we are in the way
                rivals[0].create()

    def connect(path: str) -> sqlite3.Connection:
        connection = file.connect(path)
        connection.set_trace_callback(make)
        return connection

    monkeypatch.setattr(sqlite, "connect", connect)
    monkeypatch.setattr(sqlite, "WAIT", 0.0)
    results = SQLiteResultStore(path)
    assert results.read(NAME) is None and len(rivals) == 1
    for one in (results, *rivals):
        one.close()


def test_it_outlives_its_process(results: SQLiteResultStore, path: Path) -> None:
    """Another process finds what was written, and refuses whoever is older."""
    results.write(NEW, "kept", 3600)
    results.close()
    code = f"""if True:
        from leasehold.patterns.results import SQLiteResultStore
        from leasehold.testing.results import Presenter
        results = SQLiteResultStore({str(path)!r})
        print(results.read({NAME!r})[:2])
        results.write(Presenter({NAME!r}, 12), "by another", 3600)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert said.stdout == "('kept', 11)\n"
    again = SQLiteResultStore(path)
    assert again.read(NAME)[:2] == ("by another", 12)  # type: ignore[index]  # it is there
    with pytest.raises(StaleOwner):
        again.write(NEW, "late", 60)
    again.close()


def test_to_read_takes_no_lock(results: SQLiteResultStore, path: Path) -> None:
    """While another process writes, everybody reads what was committed last; nobody waits."""
    results.write(NEW, "before", 60)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE leasehold_results SET value = 'uncommitted'")
        found = results.read(NAME)
        assert found is not None and found.text == "before"
        other.execute("ROLLBACK")


def test_a_file_that_stays_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to write is told after a while, and not left waiting for ever."""
    monkeypatch.setattr(sqlite, "WAIT", 0.05)
    results = SQLiteResultStore(path)
    results.create()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process keeps the database locked") as refused:
            results.write(NEW, "text", 60)
        assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
        other.execute("ROLLBACK")
    results.write(NEW, "text", 60)
    results.close()


def test_a_file_of_another_program(path: Path) -> None:
    """Nothing is written to it; neither to a text, nor to a database, nor to the file of a store."""
    path.write_text("not a database, and quite a bit longer than a header is, so that SQLite looks at it" * 20)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a database"):
        SQLiteResultStore(path).write(NEW, "text", 60)
    assert path.read_bytes() == before
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="another program"):
        SQLiteResultStore(path).write(NEW, "text", 60)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["value_fence = 'x'", "value_fence = x'ff'", "value = x'ff'", "value_fence = ''"])
def test_a_damaged_row(results: SQLiteResultStore, path: Path, damage: str) -> None:
    """SQLite does not insist on the types of its columns: an error that names the row, and other rows are read."""
    for name in ("page:42", "page:43"):
        results.write(Presenter(name, 10), "text", 60)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE leasehold_results SET {damage} WHERE resource = 'page:42'")
    for call in (lambda: results.read("page:42"), lambda: results.open(Presenter("page:42", 11))):
        with pytest.raises(
            StoreUnavailable, match="the row of page in the table leasehold_results is damaged"
        ) as raised:
            call()
        assert raised.value.resource == "page:42"
    found = results.read("page:43")
    assert found is not None and found.text == "text"


def test_a_format_of_the_future(results: SQLiteResultStore, path: Path) -> None:
    """What a newer version wrote is left alone."""
    results.create()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="newer Leasehold"):
        SQLiteResultStore(path).read(NAME)


@each("bad", ["", ":memory:", "a\0b"])
def test_what_is_no_path(bad: str) -> None:
    """It is said when the result store is made."""
    with pytest.raises(InvalidRequest):
        SQLiteResultStore(bad)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The error says so."""
    with pytest.raises(StoreUnavailable, match="folder"):
        SQLiteResultStore(tmp_path / "nowhere" / "app.results").read(NAME)


def test_a_file_that_was_deleted(results: SQLiteResultStore, path: Path) -> None:
    """The next call makes a new one: nobody goes on writing to a file that no other process can see."""
    results.write(NEW, "gone", 60)
    for one in path.parent.iterdir():
        one.unlink()
    results.write(OLD, "new file", 60)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT value FROM leasehold_results").fetchall() == [("new file",)]


def test_a_file_that_is_deleted_while_it_is_opened(
    results: SQLiteResultStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one took its place between two steps: it is found out, and nobody writes to the one that is gone."""
    replaced: list[str] = []

    def replacing(where: str) -> sqlite3.Connection:
        connection = connect(where)
        if not replaced:
            replaced.append(where)
            path.unlink()
            path.touch()
        return connection

    monkeypatch.setattr(sqlite, "connect", replacing)
    results.write(NEW, "seen by all", 60)
    assert replaced
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT value FROM leasehold_results").fetchall() == [("seen by all",)]


def test_it_has_no_part_in_a_transaction_of_yours(results: SQLiteResultStore) -> None:
    """Its table is in its own file: the error says which result store to use."""
    with closing(sqlite3.connect(":memory:")) as tx:
        with pytest.raises(InvalidRequest, match="SQLResultStore"):
            results.open(NEW, tx=tx)
        with pytest.raises(InvalidRequest, match="SQLResultStore"):
            results.write(NEW, "text", 60, tx=tx)


def test_what_is_written_is_on_the_disk(results: SQLiteResultStore) -> None:
    """A commit waits for the disk, on every connection."""
    results.create()
    for _ in range(2):
        with results._file.writing() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        results._file._close_idle()


# ---------------------------------------------------------------- fork


def in_child(work: Callable[[], Any]) -> None:
    """Do it in a forked child, which must say that it went well."""
    pid = os.fork()
    if not pid:
        status = 1
        with suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def opened() -> list[str]:
    """The files that this process has open."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(one.readlink()))
    return found


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_has_connections_of_its_own(results: SQLiteResultStore) -> None:
    """Parent and child both go on, while threads of the parent write; nothing is lost or damaged."""
    results.write(OLD, "parent", 60)
    stop = threading.Event()
    failures: list[BaseException] = []

    def busy(lane: int) -> None:
        try:
            for number in range(10_000):
                if stop.is_set():
                    return
                results.write(Presenter(f"lane:{lane}", number + 1), str(number), 60)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy, args=(lane,)) for lane in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(4):

            def work(fence: int = 20 + number) -> None:
                assert not [one for one in opened() if str(results._file.path) in one], "of the parent's"
                results.write(Presenter(NAME, fence), "child", 60)
                assert results.read(NAME)[1] == fence  # type: ignore[index]  # it is there

            in_child(work)
            results.write(Presenter("parent:1", number + 1), "parent", 60)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures
    assert results.read(NAME)[:2] == ("child", 23)  # type: ignore[index]  # it is there
    assert results._file.query("PRAGMA integrity_check") == [("ok",)]


def test_a_fork_in_the_middle_of_something(results: SQLiteResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that does not end in time does not keep the fork from happening: its connection is left alone there."""
    monkeypatch.setattr(sqlite, "QUIET", 0.05)
    results.write(OLD, "before", 60)
    with results._file.writing() as mine:

        def work() -> None:
            assert any(one.connection is mine for one in sqlite._inherited)
            assert results.read(NAME)[0] == "before"  # type: ignore[index]  # it is there

        in_child(work)
        assert mine.execute("SELECT 1").fetchone() == (1,)
    assert results.read(NAME) is not None


def test_the_lock_of_a_result_store_in_memory() -> None:
    """A thread of the parent may have had it at the fork; the child writes all the same."""
    results = MemoryResultStore()
    with results._lock:
        in_child(lambda: results.write(NEW, "text", 60))


# ---------------------------------------------------------------- asyncio


class Slow(MemoryResultStore):
    """Writes take until they are told to end."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.end = threading.Event(), threading.Event()

    def write(self, lease: Any, text: Any, keep: Any) -> None:
        """In a thread."""
        self.begun.set()
        assert self.end.wait(30)
        super().write(lease, text, keep)


def test_the_loop_does_not_wait_for_a_result_store() -> None:
    """While a call runs in its thread, other tasks go on."""

    async def main() -> None:
        slow = Slow()
        results = ThreadedResultStore(slow)
        task = asyncio.create_task(results.write(NEW, "text", 60))
        await asyncio.to_thread(slow.begun.wait, 30)
        assert await results.read(NAME) is None
        slow.end.set()
        await task
        found = await results.read(NAME)
        assert found is not None and found.text == "text"

    asyncio.run(main())


def test_a_cancelled_write_comes_to_its_end_first() -> None:
    """What the task does next is not overtaken by it; a second cancellation does not wait."""

    async def main() -> None:
        slow = Slow()
        results = ThreadedResultStore(slow)
        task = asyncio.create_task(results.write(NEW, "text", 60))
        await asyncio.to_thread(slow.begun.wait, 30)
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        slow.end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slow.read(NAME) is not None
        slow.end.clear()
        slow.begun.clear()
        impatient = asyncio.create_task(results.write(OLD, "stale, and nobody hears of it", 60))
        await asyncio.to_thread(slow.begun.wait, 30)
        for _ in range(2):
            impatient.cancel()
            await asyncio.sleep(0.02)
        assert impatient.cancelled()
        slow.end.set()

    asyncio.run(main())


def test_threads_of_its_own(path: Path) -> None:
    """What is on the result store is there, also while the application keeps every thread of its loop at work."""
    go = threading.Event()

    async def main() -> None:
        results = ThreadedResultStore(SQLiteResultStore(path))
        await results.write(NEW, "there", 60)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        slow = asyncio.create_task(asyncio.to_thread(go.wait, 10))
        try:
            assert await asyncio.wait_for(results.read(NAME), 60) is not None
        finally:
            go.set()
        assert await slow
        await results.close()

    asyncio.run(main())
    for thread in [one for one in threading.enumerate() if one.name.startswith("leasehold-results")]:
        thread.join(60)  # those of other tests end with their result stores
        assert not thread.is_alive()
