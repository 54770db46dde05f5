"""Stale and fresh owners at the same database at the same time: threads, processes, and who waits for whom."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import StaleOwner, StoreUnavailable
from leasehold.guards.sql import FenceGuard
from tests.support.guards.ways import RESOURCE, A, B, Begin, by_engine, by_sqlite3, rows, write

guard = FenceGuard()


def test_the_database_stays_locked_until_the_commit(begin: Begin, path: Path) -> None:
    """Between check and commit nobody else gets in, refused or not: check, read and write are one step."""
    with begin(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=A)
        with closing(sqlite3.connect(path, timeout=0)) as other, pytest.raises(StoreUnavailable) as caught:
            guard.check(other, 11, resource=RESOURCE, owner=B)
        write(tx, "A")
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert "SQLITE_BUSY" in str(caught.value)
    assert rows(path)[0][1] == 10


def test_a_refused_owner_keeps_nobody_waiting(path: Path) -> None:
    """sqlite3 opens a transaction on its own; when the check is refused it is closed again, with its lock."""
    with by_sqlite3(path) as connection:
        guard.check(connection, 10, resource=RESOURCE, owner=A)
    with closing(sqlite3.connect(path)) as stale:
        with pytest.raises(StaleOwner):
            guard.check(stale, 9, resource=RESOURCE, owner=B)
        assert not stale.in_transaction
        with closing(sqlite3.connect(path, timeout=0)) as fresh, fresh:
            guard.check(fresh, 11, resource=RESOURCE, owner=B)


def test_a_refusal_leaves_the_users_transaction_to_the_user(path: Path) -> None:
    """What the user began is the user's to roll back, or to commit without the guarded write."""
    with by_engine(path) as tx:
        guard.check(tx, 10, resource=RESOURCE, owner=A)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO reports VALUES (43, 'audit: A came late', 0)")
        with pytest.raises(StaleOwner):
            guard.check(connection, 9, resource=RESOURCE, owner=B)
        assert connection.in_transaction
    assert len(rows(path, "reports")) == 2


def test_read_modify_write_loses_no_update(path: Path) -> None:
    """Threads that check, read and write in one transaction: fences only grow and every accepted write is there."""
    accepted: list[int] = []

    def work(fences: list[int]) -> None:
        for fence in fences:
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                try:
                    with connection:
                        guard.check(connection, fence, resource=RESOURCE)
                        (exports,) = connection.execute("SELECT exports FROM reports").fetchone()
                        connection.execute("UPDATE reports SET exports = ?", (exports + 1,))
                        accepted.append(fence)
                except StaleOwner:
                    continue

    stale_and_fresh = [[n * 4 + lane + 1 for n in range(40)] for lane in range(4)]
    threads = [threading.Thread(target=work, args=(fences,)) for fences in stale_and_fresh]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accepted == sorted(accepted)
    assert rows(path, "reports")[0][2] == len(accepted)
    assert rows(path)[0][1] == max(accepted) == 160


WORKER = """
import json, sqlite3, sys
from leasehold.errors import StaleOwner
from leasehold.guards.sql import FenceGuard

path, lane = sys.argv[1], int(sys.argv[2])
guard, accepted = FenceGuard(), []
connection = sqlite3.connect(path, timeout=30)
for number in range(100):
    fence = number * 4 + lane + 1
    try:
        with connection:
            guard.check(connection, fence, resource="report-export:42", owner=f"host:{lane}:secret.{number}")
            exports = connection.execute("SELECT exports FROM reports").fetchone()[0]
            connection.execute("UPDATE reports SET exports = ?, body = ?", (exports + 1, str(fence)))
        accepted.append(fence)
    except StaleOwner:
        pass
print(json.dumps(accepted))
"""


@pytest.mark.slow
def test_processes_fresh_and_stale(path: Path) -> None:
    """Four processes present fences in a race: no update is lost, and the row is the work of the newest fence."""
    command = [sys.executable, "-c", WORKER, str(path)]
    workers = [subprocess.Popen([*command, str(lane)], stdout=subprocess.PIPE, text=True) for lane in range(4)]
    accepted = [fence for worker in workers for fence in json.loads(worker.communicate(timeout=50)[0])]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert rows(path, "reports") == [(42, str(max(accepted)), len(accepted))]
    assert rows(path)[0][1] == max(accepted) == 400
