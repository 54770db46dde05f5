"""A race of processes for one place on a results. Also a program: ``race <kind> <where> <lane> <lanes>``.

The fences of all lanes are woven together, so that whoever is slow is stale. Each lane opens, writes, and looks; it
prints what it was told, for the judge.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from leasehold.errors import StaleOwner
from leasehold.patterns.results import RedisResultStore, SQLiteResultStore, SQLResultStore
from leasehold.testing.results import Presenter
from tests.support.servers.database import Database

NAME = "race:1"
ROUNDS = 20


@contextmanager
def open_results(kind: str, where: str) -> Iterator[Any]:
    """Of a file, a server's port, or a database."""
    if kind == "file":
        with closing(SQLiteResultStore(where)) as results:
            yield results
    elif kind == "redis":
        import redis

        with redis.Redis(port=int(where)) as client:
            yield RedisResultStore(client)
    else:
        with closing(CONNECT[kind](Database(**json.loads(where)))) as connection:
            yield SQLResultStore(transactions(connection), "race_results")


def transactions(connection: Any) -> Callable[[], Any]:
    """One connection is enough for a process that has one thread."""

    @contextmanager
    def begin() -> Iterator[Any]:
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    return begin


def _psycopg(place: Database) -> Any:
    import psycopg

    return psycopg.connect(place.dsn)


def _pymysql(place: Database) -> Any:
    import pymysql

    return pymysql.connect(**place.parameters, ssl_disabled=True)


CONNECT = {"postgresql": _psycopg, "mariadb": _pymysql}


def run_lane(results: Any, lane: int, lanes: int) -> dict[str, list[int]]:
    """-> the fences that were accepted to write, and those that were seen at the place, in their order."""
    chance, accepted, seen, newer = random.Random(lane), list[int](), list[int](), list[bool]()
    for number in range(ROUNDS):
        late = chance.choice((0, 0, 0, 1, 3))  # how long ago its lease began
        fence = max(number - late, 0) * lanes + lane + 1
        holder = Presenter(NAME, fence, f"host:{lane}:{'5ec2e7' * 6}.{fence}")
        try:
            found = results.open(holder)
            assert found is None or found.fence <= fence, "somebody newer was here, and it was let in"
            results.write(holder, str(fence), 60)
            accepted.append(fence)
        except StaleOwner as stale:
            newer.append((stale.seen or 0) > fence)
        entry = results.read(NAME)
        if entry is not None:
            assert entry.text == str(entry.fence), "a text of one, with the fence of another"
            seen.append(entry.fence)
    assert all(newer), "refused, and not by somebody newer"
    return {"accepted": accepted, "seen": seen}


def in_processes(kind: str, where: str, lanes: int) -> list[dict[str, list[int]]]:
    """Every lane in a process of its own."""
    command = [sys.executable, "-m", "tests.processes.patterns.results.race", kind, where]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen([*command, str(lane), str(lanes)], text=True, **pipes) for lane in range(lanes)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    answers = [worker.communicate(timeout=50) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * lanes, [complaint[-3000:] for _, complaint in answers]
    outputs = [said for said, _ in answers]
    return [json.loads(one) for one in outputs]


def judge(kind: str, where: str, lanes: int) -> None:
    """What stands there only ever grows, whoever looks; at the end it is the highest that was accepted."""
    results = in_processes(kind, where, lanes)
    for one in results:
        assert one["seen"] == sorted(one["seen"]), "an older text came after a newer one"
    refused = lanes * ROUNDS - sum(len(one["accepted"]) for one in results)
    assert refused > 0, "nobody was stale"
    highest = max(max(one["accepted"], default=0) for one in results)
    with open_results(kind, where) as results:
        assert results.read(NAME)[:2] == (str(highest), highest)


if __name__ == "__main__":
    kind, where, lane, lanes = sys.argv[1:]
    with open_results(kind, where) as results:
        results.read(NAME)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        sys.stdout.write(json.dumps(run_lane(results, int(lane), int(lanes))))
