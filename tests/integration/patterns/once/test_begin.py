"""The with form: by hand, and in one's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold.errors import InvalidRequest, LeaseLost, StaleOwner
from leasehold.patterns import KeyReused, OnceKey, RemoteError
from leasehold.patterns.results import SQLResultStore
from leasehold.testing import TurnableClock, freeze
from tests.support.servers.database import Database


def made(engine: Any) -> Any:
    """With accounts, and a results."""
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE transfers (amount INTEGER)"))
    SQLResultStore(engine).create()
    return engine


@pytest.fixture
def file_engine(tmp_path: Path) -> Iterator[Any]:
    """A database in a file."""
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    yield made(engine)
    engine.dispose()


@pytest.fixture(params=["sqlite", *(pytest.param(one, marks=pytest.mark.slow) for one in ("postgres", "mariadb"))])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each kind of database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("file_engine")
        return
    database: Database = request.getfixturevalue(f"{request.param}_database")
    engine = create_engine(database.sqlalchemy_url("psycopg" if request.param == "postgres" else "pymysql"))
    yield made(engine)
    engine.dispose()


def transfers(engine: Any) -> list[int]:
    """What was moved."""
    with engine.begin() as tx:
        return [row[0] for row in tx.execute(text("SELECT amount FROM transfers"))]


def move(hold: leasehold.Leasehold, engine: Any, amount: int, fails: Exception | None = None) -> Any:
    """The effect and the result in one transaction."""
    once = hold.once("transfer", "{id}", fingerprint="{amount}", store=SQLResultStore(engine))
    with once.begin(id="t-1", amount=amount) as key:
        if key.done:
            return key.result
        with engine.begin() as tx:
            tx.execute(text("INSERT INTO transfers VALUES (:amount)"), {"amount": amount})
            key.complete({"moved": amount}, tx=tx)
            if fails is not None:
                raise fails
    return key.result


def test_one_transaction_for_both(hold: leasehold.Leasehold, engine: Any) -> None:
    """The result is stored with the effect, or neither is."""
    with pytest.raises(KeyError):
        move(hold, engine, 5, KeyError("just before the commit"))
    assert transfers(engine) == []
    assert move(hold, engine, 5) == {"moved": 5} == move(hold, engine, 5)
    assert transfers(engine) == [5]
    with pytest.raises(KeyReused):
        move(hold, engine, 6)


def test_a_result_that_cannot_be_kept_rolls_back(hold: leasehold.Leasehold, engine: Any) -> None:
    """In a transaction nothing has happened yet: it is plainly refused, and the key is free."""
    once = hold.once("transfer", "{id}", store=SQLResultStore(engine))

    def work() -> None:
        with once.begin(id="t-1") as key, engine.begin() as tx:
            tx.execute(text("INSERT INTO transfers VALUES (5)"))
            key.complete(object(), tx=tx)

    with pytest.raises(InvalidRequest, match="type object"):
        work()
    assert transfers(engine) == [] and SQLResultStore(engine).read("transfer:t-1") is None


def test_a_late_transaction_is_rolled_back(
    hold: leasehold.Leasehold, engine: Any, connect_leasehold: Any, leasehold_clock: TurnableClock
) -> None:
    """One who slept past its ttl moves nothing: the fence is checked in its own transaction. True exactly once."""
    once = hold.once("transfer", "{id}", store=SQLResultStore(engine))

    def work() -> None:
        with once.begin(id="t-1") as key:
            assert key.lease is not None
            with freeze(key.lease):
                leasehold_clock.advance("31s")
                assert move(connect_leasehold(), engine, 7) == {"moved": 7}
            with engine.begin() as tx:
                tx.execute(text("INSERT INTO transfers VALUES (5)"))
                key.complete("late", tx=tx)

    with pytest.raises(StaleOwner):
        work()
    assert transfers(engine) == [7]


def test_a_transaction_that_is_tried_again(hold: leasehold.Leasehold, engine: Any) -> None:
    """After a deadlock, say: each try writes the result anew, and the one that commits counts."""
    with hold.once("transfer", 1, store=SQLResultStore(engine)).begin() as key:
        for amount in (5, 6, 7):
            with engine.connect() as tx:
                tx.execute(text("INSERT INTO transfers VALUES (:amount)"), {"amount": amount})
                key.complete(amount, tx=tx)
                (tx.rollback if amount < 7 else tx.commit)()
        with pytest.raises(InvalidRequest, match="done already"):
            key.complete(8)
    assert key.result == 7 and transfers(engine) == [7]
    with hold.once("transfer", 1, store=SQLResultStore(engine)).begin() as again:
        assert again.result == 7


def test_a_refusal_that_is_hushed_up(
    hold: leasehold.Leasehold, engine: Any, connect_leasehold: Any, leasehold_clock: TurnableClock
) -> None:
    """One who was refused in its transaction and goes on as if not is told at the end, and has no result."""
    once = hold.once("transfer", "{id}", store=SQLResultStore(engine))
    key = once.begin(id="t-1")

    def work() -> None:
        with key:
            assert key.lease is not None
            with freeze(key.lease):
                leasehold_clock.advance("31s")
                move(connect_leasehold(), engine, 7)
            with engine.connect() as tx, suppress(StaleOwner):
                key.complete("late", tx=tx)

    with pytest.raises(LeaseLost):
        work()
    assert not key.done


def test_a_transaction_around_it(hold: leasehold.Leasehold, tmp_path: Path) -> None:
    """The wrong way round, it commits later: nobody hangs, and the next finds what was committed."""
    path = tmp_path / "plain.db"
    results = SQLResultStore(lambda: sqlite3.connect(path))
    results.create()
    with closing(sqlite3.connect(path)) as tx:
        with hold.once("transfer", 1, store=results).begin() as key:
            key.complete("moved", tx=tx)
        tx.commit()
    with hold.once("transfer", 1, store=results).begin() as key:
        assert key.done and key.result == "moved"


async def test_awaited(async_hold: leasehold.AsyncLeasehold, file_engine: Any, tmp_path: Path) -> None:
    """The same over an asyncio engine."""
    awaited = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")
    once = async_hold.once("transfer", "{id}", store=SQLResultStore(awaited))
    for expected in (False, True):
        async with once.begin(id="t-1") as key:
            assert key.done is expected
            if not key.done:
                async with awaited.begin() as tx:
                    await tx.execute(text("INSERT INTO transfers VALUES (5)"))
                    await key.complete("moved", tx=tx)
        assert key.result == "moved"
    assert transfers(file_engine) == [5]
    await awaited.dispose()


# ---------------------------------------------------------------- by hand


def begun(hold: leasehold.Leasehold, **options: Any) -> OnceKey:
    """A key of a kind of its own."""
    key: OnceKey = hold.once("job", 1, **options).begin()
    return key


def test_leaving_without_a_result(hold: leasehold.Leasehold) -> None:
    """There is none then: the next may run, and is not told that somebody was interrupted."""
    with begun(hold) as key:
        assert not key.done and not key.interrupted and key.lease is not None and key.lease.state == "held"
    with begun(hold, wait=0) as key:
        assert not key.done and not key.interrupted


def test_an_error_in_the_body(hold: leasehold.Leasehold) -> None:
    """As for a function: it frees the key, or is the outcome."""
    with pytest.raises(KeyError), begun(hold):
        raise KeyError("freed")
    with pytest.raises(KeyError), begun(hold, errors=KeyError):
        raise KeyError("kept")
    with begun(hold) as key:
        assert key.done
        with pytest.raises(RemoteError, match="kept"):
            _ = key.result


def test_an_error_after_the_result(hold: leasehold.Leasehold) -> None:
    """It is raised, and changes nothing."""

    def work() -> None:
        with hold.once("job", 2).begin() as key:
            key.complete("done")
            raise KeyError("too late to matter")

    with pytest.raises(KeyError):
        work()
    with hold.once("job", 2).begin() as key:
        assert key.result == "done"


def test_misuse(hold: leasehold.Leasehold) -> None:
    """A result that is not there, a second one, one without a body, and a key that was used are errors that say so."""
    key = begun(hold)
    with pytest.raises(InvalidRequest, match="inside the with body"):
        key.complete()
    with key:
        with pytest.raises(InvalidRequest, match="not done yet"):
            _ = key.result
        with pytest.raises(InvalidRequest, match="SQLResultStore"):
            key.complete(1, tx=object())
        key.complete()
        assert key.done and key.result is None
        with pytest.raises(InvalidRequest, match="called once"):
            key.complete()
    with pytest.raises(InvalidRequest, match="used before"), key:
        pass
    with begun(hold) as key, pytest.raises(InvalidRequest, match="complete"):
        key.complete("again")


def test_inside_itself(hold: leasehold.Leasehold) -> None:
    """The same key inside its own work would wait for itself for ever: refused, and the outer one goes on."""

    @hold.once("job", "{number}")
    def work(number: int) -> str:
        if number == 1:
            with pytest.raises(InvalidRequest, match="wait for itself"):
                work(1)
            return work(2)
        return "inner"

    assert work(1) == work(2) == "inner"


def test_values_for_the_templates(hold: leasehold.Leasehold) -> None:
    """All that they name, and nothing else; a function for the fingerprint takes what it takes."""
    once = hold.once("job", "{id}", fingerprint="{body}")
    for values in ({}, {"id": 1}, {"id": 1, "body": 2, "boddy": 3}):
        with pytest.raises(InvalidRequest, match=r"not in the arguments|knows no 'boddy'"):
            once.begin(**values)
    by_function = hold.once("job", "{id}", fingerprint=lambda id, amount: amount)  # noqa: A006  # as it is called
    with by_function.begin(id=2, amount=5) as key:
        key.complete()
    with pytest.raises(KeyReused), by_function.begin(id=2, amount=6):
        pass


def test_what_is_shown(hold: leasehold.Leasehold) -> None:
    """Neither ids nor results in a repr; none of them is pickled."""
    import pickle

    once = hold.once("job", "secret-id")
    with once.begin() as key:
        key.complete("secret-result")
    assert "secret" not in f"{once!r} {key!r}"
    for one in (once, key):
        with pytest.raises(TypeError, match="stays in its process"):
            pickle.dumps(one)


def test_a_fingerprint_that_came_later(hold: leasehold.Leasehold) -> None:
    """Where one of both has none, nothing is compared."""
    assert hold.once("job", "{id}").call(lambda id, body: body, 1, "a") == "a"  # noqa: A006  # a parameter
    printed = hold.once("job", "{id}", fingerprint="{body}")
    assert printed.call(lambda id, body: body, 1, "b") == "a"  # noqa: A006  # a parameter
    assert printed.call(lambda id, body: body, 2, "b") == "b"  # noqa: A006  # a parameter
    assert hold.once("job", "{id}").call(lambda id: "c", 2) == "b"  # noqa: A006  # a parameter


def test_ids_that_are_hidden(connect_leasehold: Any) -> None:
    """With a key for ids the fingerprint is keyed, too: who reads the result store cannot guess bodies."""
    texts = []
    for key in ("one", "two"):
        hold = connect_leasehold(hide_ids=key)
        once = hold.once("job", 1, fingerprint=lambda: "0000")
        with once.begin() as began:
            began.complete()
        texts.append(hold._results.read(began.resource).text)
    assert texts[0] != texts[1]
