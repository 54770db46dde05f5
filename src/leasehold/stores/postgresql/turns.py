"""One op, or several, as requests to the server: one statement where that is enough, else a turn of the ledger.

A turn locks the rows that it is about, applies the ledger to them, and writes what has changed, in one transaction of
two requests. Everything here is a flow: it yields a Request, or ``LISTEN``, and is sent what came of it; a thread and
an event loop drive it alike. Refused and Broken are raised inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence

from leasehold._core import ledger, plain
from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias, cast
from leasehold._core.names import matches
from leasehold._core.ops import (
    LISTINGS,
    Claim,
    Granted,
    Group,
    Inspect,
    Leaks,
    Page,
    Ping,
    Push,
    Release,
    Released,
    Renew,
    Renewed,
    Reply,
    ResourceOp,
    Scan,
    StoreOp,
    View,
    Watch,
)
from leasehold._core.policy import DAY_US, MAX_FENCE, PAGE
from leasehold._core.rules import EXCLUSIVE, ONLY_SLOT
from leasehold._core.types import Instant, State, Unreadable
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.postgresql import failures, pushes, rows, statements
from leasehold.stores.postgresql.listener import Listener
from leasehold.stores.postgresql.rows import Row
from leasehold.stores.postgresql.session import Broken, Refused, Request, Rows
from leasehold.stores.postgresql.statements import ROLLBACK, VERSION, Statements, array

MOST_ATTEMPTS = 20  # of a turn that others keep undoing; each of them has succeeded meanwhile
MOST_CROWDED = 1_000  # resources that are remembered to be so
LEAST_WAIT_MS = 50  # for a locked row, at the end of a budget
DAMAGED = Unreadable("its row", "is damaged", blocks=True)
WAITING = (Claim, Watch)  # their sender may get a push later

Answer: TypeAlias = "list[Rows]"
Flow: TypeAlias = Generator[Any, Any, Any]


class Again(Exception):
    """Nothing happened, and another session may succeed. Never leaves the store."""


class Listen(NamedTuple):
    """Yielded before a claim waits: True when a push will reach this process."""


LISTEN = Listen()


class Turns:
    """The ops of one table, for all sessions of a store."""

    def __init__(self, statements: Statements, server: str, listener: Listener) -> None:
        self._statements = statements
        self._server = server
        self._listener = listener
        self._swept = ""
        self._crowded: set[str] = set()  # when last seen, more than one lease was to be kept: one statement is no use

    # ------------------------------------------------------------ one op

    def execute(self, op: StoreOp, give_up: float) -> Generator[Any, Any, tuple[Reply, Sequence[Push]]]:
        """The reply, and the pushes for this process."""
        if isinstance(op, LISTINGS):
            return (yield from self._list(op)), ()
        quick = self.quick(op)
        if quick is not None:
            reply = yield from self.in_one_statement(*quick)
            if reply is not None:
                return reply, ()
        elif isinstance(op, Inspect):
            view = yield from self._look(op)
            if view is not None:
                return view, ()
        if isinstance(op, Claim) and not op.enqueue:
            busy = yield from self._look(op)
            if busy is not None:
                return busy, ()
        (decided,), own = yield from self.together((op,), give_up)
        if isinstance(decided, LeaseholdError):
            raise decided
        return decided, own

    def quick(self, op: StoreOp) -> tuple[Request, Reply] | None:
        """The statement that may be enough, and the reply if it is."""
        make = QUICK.get(type(op))
        return None if make is None or op.resource in self._crowded else make(self._statements, op)

    def in_one_statement(self, request: Request, reply: Any) -> Generator[Any, Any, Reply | None]:
        """None when a turn must decide; nothing is changed then."""
        try:
            (found,) = yield request
        except Refused as error:
            if failures.passing(error.sqlstate):
                return None
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.broken(self._server, error) from error
        if not found.rows:
            return None
        if type(reply) is Granted:
            return reply._replace(fence=int(found.rows[0][0]))
        done: Reply = reply
        return done

    def _look(self, op: Inspect | Claim) -> Generator[Any, Any, Reply | None]:
        """The reply to an op that changes nothing here and now; None when it does change something."""
        try:
            (found,) = yield Request((self._statements.read, (op.resource.encode(),)))
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.unreachable(self._server, error) from error
        us, name, *columns = found.rows[0]
        now = _instant(us)
        try:
            state = ledger.EMPTY if name is None else rows.decode(_row(columns))
        except rows.UNREADABLE:
            if isinstance(op, Inspect):
                return View((), (), 0, 0, now.ms, unreadable=(DAMAGED,))
            return None
        outcome = ledger.apply(state, now, op)
        return outcome.reply if outcome.state == state else None

    def _list(self, op: Scan | Leaks | Ping) -> Generator[Any, Any, Page]:
        if isinstance(op, Leaks):  # nothing here can lack an end
            return Page((), "")
        return (yield from (self._scan(op) if isinstance(op, Scan) else self._ping(op)))

    def _scan(self, op: Scan) -> Generator[Any, Any, Page]:
        """The next names, in their order. A row that cannot be read is listed too: inspecting it shows why."""
        found = yield from self._page(op.cursor)
        items = tuple([name for now, name, row in found if matches(op.pattern, name) and _listed(now, row)])
        return Page(items, found[-1][1] if len(found) == PAGE else "")

    def _page(self, cursor: str) -> Generator[Any, Any, list[tuple[Instant, str, Row]]]:
        try:
            (found,) = yield Request((self._statements.page, (cursor.encode(),)))
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.unreachable(self._server, error) from error
        return [(_instant(us), name, _row(columns)) for us, name, *columns in found.rows]

    def _ping(self, op: Ping) -> Generator[Any, Any, Page]:
        """Reads the table: a server that answers without it is of no use."""
        read = (self._statements.read, (b"",))
        try:
            _, *version = yield Request(read, (VERSION, ())) if op.versions else Request(read)
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.unreachable(self._server, error) from error
        return Page(tuple([f"PostgreSQL {found.rows[0][0].split()[0]}" for found in version]), "")

    # ------------------------------------------------------------ a turn of the ledger

    def many(
        self, ops: Sequence[StoreOp], give_up: float
    ) -> Generator[Any, Any, tuple[list[Reply | LeaseholdError], Sequence[Push]]]:
        """All of these, each with its own reply or error."""
        if any(isinstance(op, LISTINGS) for op in ops):
            replies: list[Reply | LeaseholdError] = []
            for op in ops:
                reply, _ = yield from self.execute(op, give_up)
                replies.append(reply)
            return replies, ()
        return (yield from self.together(ops, give_up))

    def together(
        self, ops: Sequence[StoreOp], give_up: float
    ) -> Generator[Any, Any, tuple[list[Reply | LeaseholdError], Sequence[Push]]]:
        """All of these in one transaction, each with its own reply or error."""
        if _may_wait(ops) and not (yield LISTEN):
            ops = [_without_pushes(op) for op in ops]
        names = sorted({step.resource for op in ops for step in _steps(op)})
        for _ in range(MOST_ATTEMPTS):
            done = yield from self._attempt(ops, names, give_up)
            if done is not None:
                return done
            if time.monotonic() >= give_up:
                break
        raise StoreUnavailable(f"{self._server} is busy: other transactions keep changing this resource")

    def _attempt(
        self, ops: Sequence[StoreOp], names: Sequence[str], give_up: float
    ) -> Generator[Any, Any, tuple[list[Reply | LeaseholdError], Sequence[Push]] | None]:
        """None when another transaction was faster, and nothing has changed."""
        wait_ms = max(int((give_up - time.monotonic()) * 900), LEAST_WAIT_MS)
        try:
            *_, locked, clock = yield self._statements.lock(names, wait_ms)
        except Refused as error:
            yield from self._undo(error)
            return None
        except Broken as error:
            raise Again(str(error)) from error
        drafts = Drafts(locked.rows, _instant(clock.rows[0][0]), self._listener)
        replies = yield from self._decide(ops, drafts)
        own = [one for one in drafts.pushes if self._listener.owns(one.address)]
        if not (yield from self._write(drafts, give_up)):
            return None
        return replies, own

    def _write(self, drafts: Drafts, give_up: float) -> Generator[Any, Any, bool]:
        """Write what has changed, and commit. False when another transaction was faster."""
        added, changed, removed = drafts.changes()
        others = [pushes.encode(one) for one in drafts.pushes if not self._listener.owns(one.address)]
        if not (added or changed or removed or others):
            yield ROLLBACK
            return True
        try:
            yield self._statements.write(added, changed, removed, others, drafts.promises())
        except Refused as error:
            yield from self._undo(error)
            return False
        except Broken as error:
            if error.sqlstate == failures.STOOD_STILL:
                raise Again(str(error)) from error
            raise failures.broken(self._server, error) from error
        self._remember((*added, *changed), removed)
        return True

    def _remember(self, written: Sequence[tuple[str, Row]], removed: Sequence[str]) -> None:
        if len(self._crowded) > MOST_CROWDED:
            self._crowded.clear()
        self._crowded.difference_update(removed)
        for name, row in written:
            if row.state is None:
                self._crowded.discard(name)
            else:
                self._crowded.add(name)

    def _undo(self, error: Refused) -> Generator[Any, Any, None]:
        """The transaction has failed. Raises what the server refused, unless another transaction was only faster."""
        yield ROLLBACK
        if not failures.passing(error.sqlstate):
            raise failures.refusal(self._server, error) from error

    def _decide(self, ops: Sequence[StoreOp], drafts: Drafts) -> Generator[Any, Any, list[Reply | LeaseholdError]]:
        """The ledger is applied again when it has asked for a listener that was not known."""
        while True:
            replies = [self._apply(op, drafts) for op in ops]
            if not drafts.unknown:
                return replies
            keys = sorted(drafts.unknown)
            (found,) = yield statements.listening(keys)
            drafts.restart(dict(zip(keys, [value == "t" for (value,) in found.rows], strict=True)))

    def _apply(self, op: StoreOp, drafts: Drafts) -> Reply | LeaseholdError:
        damaged = [step.resource for step in _steps(op) if step.resource in drafts.damaged]
        if damaged:
            if isinstance(op, Inspect):
                return View((), (), 0, 0, drafts.now.ms, unreadable=(DAMAGED,))
            return StoreUnavailable(f"{self._server} {failures.DAMAGED_ROW}", resource=damaged[0])
        if not isinstance(op, Group):
            return drafts.turn(cast("ResourceOp", op))
        replies: list[Reply] = []
        for step in op.steps:
            replies.append(drafts.turn(step))
            if ledger.ends_group(step, replies[-1]):
                break
        return ledger.group_reply(replies)

    # ------------------------------------------------------------ renewals in bulk

    def renew_many(self, batch: Sequence[Holding]) -> Generator[Any, Any, list[int]]:
        """Which of these plain leases were not renewed."""
        names = [one.name.text for one in batch]
        columns = (
            names,
            [one.in_store()[0] for one in batch],
            [str(one.in_store()[1]) for one in batch],
        )
        try:
            # Not prepared: a plan that does not know how many leases there are compares each with each.
            values = [array(column) for column in columns]
            (found,) = yield Request((self._statements.renew_many, values), prepare=False)
        except Refused as error:
            raise failures.refusal(self._server, error) from error
        except Broken as error:
            raise failures.broken(self._server, error) from error
        renewed = {row[0] for row in found.rows}
        return [place for place, name in enumerate(names) if name not in renewed]

    # ------------------------------------------------------------ old rows

    def sweep(self, give_up: float) -> Generator[Any, Any, Sequence[Push]]:
        """Tidy the next rows in order of their names, so that names which are no longer used do not pile up (trap 37).
        Two clients may sweep the same ones."""
        found = yield from self._page(self._swept)
        self._swept = found[-1][1] if len(found) == PAGE else ""
        if not found:
            return ()
        before_us = found[0][0].wall_us - DAY_US
        old = [name for _, name, row in found if row.state is None and row.fence < before_us]
        if old:
            yield Request((self._statements.sweep, (array(old), str(before_us).encode())))
        due = [Inspect(name) for now, name, row in found if row.state is not None and _untidy(now, row)]
        if not due:
            return ()
        _, own = yield from self.together(due, give_up)
        return own


class Drafts:
    """The locked rows, and what the ops of a transaction make of them."""

    def __init__(self, locked: Sequence[tuple[str | None, ...]], now: Instant, listener: Listener) -> None:
        self.now = now
        self._listener = listener
        self.damaged: set[str] = set()
        self._rows: dict[str, Row] = {}
        self._before: dict[str, State] = {}
        self._listening: dict[int, bool] = {}
        for name, *columns, listening in locked:
            row = _row(columns)
            self._rows[name or ""] = row
            if row.listener is not None:
                self._listening.setdefault(row.listener, listening == "t")
            try:
                self._before[name or ""] = rows.decode(row)
            except rows.UNREADABLE:
                self.damaged.add(name or "")
        self.restart({})

    def restart(self, listening: dict[int, bool]) -> None:
        """Begin anew, knowing more."""
        self._listening.update(listening)
        self._after: dict[str, State] = {}
        self.pushes: list[Push] = []
        self.unknown: set[int] = set()

    def turn(self, op: ResourceOp) -> Reply:
        name = op.resource
        known = self._after.get(name)
        state = self._before.get(name, ledger.EMPTY) if known is None else known
        quick = plain.turn(state, self.now, op)
        if quick is not None:
            self._after[name], reply = quick
            return reply
        outcome = ledger.apply(state, self.now, op, self._reachable, known is not None)
        self._after[name] = outcome.state
        self.pushes.extend(outcome.pushes)
        return outcome.reply

    def _reachable(self, address: str) -> bool:
        if self._listener.owns(address):
            return self._listener.knows(address)
        key = rows.listener_key(address)
        if key is None:
            return False
        found = self._listening.get(key)
        if found is None:
            self.unknown.add(key)
        return found is not False

    def promises(self) -> bool:
        """Would it do harm if a crash of the server forgot this? Not if nobody was promised anything by it."""
        return any(_promises(self._before.get(name, ledger.EMPTY), after) for name, after in self._after.items())

    def changes(self) -> tuple[list[tuple[str, Row]], list[tuple[str, Row]], list[str]]:
        """The rows to add, to change and to remove."""
        added: list[tuple[str, Row]] = []
        changed: list[tuple[str, Row]] = []
        removed: list[str] = []
        for name, state in self._after.items():
            if state == self._before.get(name, ledger.EMPTY):
                continue
            row = rows.encode(state)
            if row is None:
                removed.append(name)
            else:
                (changed if name in self._rows else added).append((name, row))
        return added, changed, removed


# ---------------------------------------------------------------- ops that one statement can do


def _claim(texts: Statements, op: Claim) -> tuple[Request, Reply] | None:
    usual = op.rule in EXCLUSIVE and op.beat <= 1 and not op.delay_ms and 0 <= op.floor <= MAX_FENCE
    if not usual:
        return None
    values = (
        op.resource.encode(),
        str(op.floor).encode(),
        op.owner.encode(),
        str(op.ttl_ms).encode(),
        rows.details(op.rule, op.meta, op.holder_address).encode(),
    )
    return Request((texts.claim, values)), Granted(0, op.ttl_ms, ONLY_SLOT, 0, op.rule)


def _renew(texts: Statements, op: Renew) -> tuple[Request, Reply] | None:
    if op.exact or op.number or op.closed_ms or op.ticket or op.shared or op.meta or op.fences:
        return None
    return Request((texts.renew, (*_lease(op), str(op.ttl_ms).encode()))), Renewed(op.ttl_ms)


def _release(texts: Statements, op: Release) -> tuple[Request, Reply] | None:
    return None if op.forget_ms else (Request((texts.release, _lease(op))), Released())


def _lease(op: Renew | Release) -> tuple[bytes, ...]:
    return op.resource.encode(), op.owner.encode(), str(op.fence).encode()


QUICK: dict[type, Callable[[Statements, Any], tuple[Request, Reply] | None]] = {
    Claim: _claim,
    Renew: _renew,
    Release: _release,
}


# ---------------------------------------------------------------- what comes and goes


def _steps(op: StoreOp) -> Sequence[Any]:
    return op.steps if isinstance(op, Group) else (op,)


def _may_wait(ops: Sequence[StoreOp]) -> bool:
    return any(isinstance(step, WAITING) and step.address for op in ops for step in _steps(op))


def _without_pushes(op: StoreOp) -> Any:
    if isinstance(op, Group):
        return op._replace(steps=tuple([_without_pushes(step) for step in op.steps]))
    return op._replace(address="") if isinstance(op, WAITING) else op


def _instant(us: str | None) -> Instant:
    wall_us = int(us or 0)
    return Instant(wall_us // 1000, wall_us)


def _row(columns: Sequence[str | None]) -> Row:
    fence, owner, expires, ttl, since, details, state, listener = columns
    return Row(
        int(fence or 0), owner, _number(expires), _number(ttl), _number(since), details, state, _number(listener)
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _promises(before: State, after: State) -> bool:
    """A lease, its new end, a closed door, a limit, a note. What a lease that has ended leaves open is no promise."""
    if any(grant not in before.holders for grant in after.holders):
        return True
    kept = "closed_until_ms", "doors", "limit", "notes"
    return any(getattr(after, name) and getattr(after, name) != getattr(before, name) for name in kept)


def _listed(now: Instant, row: Row) -> bool:
    try:
        return ledger.listed(rows.decode(row), now)
    except rows.UNREADABLE:
        return True


def _untidy(now: Instant, row: Row) -> bool:
    try:
        state = rows.decode(row)
    except rows.UNREADABLE:  # the next op on it reports that
        return False
    return ledger.tidy(state, now) != state
