"""``advisory_lock``: a name for this transaction alone. PostgreSQL's own lock, which ends with the transaction.

It is a lock of the transaction, never of the session: behind PgBouncer the next client of a session would find it.

    one try    pg_try_advisory_xact_lock: a busy lock is an answer, and no error, so the transaction goes on
    waiting    lock_timeout, for the wait alone, inside a block that catches its error and thereby undoes the setting;
               then one more try, which says how the wait has ended: a transaction may take its own lock again
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, overload

from leasehold._core.durations import wait_seconds
from leasehold._core.names import Name, make_name
from leasehold._sql.dialects import Dialect
from leasehold._sql.errors import Translation, has_code, translated
from leasehold._sql.run import StatementFlow, run
from leasehold._sql.statements import VALUE, Statement, statement
from leasehold.errors import InvalidRequest, LeaseholdError, NotAcquired, StoreUnavailable, Unsupported

if TYPE_CHECKING:
    from datetime import date, timedelta
    from uuid import UUID

    from leasehold._sql.connections import AsyncTransaction, Transaction

LONGEST_MS = 2_147_483_647  # lock_timeout is an int of 32 bits; 0 would be for ever
TIMED_OUT = ("55P03", "57014")  # the user's own lock_timeout, or statement_timeout, was shorter
TRY = f"""\
SELECT pg_is_in_recovery(), current_setting('transaction_isolation'),
CASE WHEN pg_is_in_recovery() OR current_setting('transaction_isolation') = 'repeatable read' THEN NULL
ELSE pg_try_advisory_xact_lock(CAST({VALUE} AS bigint)) END"""
WAIT_FOR_EVER = f"SELECT pg_advisory_xact_lock(CAST({VALUE} AS bigint))"
WAIT = """\
DO $$ DECLARE before text := current_setting('lock_timeout'); BEGIN
PERFORM set_config('lock_timeout', '{ms}', true); PERFORM pg_advisory_xact_lock({key});
PERFORM set_config('lock_timeout', before, true);
EXCEPTION WHEN lock_not_available THEN NULL; END $$"""


@overload
def advisory_lock(
    tx: Transaction, kind: str, *ids: str | int | UUID | date, wait: float | str | timedelta | None = 0
) -> None: ...
@overload
def advisory_lock(
    tx: AsyncTransaction, kind: str, *ids: str | int | UUID | date, wait: float | str | timedelta | None = 0
) -> Coroutine[Any, Any, None]: ...
def advisory_lock(
    tx: Any, kind: str, *ids: str | int | UUID | date, wait: float | str | timedelta | None = 0
) -> Coroutine[Any, Any, None] | None:
    """Lock a name until your transaction ends, on PostgreSQL. No table, no lease, no ttl.

    ``kind`` and ``ids`` name it, as they name a lock of a coordinator; no row has to exist. When another transaction
    has it, NotAcquired comes at once, nothing was changed, and your transaction goes on. With ``wait=5`` the database
    waits for at most five seconds, in the order of arrival, before that; with None until the lock is free, or until its
    own ``lock_timeout`` says to stop, and then you must roll back. A transaction may take its own lock again. With an
    async connection or session the same call is awaited.

    The lock ends with the transaction, by commit, rollback or the end of the connection, and with nothing else; so it
    is safe behind PgBouncer. A rollback to a savepoint ends what was locked after the savepoint. It excludes those who
    ask for the same name in the same database, and no one else: not a statement that does not ask.

    Raises Unsupported on other databases; InvalidRequest without a transaction, on a standby, whose locks nobody else
    sees, and in REPEATABLE READ, where you would read what was true before you had the lock; Conflict when the database
    ends a deadlock: roll back and run the transaction again.
    """
    name = make_name("", kind, ids)
    wait_ms = _wait_ms(wait)
    return run(tx, lambda dialect: _lock(name, wait_ms, dialect), _translation(name))


def _wait_ms(wait: object) -> int | None:
    seconds = wait_seconds(wait)
    return None if seconds is None else math.ceil(min(seconds * 1000, LONGEST_MS))


def key_of(name: Name) -> int:
    """The lock's number: 64 bits, with a sign. It is frozen: programs of two versions must agree on it. The text of a
    name is unambiguous, since a colon inside of a part is encoded."""
    return int.from_bytes(blake2b(name.text.encode(), digest_size=8).digest(), "big", signed=True)


def _lock(name: Name, wait_ms: int | None, dialect: Dialect) -> StatementFlow[None]:
    if dialect.name != "postgresql":
        raise Unsupported(
            f"advisory_lock is a lock of PostgreSQL, and this is {dialect.name}: lock a row that stands for it "
            "(leasehold.patterns.row_lock), or take a lease (hold.lock) and check its fence with a guard"
        )
    key = key_of(name)
    if (yield from _try(name, key)):
        return
    if wait_ms is None:
        yield statement(WAIT_FOR_EVER, key, gives=True)
        return
    if wait_ms:
        yield _wait(key, wait_ms)
        if (yield from _try(name, key)):
            return
    raise _busy(name, goes_on=True)


def _try(name: Name, key: int) -> StatementFlow[bool]:
    ((standby, isolation, locked),) = (yield statement(TRY, key, gives=True)).rows
    if standby:
        raise InvalidRequest(
            "this connection leads to a standby, where a lock excludes no one who is connected to the primary: "
            "connect to the primary (target_session_attrs=read-write)"
        )
    if locked is None:
        raise InvalidRequest(
            f"this transaction is in {str(isolation).upper()}: it would go on reading what was true before it had the "
            "lock, and miss what the last holder wrote. Use READ COMMITTED, the default, or SERIALIZABLE, which "
            "notices it at the commit"
        )
    return bool(locked)


def _wait(key: int, wait_ms: int) -> Statement:
    """Such a block takes no parameters; both are numbers of ours."""
    return statement(WAIT.format(ms=wait_ms, key=key), gives=False)


def _translation(name: Name) -> Translation:
    def translate(error: BaseException) -> LeaseholdError:
        if has_code(error, TIMED_OUT):
            return _busy(name, goes_on=False)
        found = translated(error, name.shown, ours=False)
        if type(found) is not StoreUnavailable:
            return found
        return StoreUnavailable(
            f"the database did not give the advisory lock {name.shown} ({type(error).__name__}): nothing was changed. "
            "Roll back, and run the whole transaction again"
        )

    return translate


def _busy(name: Name, *, goes_on: bool) -> NotAcquired:
    remedy = "Your transaction goes on: try again later, or roll back" if goes_on else "Roll back, and try again later"
    return NotAcquired(
        f"another transaction has the advisory lock {name.shown}: nothing was changed. {remedy}", resource=name.text
    )
