"""The machine: random ops, random time, random reachability, and every subject must answer what the ledger answers.

Nothing here says what is right: the ledger does. Owners are few and are used again and again, fences are old, new or
nobody's, mailboxes are closed or their processes killed, and any client may send any op.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from leasehold._core import ledger, ops
from leasehold._core.policy import MOST_PASSES
from leasehold.stores.clock import ManualClock
from tests.model.differential.subjects import LedgerSubject, Opener, Subject

ROOMS = ("report:42", "acme/règle:%7B:1")
CLIENTS = 2
SEATS = 6  # people at once; each has one owner for each life, as every client of ours does
PLACES = 4  # mailboxes, two of each client
QUICK_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a file for each example

HOW = st.sampled_from([(via, way) for way in ("sync", "asyncio", "batch") for via in range(CLIENTS)])
ROOM = st.sampled_from([ROOMS[0], ROOMS[0], ROOMS[1]])
SEAT = st.integers(0, SEATS - 1)
TTL = st.sampled_from([10_000, 900, 3_000, 90_000, 50])
PLACE = st.sampled_from([0, 1, 2, 3, None])
FLOOR = st.sampled_from([*["none"] * 4, "seen", "seen", "ahead", "wrong"])
FORGET = st.sampled_from([0, 0, 60_000, 400])
CLOSED = st.sampled_from([0, 0, 0, 250, 5_000, 200_000])
AIM = st.sampled_from([*["holder"] * 4, *["youngest"] * 2, "last", "older", "nobody's", "another's"])
# What claims ask for: rule, permits, limit. Each run has its own theme, so that crowds of one kind come together.
# Of one that holds alone the limit is how many fences its grant may bring.
MUTEX, READ, WRITE = ("mutex", 1, 1), ("read", 1, 1), ("write", 1, 1)
LEADER, WRITING_LEADER = ("mutex", 1, MOST_PASSES + 1), ("write", 1, 3)
THEMES = {
    "mutex": (MUTEX, LEADER),
    "readers and writers": (READ, WRITE, READ, READ, WRITING_LEADER),
    "permits": (("semaphore", 1, 3), ("semaphore", 2, 3), ("semaphore", 1, 2), ("semaphore", 3, 3)),
    "all": (READ, ("semaphore", 2, 2), MUTEX, WRITE, ("semaphore", 1, 4), ("semaphore", 3, 2)),
}
KIND = st.integers(0, 11)
LIMIT = st.sampled_from([2, 1, 3, 5])
DAY = 86_400_000
TIME = st.sampled_from([300, 301, 1, 0, 16, 1_000, 2_999, 3_000, 3_001, 9_001, 30_001, 61_000, DAY + 1_000, 30 * DAY])
STEP = st.sampled_from([-0.001, -1.0, -20.0, -3600.0, -86400.0, 1.0, 20.0, 60.0])
HALF = st.booleans()
SELDOM = st.sampled_from([False] * 7 + [True])
SEARCHES = (ops.Scan("*"), ops.Scan("*:4?"), ops.Scan("acme/r?gle:*"), ops.Scan("[a-z]*"), ops.Leaks("*"))
MOST_PAGES = 20
RULES = 24  # that there are
AT_ONCE = 10  # from the 11th on, Hypothesis plays most examples several times, hardly changed
MOST_EXAMPLES = 10_000
Targets = tuple[str, str, int]


class Comparison(RuleBasedStateMachine):
    """The ledger, the stores that are compared with it, and one clock for all of them."""

    themes: tuple[str, ...] = tuple(THEMES)

    def __init__(self, openers: Sequence[Opener], swept: bool = False, clock: ManualClock | None = None) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="differential-", dir=QUICK_DISK))
        self.clock = clock or ManualClock()
        self.ledger = LedgerSubject(self.clock)
        self.others = [opener(self.clock, self.folder) for opener in openers]
        self.swept = swept  # the stores tidy up at other times than the ledger: only reasons may differ
        self.connections: dict[int, str] = {}
        self.news = ""
        self.opened = 0
        self.lives = [0] * SEATS
        self.beats: dict[str, int] = {}
        self.given: list[Targets] = []  # every grant that was told: resource, owner, fence
        self.kinds: tuple[tuple[str, int, int], ...] = (MUTEX,)

    def open_box(self, place: int) -> None:
        """A new mailbox at that place, under a new name."""
        self.opened += 1
        self.connections[place] = f"box{place}.{self.opened}"
        for subject in (self.ledger, *self.others):
            subject.open(self.connections[place], place)

    def open_news(self) -> None:
        """Where holders from now on hear what happened to them."""
        self.opened += 1
        self.news = f"news.{self.opened}"
        for subject in (self.ledger, *self.others):
            subject.open(self.news, 0)

    def teardown(self) -> None:
        """The stored states are the same at the end: who holds, who waits, and what became of every owner."""
        try:
            for op in (SEARCHES[0], SEARCHES[-1]) if self.beats else ():
                self.search(op, (0, "sync"))
            for via in range(CLIENTS if self.beats else 0):
                for room in ROOMS:
                    self.send([ops.Inspect(room)], via)
                    self.send([ops.Beat(room, owner, 0) for owner in self.beats], via, "batch")
        finally:
            for subject in self.others:
                subject.close()
            shutil.rmtree(self.folder)

    # ------------------------------------------------------------ asking everybody

    def send(self, asked: Sequence[ops.StoreOp], via: int, way: str = "sync") -> None:
        """Every reply and every push that is delivered is the ledger's."""
        replies = self.ledger.ask(asked, via, way)
        pushes = self.ledger.heard(())
        for subject in self.others:
            found = subject.ask(asked, via, way)
            if self.swept:
                found, replies = [without_reason(one) for one in found], [without_reason(one) for one in replies]
            assert found == replies, f"{subject.name} answers {asked} with\n{found}, the ledger with\n{replies}"
            heard = subject.heard(pushes)
            assert sorted(heard) == sorted(pushes), f"{subject.name} pushes\n{heard}, the ledger\n{pushes}"
        steps = [step for op in asked for step in (op.steps if isinstance(op, ops.Group) else (op,))]
        for resource in {step.resource for step in steps} & self.ledger.states.keys():
            for grant in self.ledger.states[resource].holders:
                if (resource, grant.owner, grant.fence) not in self.given:
                    self.given.append((resource, grant.owner, grant.fence))

    def target(self, aim: str) -> Targets:
        """A grant that was made once, or something near it."""
        resource, owner, fence = self.given[len(self.given) // 2 if aim == "older" else -1]
        holders = self.ledger.states.get(ROOMS[0], ledger.EMPTY).holders
        if aim in ("holder", "youngest") and holders:
            grant = holders[0 if aim == "holder" else -1]
            return ROOMS[0], grant.owner, grant.fence
        if aim == "nobody's":
            return resource, owner, fence + 1
        if aim == "another's":
            return resource, self.owner(0), fence
        return resource, owner, fence

    def owner(self, seat: int, anew: bool = False) -> str:
        """The owner of whoever sits there."""
        self.lives[seat] += anew
        return f"host:{seat}:secret.{self.lives[seat]}"

    def busy(self, owner: str) -> bool:
        """Does it hold or wait somewhere, as of now?"""
        now = self.clock.instant()
        states = [ledger.tidy(state, now) for state in self.ledger.states.values()]
        return any(owner == one.owner for state in states for one in state.holders) or any(
            owner == one.owner for state in states for one in state.queue
        )

    def floor(self, kind: str) -> int:
        """The floor that a claim carries."""
        seen = max((fence for _, _, fence in self.given), default=0)
        return {"none": 0, "seen": seen, "ahead": seen + 10**9, "wrong": 2**53}[kind]

    def next_beat(self, owner: str, late: bool = False) -> int:
        """The number of its next beat; a late one repeats a number."""
        self.beats[owner] = self.beats.get(owner, 0) + (0 if late else 1)
        return self.beats[owner]

    def ask_for(self, room: str, seat: int, ttl_ms: int, place: int | None, how: tuple[int, str], floor: str = "none",
                enqueue: bool = True, late: bool = False, delay_ms: int = 0, kind: int = 0) -> None:  # fmt: skip
        """A claim, through the client whose mailbox it names."""
        op = self.a_claim(room, seat, ttl_ms, place, floor, enqueue, late, delay_ms, kind)
        self.send([op], how[0] if place is None else place % CLIENTS, how[1])

    def a_claim(self, room: str, seat: int, ttl_ms: int, place: int | None, floor: str, enqueue: bool, late: bool,
                delay_ms: int, kind: int) -> ops.Claim:  # fmt: skip
        """Of whoever sits there."""
        late = late and not self.swept  # when an owner that is over may begin anew depends on when it was tidied up
        owner = self.owner(seat, anew=not late and not self.busy(self.owner(seat)))
        rule, permits, limit = self.kinds[kind % len(self.kinds)]
        return ops.Claim(
            room,
            owner,
            ttl_ms,
            beat=self.next_beat(owner, late),
            floor=self.floor(floor),
            enqueue=enqueue,
            rule=rule,
            permits=permits,
            limit=limit,
            address="" if place is None else self.connections[place],
            holder_address=self.news if seat % 2 else "",
            meta='{"né":"\ud800"}' if delay_ms else "",
            delay_ms=delay_ms,
        )

    # ------------------------------------------------------------ what always happens

    @rule(op=st.sampled_from(SEARCHES), how=HOW)
    def search(self, op: ops.Scan | ops.Leaks, how: tuple[int, str]) -> None:
        """Look for all that there is, page by page; nothing of ours ever lacks an end."""
        expected = self.collect(self.ledger, op, how)
        for subject in self.others:
            found = self.collect(subject, op, how)
            assert found == expected, f"{subject.name} answers {op} with\n{found}, the ledger with\n{expected}"

    def collect(self, subject: Subject, op: ops.Scan | ops.Leaks, how: tuple[int, str]) -> set[str]:
        """Every page."""
        found: set[str] = set()
        for _ in range(MOST_PAGES):
            (page,) = subject.ask([op], *how)
            assert isinstance(page, ops.Page)
            found.update(page.items)
            op = op._replace(cursor=page.cursor)
            if not page.cursor:
                return found
        raise AssertionError(f"{subject.name}: never the last page")

    @rule(ms=TIME)
    def time_passes(self, ms: int) -> None:
        """A moment; or so long that beats grow old, tombstones and fences are forgotten."""
        self.clock.advance(ms / 1000)
        for _ in range(3 if self.swept else 0):
            self.send([ops.Inspect(ROOMS[1])], 0)  # so that the other room is tidied before anybody asks for it

    @precondition(lambda self: not self.swept)
    @rule(seconds=STEP)
    def wall_steps(self, seconds: float) -> None:
        """The wall clock is corrected, and with it the clock that leases end by where there is no other. What is over
        before that is forgotten by all of them first; and all see at the same moment what is too far ahead now."""
        self.send([ops.Inspect(room) for room in ROOMS], 0)
        for subject in self.others:
            subject.tidy(ROOMS, self.clock.instant())
        self.clock.step_wall(seconds)
        self.send([ops.Inspect(room) for room in ROOMS], 0)


class Differential(Comparison):
    """Crowds of every kind."""

    @initialize(ttl_ms=TTL, waiting=st.integers(0, 4), place=st.integers(0, PLACES), theme=KIND, first=KIND)
    def begin(self, ttl_ms: int, waiting: int, place: int, theme: int, first: int) -> None:
        """Somebody holds and others wait, as is usual where a lock is worth testing."""
        self.kinds = THEMES[self.themes[theme % len(self.themes)]]
        self.open_news()
        for one in range(PLACES):
            self.open_box(one)
        for seat in range(waiting + 1):
            where = (place + seat) % (PLACES + 1)
            address = where if where < PLACES else None
            self.ask_for(ROOMS[0], seat, ttl_ms if seat else 10_000, address, (seat, "sync"), kind=first + seat)

    # ------------------------------------------------------------ what clients send

    @rule(room=ROOM, seat=SEAT, ttl_ms=TTL, place=PLACE, how=HOW, floor=FLOOR, kind=KIND)
    def claim(self, room: str, seat: int, ttl_ms: int, place: int | None, how: tuple[int, str], floor: str,
              kind: int) -> None:  # fmt: skip
        """Ask for it, and wait."""
        self.ask_for(room, seat, ttl_ms, place, how, floor, kind=kind)

    @rule(room=ROOM, seat=SEAT, ttl_ms=TTL, place=PLACE, how=HOW, enqueue=HALF, late=HALF, delay_ms=CLOSED, kind=KIND)
    def claim_oddly(self, room: str, seat: int, ttl_ms: int, place: int | None, how: tuple[int, str], enqueue: bool,
                    late: bool, delay_ms: int, kind: int) -> None:  # fmt: skip
        """Ask once, or again with an owner that is over, or with a lock-delay."""
        self.ask_for(room, seat, ttl_ms, place, how, "none", enqueue, late, delay_ms, kind)

    @rule(seat=SEAT, ttl_ms=TTL, place=PLACE, turned=HALF, enqueue=HALF, how=HOW, kind=KIND)
    def claim_together(self, seat: int, ttl_ms: int, place: int | None, turned: bool, enqueue: bool,
                       how: tuple[int, str], kind: int) -> None:  # fmt: skip
        """Both rooms in one step, in one order or the other."""
        rooms = ROOMS[::-1] if turned else ROOMS
        steps = [
            self.a_claim(room, (seat + at) % SEATS, ttl_ms, place, "none", enqueue, False, 0, kind + at)
            for at, room in enumerate(rooms)
        ]
        self.send([ops.Group(tuple(steps))], how[0] if place is None else place % CLIENTS, how[1])

    @precondition(lambda self: self.given)
    @rule(aim=AIM, forget_ms=FORGET, how=HOW)
    def release_together(self, aim: str, forget_ms: int, how: tuple[int, str]) -> None:
        """Several are given back in one step."""
        held = [self.target(aim), *self.given[-2:]]
        self.send([ops.Group(tuple([ops.Release(*one, forget_ms) for one in held]))], *how)

    @rule(room=ROOM, seat=SEAT, late=HALF, floor=FLOOR, how=HOW)
    def beat(self, room: str, seat: int, late: bool, floor: str, how: tuple[int, str]) -> None:
        """A sign of life, perhaps one that was overtaken."""
        owner = self.owner(seat)
        self.send([ops.Beat(room, owner, self.next_beat(owner, late), self.floor(floor))], *how)

    @rule(late=HALF, how=HOW)
    def beat_all(self, late: bool, how: tuple[int, str]) -> None:
        """Everybody who waits is alive."""
        owners = [self.owner(seat) for seat in range(SEATS)]
        self.send([ops.Beat(ROOMS[0], one, self.next_beat(one, late)) for one in owners], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, ttl_ms=TTL, exact=HALF, number=st.integers(0, 3), closed_ms=CLOSED, how=HOW)
    def renew(self, aim: str, ttl_ms: int, exact: bool, number: int, closed_ms: int, how: tuple[int, str]) -> None:
        """Hold on, or extend."""
        room, owner, fence = self.target(aim)
        self.send([ops.Renew(room, owner, fence, ttl_ms, exact, number, closed_ms)], *how)

    @precondition(lambda self: self.given)
    @rule(
        aim=AIM,
        ttl_ms=TTL,
        number=st.integers(0, 3),
        shared=HALF,
        meta=st.sampled_from(["", "né \ud800", "b"]),
        how=HOW,
    )
    def renew_as(self, aim: str, ttl_ms: int, number: int, shared: bool, meta: str, how: tuple[int, str]) -> None:
        """From now on a reader, or with something else to say of itself."""
        room, owner, fence = self.target(aim)
        self.send([ops.Renew(room, owner, fence, ttl_ms, number=number, shared=shared, meta=meta)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, ttl_ms=TTL, fences=st.sampled_from([0, 1, 2, MOST_PASSES, 1_000_000]), tell=HALF, how=HOW)
    def renew_for_others(self, aim: str, ttl_ms: int, fences: int, tell: bool, how: tuple[int, str]) -> None:
        """With fences for those to whom the lease is passed on, and to be told of the next claim."""
        room, owner, fence = self.target(aim)
        self.send([ops.Renew(room, owner, fence, ttl_ms, fences=fences, tell=tell)], *how)

    @rule(room=ROOM, limit=LIMIT, how=HOW)
    def resize(self, room: str, limit: int, how: tuple[int, str]) -> None:
        """Another number of permits, for everybody."""
        self.send([ops.Resize(room, limit)], *how)

    @rule(room=ROOM, seat=st.integers(0, SEATS + 1), place=PLACE, how=HOW)
    def watch(self, room: str, seat: int, place: int | None, how: tuple[int, str]) -> None:
        """Look, and be told; also by somebody who holds or waits himself."""
        owner = self.owner(seat) if seat < SEATS else f"host:{seat}:watcher.1"
        address = "" if place is None else self.connections[place]
        self.send([ops.Watch(room, owner, address)], how[0] if place is None else place % CLIENTS, how[1])

    @precondition(lambda self: self.given)
    @rule(aim=AIM, forget_ms=FORGET, again=HALF, how=HOW)
    def release(self, aim: str, forget_ms: int, again: bool, how: tuple[int, str]) -> None:
        """Give it back."""
        room, owner, fence = self.target(aim)
        self.send([ops.Release(room, owner, fence, forget_ms, again and not self.swept)], *how)

    @rule(room=ROOM, seat=SEAT, forget_ms=FORGET, how=HOW)
    def withdraw(self, room: str, seat: int, forget_ms: int, how: tuple[int, str]) -> None:
        """Give up whatever there is."""
        self.send([ops.Withdraw(room, self.owner(seat), forget_ms)], *how)

    @rule(room=ROOM, queue=HALF, how=HOW)
    def inspect(self, room: str, queue: bool, how: tuple[int, str]) -> None:
        """Look, also without those who wait."""
        self.send([ops.Inspect(room, queue=queue)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, request=st.sampled_from("pq"), delay_ms=st.sampled_from([None, 0, 700, 10**5]), force=HALF, how=HOW)
    def evict(self, aim: str, request: str, delay_ms: int | None, force: bool, how: tuple[int, str]) -> None:
        """Take it away, twice, with a word about why."""
        room, owner, fence = self.target(aim)
        note = '{"why": "né \ud800"}' if force else ""
        for _ in range(2):
            self.send([ops.Evict(room, owner, fence, request, delay_ms, force, note)], *how)
        self.send([ops.Inspect(room)], *how)

    @rule(room=ROOM, rarely=st.integers(0, 9), how=HOW)
    def evict_many(self, room: str, rarely: int, how: tuple[int, str]) -> None:
        """One after the other, so that old notes must go."""
        for number in range(0 if rarely else 22):
            self.claim(room, number % SEATS, 10_000, None, how, "none", number)
            room, owner, fence = self.target("last")
            self.send([ops.Evict(room, owner, fence, f"r{number}", 0, True, str(number))], *how)
        self.send([ops.Inspect(room)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, times=st.integers(1, 2), note=st.sampled_from(["", '{"why": "né \ud800"}']), how=HOW)
    def revoke(self, aim: str, times: int, note: str, how: tuple[int, str]) -> None:
        """Ask for it, politely, and perhaps again."""
        room, owner, fence = self.target(aim)
        for _ in range(times):
            self.send([ops.Revoke(room, owner, fence, note)], *how)
        self.send([ops.Inspect(room)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, ticket=st.sampled_from(["right", "right", "wrong", ""]), seat=SEAT, ttl_ms=TTL, floor=FLOOR, how=HOW)
    def adopt(self, aim: str, ticket: str, seat: int, ttl_ms: int, floor: str, how: tuple[int, str]) -> None:
        """Hand it over: a ticket is left with the grant, and somebody comes with one, twice, and then another."""
        room, owner, fence = self.target(aim)
        self.send([ops.Renew(room, owner, fence, ttl_ms, ticket="right")], *how)
        heir, late = self.owner(seat, anew=ticket != "wrong"), self.owner((seat + 1) % SEATS)
        for one in (heir, heir, late):
            self.beats.setdefault(one, 0)
            self.send([ops.Adopt(room, fence, ticket, one, ttl_ms, self.floor(floor), self.news)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, ttl_ms=TTL, seat=SEAT, via=st.integers(0, 1))
    def batch(self, aim: str, ttl_ms: int, seat: int, via: int) -> None:
        """What a watchdog sends: renewals and errands of several resources in one go."""
        room, holder, fence = self.target(aim)
        asked: list[ops.StoreOp] = [
            ops.Renew(room, holder, fence, ttl_ms),
            ops.Claim(ROOMS[1], self.owner(seat), ttl_ms, rule="no such rule"),
            ops.Release(room, holder, fence, again=not self.swept),
            ops.Renew(room, holder, fence, ttl_ms),
            ops.Withdraw(ROOMS[1], self.owner(seat), 400),
            ops.Renew(room, holder, fence, ttl_ms, number=1),
            *[ops.Renew(*one, ttl_ms, number=2) for one in self.given[-2:]],
        ]
        self.send(asked, via, "batch")

    # ------------------------------------------------------------ the world

    @rule(killed=HALF)
    def shut_news(self, killed: bool) -> None:
        """A holder's process ends, and with it the place where it hears of what happens to its leases."""
        for subject in (self.ledger, *self.others):
            subject.shut(self.news, killed)
        self.open_news()

    @rule(place=st.integers(0, PLACES - 1), killed=HALF, anew=HALF)
    def shut_box(self, place: int, killed: bool, anew: bool) -> None:
        """A waiter's process ends, well or badly; another takes its place."""
        address = self.connections[place]
        if address in self.ledger.alive:
            for subject in (self.ledger, *self.others):
                subject.shut(address, killed)
        if anew or killed:  # who was killed claims nothing any more
            self.open_box(place)


class PlainLeases(Comparison):
    """One lease at a time, and hardly ever anybody who waits: what some stores do on a shorter path."""

    @rule(room=ROOM, seat=SEAT, ttl_ms=TTL, how=HOW, floor=FLOOR, enqueue=SELDOM)
    def claim(self, room: str, seat: int, ttl_ms: int, how: tuple[int, str], floor: str, enqueue: bool) -> None:
        """Ask for it, mostly once."""
        self.ask_for(room, seat, ttl_ms, None, how, floor, enqueue)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, ttl_ms=TTL, how=HOW)
    def renew(self, aim: str, ttl_ms: int, how: tuple[int, str]) -> None:
        """Hold on."""
        self.send([ops.Renew(*self.target(aim), ttl_ms)], *how)

    @precondition(lambda self: self.given)
    @rule(aim=AIM, how=HOW)
    def release(self, aim: str, how: tuple[int, str]) -> None:
        """Give it back."""
        self.send([ops.Release(*self.target(aim))], *how)

    @rule(room=ROOM, seat=SEAT, how=HOW)
    def withdraw(self, room: str, seat: int, how: tuple[int, str]) -> None:
        """Give up whatever there is."""
        self.send([ops.Withdraw(room, self.owner(seat))], *how)

    @rule(room=ROOM, how=HOW)
    def inspect(self, room: str, how: tuple[int, str]) -> None:
        """Look."""
        self.send([ops.Inspect(room)], *how)


def without_reason(reply: object) -> object:
    """What was tidied up early is gone all the same, but why is forgotten sooner."""
    if isinstance(reply, ops.NoClaim):
        return ops.NoClaim("")
    return ops.NotYours("") if isinstance(reply, ops.NotYours) else reply


def play(openers: Sequence[Opener], number: int, examples: int, steps: int = 50, *, shrink: bool = True,
         swept: bool = False, clock: ManualClock | None = None, theme: str = "", often: str = "",
         machine: type[Comparison] = Differential) -> None:  # fmt: skip
    """Run the machine; the same number gives the same run, among the same modules. Every rule is as likely as any
    other, but those that are named as ``often`` come as often as all the others together."""

    class Played(machine):  # type: ignore[valid-type, misc]
        themes = (theme,) if theme else tuple(THEMES)

        def __init__(self) -> None:
            super().__init__(openers, swept, clock)

    names = often.split()
    for at in range(RULES if names else 0):
        setattr(Played, f"more_{at}", getattr(machine, names[at % len(names)]))
    chosen = settings(
        max_examples=AT_ONCE,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    print(f"seed {number}, {examples} examples")  # noqa: T201  # a failure must replay
    for first in range(0, examples, AT_ONCE):
        run_state_machine_as_test(seed(number * MOST_EXAMPLES + first)(Played), settings=chosen)
