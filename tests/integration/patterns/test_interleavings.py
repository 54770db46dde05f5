"""Who waits for whom, and what he is told then: two connections step by step, at every isolation of two databases."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold.errors import NotAcquired
from leasehold.guards import Conflict
from leasehold.patterns import insert_once, row_lock, transition
from tests.integration.guards.test_sql_interleavings import Pair, opened, pair
from tests.support.guards.lines import Line
from tests.support.waiting import PATIENCE

__all__ = ["pair"]  # a fixture
WHERE: dict[str, Any] = {"key": {"id": 1}}


def move(line: Line, seen: int) -> bool:
    """Count the row up, if it is as it was seen."""
    new: dict[str, Any] = {"when": {"number": seen}, "set": {"number": seen + 1}, "version": None}
    return bool(line.tx.do(lambda raw: transition(raw, "race_counter", **WHERE, **new)))


def insert(line: Line, number: int) -> Any:
    """A row with the key 2."""
    return line.tx.do(lambda raw: insert_once(raw, "race_counter", {"id": 2, "number": number}, key="id"))


def lock(line: Line, **more: Any) -> int:
    """-> what stands in the row."""
    return int(line.tx.do(lambda raw: row_lock(raw, "race_counter", **WHERE, **more))["number"])


def look(line: Line) -> None:
    """Where there are snapshots, one begins here."""
    line.tx.rows("SELECT COUNT(*) FROM race_other")


def after(pair: Pair, call: Callable[[Line], Any], end: Callable[[], None]) -> Any:
    """What B is told when it has waited for A's end; where its snapshot is then too old it begins again."""
    pair.b.begin()
    waiting: Any = pair.later(pair.b, partial(call, pair.b))
    end()
    try:
        told = waiting.result(PATIENCE)
    except Conflict:
        assert not pair.goes_on
        pair.b.rollback()
        pair.b.begin()
        told = call(pair.b)
    pair.b.commit()
    return told


def test_a_transition_waits_for_another(pair: Pair) -> None:
    """B saw the same as A and is late; if A rolls back, B is the first."""
    for end, moved in ((pair.a.rollback, True), (pair.a.commit, False)):
        seen = pair.number()
        pair.a.begin()
        assert move(pair.a, seen)
        assert after(pair, partial(move, seen=seen), end) is moved
        assert pair.number() == seen + 1


def test_an_insertion_waits_for_another(pair: Pair) -> None:
    """B is told of A's row; if A rolls back, the row is B's."""
    pair.a.begin()
    assert insert(pair.a, 10)
    assert after(pair, partial(insert, number=11), pair.a.rollback)
    pair.b.begin()
    pair.b.tx.rows("DELETE FROM race_counter WHERE id = 2")
    pair.b.commit()
    pair.a.begin()
    assert insert(pair.a, 10)
    told = after(pair, partial(insert, number=11), pair.a.commit)
    assert (bool(told), told.row["number"]) == (False, 10)


def test_a_lock_waits_for_another(pair: Pair) -> None:
    """B has the row as A left it; without waiting it is told at once."""
    pair.a.begin()
    assert lock(pair.a) == 0
    assert move(pair.a, 0)
    pair.b.begin()
    with pytest.raises(NotAcquired):
        lock(pair.b)
    pair.b.rollback()
    assert after(pair, partial(lock, nowait=False), pair.a.commit) == 1


def test_a_snapshot_that_is_older(pair: Pair) -> None:
    """Whoever has read before is told to begin again; without snapshots he is answered from what is there now."""
    level, line = pair.race.level, pair.race.line
    too_old = level == "REPEATABLE READ" or (level == "SERIALIZABLE" and line != "pymysql")
    for call, expected in (
        (partial(move, seen=0), False),
        (lock, 1),
        (lambda line: insert(line, 11).row["number"], 10),
    ):
        pair.b.begin()
        look(pair.b)
        pair.a.begin()
        pair.a.tx.rows("DELETE FROM race_counter")
        pair.a.tx.rows("INSERT INTO race_counter (id, number) VALUES (1, 1), (2, 10)")
        pair.a.commit()
        if too_old:
            with pytest.raises(Conflict):
                call(pair.b)
        else:
            assert call(pair.b) == expected
        pair.b.rollback()


@pytest.mark.slow
def test_many_losers_do_not_block_one_another(request: pytest.FixtureRequest) -> None:
    """In MariaDB those who were late hold the row together: none of them waits for the others, or is a deadlock."""
    with opened(request, "pymysql", "REPEATABLE READ") as pair:
        pair.a.begin()
        assert insert(pair.a, 10)
        pair.a.commit()
        for line in (pair.a, pair.b):
            line.begin()
            assert not insert(line, 11)
        for line in (pair.a, pair.b):
            assert not insert(line, 11)
            line.commit()
