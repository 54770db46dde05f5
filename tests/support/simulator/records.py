"""The simulated world of etcd and ZooKeeper: a server that keeps records, and the production turns in every process.

The server is what consensus makes of several: it never loses a change, and no change is half done. All else goes wrong:
requests and replies are lost and late, sessions end early or live on after their process, reads are stale (ZooKeeper:
never older than what the process has seen), watches are silent, the wall clock steps. Nothing doubles a request: each
is sent once, over TCP.

Half of the seeds play etcd, which compares who waits and remembers who was buried, and whose requests may overtake each
other on several connections; half ZooKeeper, which counts the places that were made, keeps what they offer, reads the
record after the places, and does the requests of a process in their order or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from leasehold._core import ledger, ops
from leasehold._core.types import Instant, State, Waiter, owner_digest
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.record import text
from leasehold.stores.record.requests import ANY, Change, Look, Offer, Outcome, Part, Place, Record, Server, Sight, Tell
from leasehold.stores.record.text import Kept
from leasehold.stores.record.turns import Pause, Turns
from tests.support.simulator.draws import CLOCK_ERROR
from tests.support.simulator.faults import CALM
from tests.support.simulator.plans import KINDS, Habits, Plan
from tests.support.simulator.process import Cancelled, Process
from tests.support.simulator.world import EPOCH_US, START, Event, Judge, World
from tests.support.simulator.world import Outcome as Answer

SESSION = 3.0  # seconds without a sign of life after which a session ends
EARLY = 0.05  # how likely a session ends for no reason, at each join in bad weather
STALE = 0.3  # how likely a read is stale, in bad weather
TORN = 0.3  # how likely something happens between the reading of the places and of the record
BESIDE = 0.7  # how likely another thread of a process looks soon, at each op
BESIDE_WITHIN = 0.05  # seconds
RESET = 0.5  # how likely a request that another one would overtake is lost with its connection
MOMENT = 0.01  # seconds: nobody gives a connection up for so little
SILENCE = 1.0  # seconds after which a connection is given up
OPERATOR = "operator"
UNFINISHED = 1.0  # seconds between two tries of a withdrawal that nobody waits for any more


class Version(NamedTuple):
    """A resource at one moment."""

    number: int  # counts all changes of the server
    text: str | None
    revision: int
    places: tuple[Spot, ...]
    queue: int = 0  # how many places were ever made


class Spot(NamedTuple):
    """A place, and the session that it belongs to."""

    owner: str
    number: int
    session: int
    text: str
    offer: Offer | None = None


NOTHING = Version(0, None, 0, ())


class RecordJudge(Judge):
    """A judge who also sees what is written."""

    def committed(self, op: Any, resource: str, before: State, after: State, places: tuple[Spot, ...]) -> None: ...


class RecordWorld(World):
    """True time, the network, and one server with records."""

    judge: RecordJudge

    def __init__(self, plan: Plan, judge: RecordJudge) -> None:
        super().__init__(plan, judge)
        self.ordered = plan.seed // len(KINDS) % 2 == 1  # each kind of seed on each kind of server
        self.buried: set[tuple[str, str]] = set()
        self.histories: dict[str, list[Version]] = {}
        self.tokens: dict[str, str] = {}  # digest -> owner, for those who judge
        self.committed_at: dict[tuple[str, int], float] = {}  # a mark of a resource -> when it was written
        self.joined_at: dict[int, float] = {}  # the number of a place -> when it was made
        self.lives_of = 0  # how often it lost its memory: no connection outlives that
        self.wall_shift = 0.0
        self._changes = 0
        self._sessions: set[int] = set()
        self._watches: list[Watch] = []
        self._operator = RecordProcess(self, Habits(OPERATOR, (), 1000, 1.0, 0.0))

    # ------------------------------------------------------------ the server

    def instant(self, at: float | None = None) -> Instant:
        """Only its wall clock is ever read by anybody."""
        seconds = START + (self.now if at is None else at) * self.plan.server_rate
        return Instant(int(seconds * 1000), EPOCH_US + int((seconds + self.wall_shift) * 1_000_000))

    def true_time(self, server_ms: int) -> float:
        return (server_ms / 1000 - START) / self.plan.server_rate

    def turn_clock(self, seconds: float) -> None:
        self.note("store", f"has its wall clock set by {seconds:.3f} s")
        self.wall_shift += seconds
        self.judge.turned(round(seconds * 1000))

    def wipe(self) -> None:
        """As a snapshot that is restored: everything is as it was in the beginning."""
        self.note("store", "loses its memory")
        self.lives_of += 1
        for resource in self.histories:
            self._keep(resource, NOTHING)
        self.states.clear()
        self.judge.wiped()

    def turn(self, op: Any) -> ops.Reply:
        """What an operator does, whose requests arrive at once."""
        answers: list[Any] = []
        self._operator.at_once(op, answers.append)
        if isinstance(answers[0], LeaseholdError):
            raise answers[0]
        reply: ops.Reply = answers[0]
        return reply

    def version(self, resource: str) -> Version:
        return self.histories[resource][-1] if resource in self.histories else NOTHING

    def _keep(self, resource: str, version: Version) -> None:
        self._changes += 1
        before = self.version(resource)
        self.histories.setdefault(resource, [NOTHING]).append(version._replace(number=self._changes))
        gone = set(before.places) - set(version.places)
        for watch in tuple(self._watches):
            if watch.resource == resource and (
                (watch.spot is None and version.revision != before.revision) or watch.spot in gone
            ):
                self._fire(watch)

    def perform(self, process: RecordProcess, request: Any, session: int, op: Any) -> Any:
        """At the server."""
        if isinstance(request, Tell):
            return False
        if isinstance(request, Look):
            return Sight(tuple([self._shown(process, name, True, request.texts) for name in request.resources]))
        assert isinstance(request, Change)
        if not all(self._holds(part, session) for part in request.parts):
            return Outcome(False, tuple([self._shown(process, part.resource) for part in request.parts]))
        for part in request.parts:
            self._carry_out(process, part, session, op)
        shown = [self._shown(process, part.resource) for part in request.parts]
        known = zip(request.parts, shown, strict=True)
        return Outcome(True, tuple([_told(part, one) for part, one in known]))

    def _holds(self, part: Part, session: int) -> bool:
        now = self.version(part.resource)
        if part.join is not None:
            behind = part.join.behind
            if behind is not None and all(one.number != behind.number for one in now.places):
                return False
            taken = any((one.owner, one.session) == (part.join.owner, session) for one in now.places)
            return session in self._sessions and not taken and (part.resource, part.join.owner) not in self.buried
        numbers = [one.number for one in now.places]
        if any(one is not None and one.number not in numbers for one in (part.place, part.touch)):
            return False
        if part.revision == ANY:
            return True
        if now.revision != part.revision:
            return False
        if part.first is not None:
            there = any(one.number == part.first.number for one in now.places)
            before = [one for one in now.places if one.number < part.first.number]
            first = self.ordered or not before
            return there and first
        return not part.nobody_waits or (now.queue == part.queue if self.ordered else not now.places)

    def _carry_out(self, process: RecordProcess, part: Part, session: int, op: Any) -> None:
        now = self.version(part.resource)
        removed = {one.number for one in (part.first, part.place, *part.leave) if one is not None}
        places = tuple([one for one in now.places if one.number not in removed])
        if part.join is not None:
            self.joined_at[self._changes + 1] = self.now
            places = (*places, Spot(part.join.owner, self._changes + 1, session, part.join.text, part.join.offer))
        changes = part.text is not None
        written = part.text if changes else now.text
        revision = self._changes + 1 if changes else now.revision
        if part.bury and not self.ordered:
            self.buried.add((part.resource, part.bury))
            places = tuple([one for one in places if one.owner != part.bury])
        joined = now.queue + (part.join is not None)
        self._keep(part.resource, Version(0, written or None, revision, places, joined))
        for watch in tuple(self._watches):
            touched = part.touch is not None and watch.spot is not None and watch.spot.number == part.touch.number
            if watch.resource == part.resource and touched:
                self._fire(watch)
        process.saw(part.resource, self._changes)
        self._judge(op, part.resource, now.places)

    def _judge(self, op: Any, resource: str, places: tuple[Spot, ...]) -> None:
        version = self.version(resource)
        kept = text.EMPTY if version.text is None else text.decode(version.text)
        for mark in kept.marks:
            self.committed_at.setdefault((resource, mark), self.now)
        before, after = self.states.get(resource, ledger.EMPTY), self._oracle(resource, kept, version.places)
        self.states[resource] = after
        self.note("store", "has", op, version.text, *[one.number for one in version.places])
        self.judge.committed(op, resource, before, after, places)

    def _oracle(self, resource: str, kept: Kept, places: tuple[Spot, ...]) -> State:
        """The state with the earliest moments at which anybody can think that something in it is over: who saw it when
        it was written, and has the fastest clock."""
        hurry = (1 + CLOCK_ERROR) / self.plan.server_rate
        seen = {mark: self.instant(self.committed_at[resource, mark]).ms for mark in kept.marks}
        state = text.here(kept, seen, 1 / hurry)
        holders = [self.named(one)._replace(delay_ms=int(one.delay_ms / hurry)) for one in state.holders]
        ended = [self.named(one) for one in state.ended]
        queue = [Waiter(self.tokens[one.owner], 1, 1, 0, since_us=one.number) for one in places]
        return state._replace(holders=tuple(holders), queue=tuple(queue), ended=tuple(ended))

    def named(self, one: Any) -> Any:
        """By its token, whichever way the record names it."""
        return one._replace(owner=self.tokens.get(owner_digest(one.owner), one.owner))

    # ------------------------------------------------------------ reading

    def _shown(self, process: RecordProcess, resource: str, stale: bool = False, texts: bool = False) -> Record:
        versions = self.histories.get(resource, [NOTHING])
        least = process.seen.get(resource, 0)
        possible = [one for one in versions if one.number >= least] or versions[-1:]
        version = before = versions[-1]
        if stale and self.ordered and self.weather is not CALM and self.random.random() < STALE:
            version = self.random.choice(possible)
        if stale and self.ordered:  # the places are read a moment before the record
            earlier = [one for one in possible if one.number <= version.number][-2:]
            before = self.random.choice(earlier) if self.random.random() < TORN else version
            before, version = self.read_order(before, version)
        process.saw(resource, version.number)
        places = [self._place(process, one, texts) for one in (before if self.ordered else version).places]
        return Record(resource, version.text, version.revision, tuple(places), before.queue)

    def read_order(self, earlier: Version, later: Version) -> tuple[Version, Version]:
        """Which the places are read from, and which the record is."""
        return earlier, later

    def _place(self, process: RecordProcess, spot: Spot, texts: bool) -> Place:
        owner, number, session, written, offer = spot
        return Place(owner, number, str(number), session == process.session, written if texts else "", offer)

    # ------------------------------------------------------------ sessions

    def begin_session(self) -> int:
        self._changes += 1
        self._sessions.add(self._changes)
        return self._changes

    def end_session(self, session: int) -> None:
        if session not in self._sessions:
            return
        self._sessions.remove(session)
        self.note("store", "ends the session", session)
        for resource in tuple(self.histories):
            version = self.version(resource)
            left = tuple([one for one in version.places if one.session != session])
            if left != version.places:
                self._keep(resource, version._replace(places=left))
                state = self.states.get(resource, ledger.EMPTY)
                numbers = [one.number for one in left]
                self.states[resource] = state._replace(
                    queue=tuple([one for one in state.queue if one.since_us in numbers])
                )

    def lives(self, session: int) -> bool:
        return session in self._sessions

    # ------------------------------------------------------------ watches

    def add_watch(self, watch: Watch) -> None:
        """It arrives a moment later; what has changed by then fires it at once."""
        self.at(self.now + self.weather.trip(self.random, self.weather.push_slow), partial(self._set, watch))

    def _set(self, watch: Watch) -> None:
        version = self.version(watch.resource)
        self._watches.append(watch)
        if (watch.spot is None and version.revision != watch.revision) or (
            watch.spot is not None and watch.spot not in version.places
        ):
            self._fire(watch)

    def _fire(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
        if self.random.random() < self.weather.push_lost:
            self.note("store", "a watch stays silent", watch.resource)
            return
        after = self.now + self.weather.trip(self.random, self.weather.push_slow)
        if self.ordered:
            self.at(after, partial(self._read_news, watch))
            return
        version = self.version(watch.resource)
        news = None
        if watch.spot is None and version.text is not None:
            news = Record(watch.resource, version.text, version.revision, None)
        self.at(after, partial(watch.process.run, partial(watch.changed, news)))

    def _read_news(self, watch: Watch) -> None:
        """The process reads what became of it, as a request of its own; mostly."""
        after = self.now + self.weather.trip(self.random, self.weather.push_slow)
        news = None
        if self.now >= self.stalled_until and self.random.random() >= self.weather.push_lost:
            news = self._shown(watch.process, watch.resource, True)
            news = news._replace(places=None if watch.spot is None else news.places)
        self.at(after, partial(watch.process.run, partial(watch.changed, news)))


def _told(part: Part, now: Record) -> Record:
    """What is known of a part that was done: its places only if they are read, too."""
    join = part.join
    if join is not None and join.behind is not None:
        mine = [one for one in now.places or () if one.ours and one.owner == join.owner]
        return Record(part.resource, None, ANY, tuple(mine), now.queue)
    reads = join is not None or (part.first is not None and part.first.ours)
    return now if reads else now._replace(places=None)


class Watch:
    """A watch of one process."""

    def __init__(self, process: RecordProcess, resource: str, changed: Callable[[Record | None], None]) -> None:
        self.process = process
        self.resource = resource
        self.revision = 0
        self.spot: Spot | None = None
        self._changed: Callable[[Record | None], None] | None = changed

    def changed(self, news: Record | None) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed(news)

    def close(self) -> None:
        self._changed = None


# ---------------------------------------------------------------- processes


class RecordProcess(Process):
    """A process with turns of its own. It is the server, the clock and the network card of these turns."""

    world: RecordWorld

    def __init__(self, world: RecordWorld, habits: Habits) -> None:
        super().__init__(world, habits)
        self.most_parts = 60
        self.server = "the simulated server"
        self.session = 0
        self.seen: dict[str, int] = {}
        self.offers = world.ordered
        self.arrival = 0.0  # of its last request
        self.underway: set[int] = set()  # requests that have not arrived, by their numbers
        self.sent = 0
        self._looking = False
        self.turns = Turns(cast("Server", self), self, self.receive, world.random.random)

    def call(self, op: Any, answer: Callable[[Answer], None]) -> Event:
        world = self.world
        world.note(self.name, "sends", op)
        world.judge.sent(op)
        for step in op.steps if isinstance(op, ops.Group) else (op,):
            owner = getattr(step, "owner", "") or getattr(step, "adopter", "")
            world.tokens[owner_digest(owner)] = owner
        if self.offers and world.random.random() < BESIDE:
            self.soon(world.now + world.random.random() * 2 * BESIDE_WITHIN, partial(self._look_beside, op.resource))
        run = Run(self, op, answer)
        run.step(None)
        return run

    def _look_beside(self, resource: str) -> None:
        """As another thread of the process does: the turns learn who waits."""
        Run(self, ops.Inspect(resource, queue=False), lambda _: None).step(None)

    def at_once(self, op: Any, answer: Callable[[Any], None]) -> None:
        """Without a network."""
        flow = self.turns.execute(op)
        try:
            request = flow.send(None)
            while True:
                request = flow.send(None if isinstance(request, Pause) else self.world.perform(self, request, 0, op))
        except StopIteration as end:
            answer(end.value)
        except LeaseholdError as error:
            answer(error)

    def run(self, do: Callable[[], None]) -> None:
        self._run(do)

    def saw(self, resource: str, number: int) -> None:
        self.seen[resource] = max(self.seen.get(resource, 0), number)

    def look_after(self) -> None:
        """Repeat what was given up and must be done, as the store does."""
        if self.turns.unfinished and not self._looking:
            self._looking = True
            self.soon(self.world.now + UNFINISHED, self._finish)

    def _finish(self) -> None:
        self._looking = False
        for op in tuple(self.turns.unfinished.values()):
            Run(self, op, lambda _: None).step(None)

    # ------------------------------------------------------------ a clock for the turns

    def now(self) -> float:
        return self.local()

    def instant(self) -> Instant:
        return Instant(int(self.local() * 1000), 0)

    goes_on = False

    def nap(self, until: float) -> float:
        raise NotImplementedError

    def wall_us(self) -> int:
        return self.world.instant().wall_us

    # ------------------------------------------------------------ a server for the turns

    def watch_record(self, record: Record, changed: Callable[[Record | None], None]) -> Watch:
        watch = Watch(self, record.resource, changed)
        watch.revision = record.revision
        self.world.add_watch(watch)
        return watch

    def watch_place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watch:
        watch = Watch(self, resource, changed)
        for version in self.world.histories.get(resource, ()):
            for spot in version.places:
                if spot.number == place.number:
                    watch.spot = spot
        self.world.add_watch(watch)
        return watch

    # ------------------------------------------------------------ its session

    def session_for(self, request: Any) -> int:
        """The session that a join is made with: a new one when the last is known to be over."""
        if not (isinstance(request, Change) and any(part.join for part in request.parts)):
            return self.session
        world = self.world
        if not world.lives(self.session):
            self.session = world.begin_session()
            if world.weather is not CALM and world.random.random() < EARLY:
                world.at(world.now + world.random.random() * SESSION, partial(world.end_session, self.session))
        return self.session

    def in_order(self, at: float) -> float:
        """When its next request arrives. The session keeps their order: one that would be overtaken is lost with its
        connection, or delays the next for a while."""
        world = self.world
        waits = self.arrival - at
        calm = world.weather is CALM
        if waits > SILENCE or (waits > MOMENT and (calm or world.random.random() < RESET)):
            self.underway.clear()
            self.arrival = at
        self.arrival = max(at, self.arrival)
        return self.arrival

    def freeze(self, seconds: float) -> None:
        super().freeze(seconds)
        if seconds > SESSION and self.session:
            self.world.at(self.world.now + SESSION, partial(self.world.end_session, self.session))

    def kill(self, vanish: bool) -> None:
        super().kill(vanish)
        if self.session:
            self.world.at(self.world.now + SESSION, partial(self.world.end_session, self.session))


class Run(Event):
    """One op of a process: its flow, from request to request. Calling it off throws into the flow what an interrupt or
    a cancellation throws."""

    __slots__ = ("answer", "ends", "flow", "op", "process", "request", "token")

    def __init__(self, process: RecordProcess, op: Any, answer: Callable[[Answer], None]) -> None:
        super().__init__(lambda: None)
        self.process, self.op, self.answer = process, op, answer
        self.flow: Any = process.turns.execute(op)
        self.ends = process.world.now + op.budget_ms / 1000
        self.token = 0  # answers to earlier requests are nobody's
        self.request: Any = None

    def call_off(self) -> None:
        flow, self.flow = self.flow, None
        self.token += 1
        if flow is None:
            return
        try:
            flow.throw(Cancelled())
        except (Cancelled, StopIteration):
            pass

    def step(self, reply: Any, error: LeaseholdError | None = None) -> None:
        self.token += 1
        flow = self.flow
        try:
            self.request = flow.send(reply) if error is None else flow.throw(error)
        except StopIteration as end:
            self.finish(end.value)
        except LeaseholdError as failure:
            self.finish(failure)
        else:
            self.send()

    def finish(self, outcome: Any) -> None:
        self.flow = None
        self.process.look_after()
        self.process.soon(self.process.world.now, partial(self.answer, outcome))

    def send(self) -> None:
        world, process, request = self.process.world, self.process, self.request
        answered = partial(self.answered, self.token)
        if isinstance(request, Pause):
            process.soon(world.now + request.seconds, partial(answered, None))
            return
        if world.now >= self.ends:
            process.soon(world.now, partial(answered, StoreUnavailable("out of time")))
            return
        session, life = process.session_for(request), world.lives_of
        process.sent += 1
        fate = world.weather.fate(world.random)
        if fate.deliver_after is not None:
            at = world.now + fate.deliver_after
            if world.ordered:
                at = process.in_order(at)
            process.underway.add(process.sent)
            world.at(at, partial(self.arrive, request, (session, life, process.sent), fate.reply_after, answered))
        patience = self.ends - world.now
        if fate.reset_after is not None:
            patience = min(patience, fate.reset_after)
        unknown = isinstance(request, Change) and not fate.refused
        error = OutcomeUnknown("no answer") if unknown else StoreUnavailable("refused")
        process.soon(world.now + patience, partial(answered, error))

    def arrive(
        self, request: Any, of: tuple[int, int, int], reply_after: float | None, answered: Callable[[Any], None]
    ) -> None:
        world, underway = self.process.world, self.process.underway
        session, life, number = of
        if number not in underway:
            return
        overtakes = world.ordered and min(underway) < number  # after a stall they arrive at the same moment
        if world.now < world.stalled_until or overtakes:
            later = max(world.stalled_until, world.now + 1e-6 if overtakes else 0)
            world.at(later, partial(self.arrive, request, of, reply_after, answered))
            return
        underway.remove(number)
        if life != world.lives_of:
            return
        reply = world.perform(self.process, request, session, self.op)
        if reply_after is not None:
            self.process.soon(world.now + reply_after, partial(answered, reply))

    def answered(self, token: int, reply: Any) -> None:
        if self.flow is None or token != self.token:
            return
        if isinstance(reply, LeaseholdError):
            self.step(None, reply)
        else:
            self.step(reply)
