"""A race of stale and fresh owners for one counter, at a chosen isolation, and who judges it. Also a program.

Each lane is one connection, of a thread or a process. It takes a fence after the other; the fences of all lanes are
woven together, so whoever is slow is stale. With each fence it reads and writes a few times, always in one transaction
that presents the fence first, and sometimes has looked at something else before: its snapshot is then older than its
check. A transaction that fails because somebody else was faster is run again from its beginning.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from leasehold.errors import StaleOwner
from leasehold.guards.sql import Conflict, FenceGuard
from tests.support.guards.desks import Place, Tx
from tests.support.guards.lines import LINES, Line
from tests.support.servers.database import Database

RESOURCE = "race:1"
GUARD = FenceGuard("race_fences")
TRIES = 1000  # of one transaction; then something never ends


# ---------------------------------------------------------------- a lane


@dataclass(frozen=True)
class Race:
    """What is raced for, where and how."""

    line: str
    level: str
    by: str  # the name of one of MANNERS
    place: Place
    lanes: int
    rounds: int
    seed: int

    def open(self) -> Line:
        """A connection."""
        return LINES[self.line](self.place, self.level)


def by_check(tx: Tx, fence: int, owner: str) -> None:
    """The guard's own table."""
    tx.do(lambda raw: GUARD.check(raw, fence, resource=RESOURCE, owner=owner))
    ((number,),) = tx.rows("SELECT number FROM race_counter WHERE id = 1")
    tx.rows(f"UPDATE race_counter SET number = {number + 1} WHERE id = 1")
    note(tx, fence, number)


def by_update(tx: Tx, fence: int, owner: str) -> None:
    """The fence column: presented before the read, and once more with the write."""
    update(tx, fence, owner, {})
    ((number,),) = tx.rows("SELECT number FROM race_counter WHERE id = 1")
    update(tx, fence, owner, {"number": number + 1})
    note(tx, fence, number)


def update(tx: Tx, fence: int, owner: str, values: dict[str, Any]) -> None:
    """Through the guard."""
    more: dict[str, Any] = {"resource": RESOURCE, "owner": owner, "owner_column": "last_owner"}
    tx.do(lambda raw: GUARD.update(raw, "race_counter", key={"id": 1}, values=values, lease=fence, **more))


def note(tx: Tx, fence: int, number: int) -> None:
    """What was done, in the order of the commits: whoever writes here holds the lock."""
    tx.rows(f"INSERT INTO race_history (fence, number) VALUES ({fence}, {number})")


MANNERS: dict[str, Callable[[Tx, int, str], None]] = {"check": by_check, "update": by_update}


def run_lane(race: Race, lane: int) -> Counter[str]:
    """-> how many transactions were accepted, refused, and run again."""
    chance, counts, line = random.Random(f"{race.seed}:{lane}"), Counter[str](), race.open()
    try:
        for number in range(race.rounds):
            late = chance.choice((0, 0, 0, 1, 2, 5))  # how long ago its lease began
            fence = max(number - late, 0) * race.lanes + lane + 1
            for _ in range(chance.randint(1, 3)):
                counts[_transaction(race, line, fence, lane, chance, counts)] += 1
        counts[_transaction(race, line, lane + 1, lane, chance, counts)] += race.rounds > 1  # stale beyond doubt
    finally:
        line.close()
    return counts


def _transaction(race: Race, line: Line, fence: int, lane: int, chance: random.Random, counts: Counter[str]) -> str:
    """Until it is accepted or refused."""
    for _ in range(TRIES):
        try:
            line.begin()
            if chance.random() < 0.4:
                line.tx.rows("SELECT COUNT(*) FROM race_other")  # where there are snapshots, one begins here
            MANNERS[race.by](line.tx, fence, f"host:{lane}:{'5ec2e7' * 6}.{fence}")
            line.commit()
        except StaleOwner:
            line.rollback()
            return "refused"
        except Exception as error:
            line.rollback()
            if not isinstance(error, Conflict) and not line.was_beaten(error):
                raise
            counts["beaten"] += 1
        else:
            return "accepted"
    raise AssertionError(f"{TRIES} tries of one transaction")


# ---------------------------------------------------------------- all of it


def prepare(race: Race, journal: str = "DELETE") -> None:
    """The tables."""
    if race.line == "sqlite3":
        identity = "INTEGER PRIMARY KEY AUTOINCREMENT"
    else:
        identity = "SERIAL PRIMARY KEY" if race.line != "pymysql" else "INTEGER PRIMARY KEY AUTO_INCREMENT"
    line = race.open()
    try:
        if race.line == "sqlite3":
            line.tx.rows(f"PRAGMA journal_mode = {journal}")
        line.begin()
        for table in ("fences", "counter", "history", "other"):
            line.tx.rows(f"DROP TABLE IF EXISTS race_{table}")
        line.tx.do(GUARD.create)
        columns = "id INTEGER PRIMARY KEY, number INTEGER, last_fencing_token BIGINT, last_owner VARCHAR(32)"
        line.tx.rows(f"CREATE TABLE race_counter ({columns})")
        line.tx.rows("INSERT INTO race_counter (id, number) VALUES (1, 0)")
        line.tx.rows(f"CREATE TABLE race_history (step {identity}, fence BIGINT, number INTEGER)")
        line.tx.rows("CREATE TABLE race_other (id INTEGER)")
        line.commit()
    finally:
        line.close()


def in_threads(race: Race) -> Counter[str]:
    """Every lane in a thread."""
    results: list[Counter[str]] = []
    threads = [
        threading.Thread(target=lambda lane=lane: results.append(run_lane(race, lane))) for lane in range(race.lanes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == race.lanes, "a lane has failed"
    return sum(results, Counter())


def in_processes(race: Race) -> Counter[str]:
    """Every lane in a process."""
    what = json.dumps(asdict(race))
    command = [sys.executable, "-m", "tests.support.guards.race", what]
    workers = [subprocess.Popen([*command, str(lane)], stdout=subprocess.PIPE, text=True) for lane in range(race.lanes)]
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * race.lanes
    return sum((Counter(json.loads(output)) for output in outputs), Counter[str]())


def judge(race: Race, counts: Counter[str]) -> None:
    """No update was lost, and nobody was accepted after somebody newer."""
    line = race.open()
    try:
        line.begin()
        history = line.tx.rows("SELECT fence, number FROM race_history ORDER BY step")
        ((number, last, _),) = line.tx.rows("SELECT number, last_fencing_token, last_owner FROM race_counter")
        seen = line.tx.rows("SELECT fence FROM race_fences")
        line.rollback()
    finally:
        line.close()
    fences = [fence for fence, _ in history]
    assert number == len(history) == counts["accepted"] > 0, f"lost updates: {race}, {counts}"
    assert [read for _, read in history] == list(range(number)), f"somebody has read what was replaced: {race}"
    assert fences == sorted(fences), f"a stale owner was accepted: {race}"
    assert counts["refused"] > 0, f"nobody was stale: {race}"
    assert (seen if race.by == "check" else [(last,)]) == [(max(fences),)]


def main(what: str, lane: str) -> None:
    """One lane, as a program: prints its counts."""
    told = json.loads(what)
    if isinstance(told["place"], dict):
        told["place"] = Database(**told["place"])
    sys.stdout.write(json.dumps(run_lane(Race(**told), int(lane))))


if __name__ == "__main__":
    main(*sys.argv[1:])
