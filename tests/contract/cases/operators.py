"""The contract of handing over and of operators' calls: further cases, for every store and both flavours."""

from __future__ import annotations

from typing import Any

from leasehold.errors import InvalidRequest, LeaseLost, NotHeld, StoreUnavailable
from tests.contract.cases.lock import case, give_back
from tests.support.parties import Party, Step
from tests.support.scene import Scene, fails
from tests.support.waiting import PATIENCE


def scanned(party: Party, pattern: str = "*") -> list[Any]:
    """Everything that a scan shows, in order of its name."""

    async def gathered(found: Any) -> list[Any]:
        return [one async for one in found]

    def step(hold: Any) -> Any:
        found = hold.scan(pattern)
        return gathered(found) if hasattr(found, "__aiter__") else list(found)

    return sorted(party.do(step))


def can_be_told(scene: Scene, holder: Party, operator: Party, resource: str) -> None:
    """A holder can be reached from a moment after its grant; where the store has no pushes, not at all."""
    if holder.hold._engine.holder_address():
        scene.until(lambda: operator.do(lambda hold: hold.revoke(resource)), "the holder can be told")


def hears_of_eviction(scene: Scene, party: Party, lease: Any) -> None:
    """At once where the store can tell it; else at its next renewal."""
    if not party.hold._engine.holder_address():
        scene.pass_time(lease.ttl / 2)
    scene.until(lambda: lease.state == "lost", "the holder hears of it")


# ---------------------------------------------------------------- handing over


@case
def a_ticket_hands_the_lease_over(scene: Scene) -> None:
    """One gives away, another adopts: a new owner and a higher fence, and nobody in between."""
    a, b = scene.party(), scene.party()
    given = a.do(lambda hold: hold.lock("job", 7, ttl=9, meta={"run": 1}).acquire())
    ticket = a.do(lambda _: given.transfer())
    assert given.state == "released" and len(ticket) < 100
    assert b.do(lambda hold: hold.lock("job", 7).try_acquire()) is None
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert (lease.resource, lease.ttl, lease.state) == ("job:7", 9, "held")
    assert lease.fence > given.fence and lease.owner != given.owner
    assert scene.look("job:7").holders[0].meta == '{"run":1}'
    assert a.do(lambda _: given.release()) is False and scene.look("job:7").holders
    give_back(b, lease)
    scene.free("job:7")


@case
def a_ticket_is_good_once(scene: Scene) -> None:
    """The second who comes with it is told so, and takes nothing from the first."""
    a, b, c = scene.party(), scene.party(), scene.party()
    given = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert fails(LeaseLost, c.start(lambda hold: hold.adopt(ticket))).reason == "taken"
    b.do(lambda _: lease.extend(8))
    give_back(b, lease)
    assert fails(LeaseLost, c.start(lambda hold: hold.adopt(ticket))).reason == "taken"
    assert c.do(lambda hold: hold.lock("job").try_acquire()) is not None


@case
def a_ticket_ends_with_its_lease(scene: Scene) -> None:
    """Nobody renews what waits for its adopter: after its ttl others go on, and the ticket is worth nothing."""
    a, b = scene.party(), scene.party()
    given = a.do(lambda hold: hold.lock("job", ttl=3).acquire())
    ticket = a.do(lambda _: given.transfer())
    scene.pass_time(3.1)
    assert fails(LeaseLost, b.start(lambda hold: hold.adopt(ticket))).reason == "expired"
    lease = b.do(lambda hold: hold.lock("job").try_acquire())
    assert lease.fence > given.fence
    fails(LeaseLost, a.start(lambda hold: hold.adopt(ticket)))
    assert b.do(lambda _: lease.check()) is None


@case
def an_adopted_lease_is_renewed(scene: Scene) -> None:
    """It lives as long as its adopter, with a ttl of his own, and can be given away again."""
    a, b = scene.party(), scene.party()
    given = a.do(lambda hold: hold.lock("job", ttl=3).acquire())
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket, ttl=2))
    scene.pass_time(7)
    assert lease.state == "held" and lease.ttl == 2
    again = b.do(lambda _: lease.transfer())
    back = a.do(lambda hold: hold.adopt(again))
    assert back.fence > lease.fence > given.fence
    give_back(a, back)


@case
def who_waits_is_served_after_the_adopter(scene: Scene) -> None:
    """A hand-over does not open the door for the queue, and its order is kept."""
    a, b, c = scene.party(), scene.party(), scene.party()
    given = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    waiting = c.start(lambda hold: hold.lock("job").acquire())
    scene.queued("job", 1)
    ticket = a.do(lambda _: given.transfer())
    lease = b.do(lambda hold: hold.adopt(ticket))
    assert not waiting.done()
    give_back(b, lease)
    assert waiting.result(PATIENCE).fence > lease.fence


@case
def a_body_can_give_its_lease_away(scene: Scene) -> None:
    """Leaving a body whose lease was handed over raises nothing and releases nothing."""
    a, b = scene.party(), scene.party()
    tickets: list[Any] = []

    def body(lease: Any) -> Any:
        def keep(ticket: str) -> None:
            tickets.append(ticket)

        given = lease.transfer()
        return _then(given, keep)

    a.within(lambda hold: hold.lock("job", ttl=9), body).result(PATIENCE)
    lease = b.do(lambda hold: hold.adopt(tickets[0]))
    assert b.do(lambda _: lease.check()) is None
    give_back(b, lease)


def _then(value: Any, step: Any) -> Any:
    """Do this with a value that may have to be awaited first."""

    async def awaited() -> None:
        step(await value)

    return awaited() if hasattr(value, "__await__") else step(value)


@case
def what_was_lost_cannot_be_given_away(scene: Scene) -> None:
    """transfer() of a lease that is over says so."""
    a = scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=1, renew=False).acquire())
    scene.pass_time(1.1)
    assert fails(LeaseLost, a.start(lambda _: lease.transfer())).reason == "expired"


# ---------------------------------------------------------------- looking


@case
def inspect_shows_who_holds_and_who_waits(scene: Scene) -> None:
    """Holder, metadata, time left and queue; and nothing with which one could act as the owner."""
    a, b, c = scene.party(), scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", 7, ttl=9, meta={"run": 1}).acquire())
    waiting = b.start(lambda hold: hold.lock("job", 7, meta={"run": 2}).acquire())
    scene.queued("job:7", 1)
    seen = c.do(lambda hold: hold.inspect("job:7"))
    assert (seen.resource, seen.held, seen.fence, seen.closed_for) == ("job:7", True, lease.fence, 0)
    assert (seen.holder.fence, seen.holder.ttl, seen.holder.meta) == (lease.fence, 9, {"run": 1})
    assert 0 < seen.holder.expires_in <= 9 and lease.owner.startswith(seen.holder.owner + ":")
    waiters = [(True, {"run": 2})] if scene.capabilities.fair else []  # a store without a queue does not know them
    assert [(one.live, one.meta) for one in seen.waiters] == waiters
    assert lease.owner not in repr(tuple(seen)) and "job:7" not in repr(seen)
    assert c.do(lambda hold: hold.inspect(lease)).holder.fence == lease.fence
    assert c.do(lambda hold: hold.inspect(hold.lock("job", 7))).holder.fence == lease.fence
    give_back(a, lease)
    assert waiting.result(PATIENCE)


@case
def inspect_of_nothing_shows_nothing(scene: Scene) -> None:
    """A resource that nobody ever asked for is free, and stays unknown."""
    a = scene.party()
    seen = a.do(lambda hold: hold.inspect("never:seen"))
    assert (seen.held, seen.holder, seen.waiters, seen.fence, seen.notes) == (False, None, (), 0, ())
    assert scanned(a) == []


def _acquire(*name: Any) -> Step:
    return lambda hold: hold.lock(*name).acquire()


@case
def scan_shows_what_matches(scene: Scene) -> None:
    """Held resources by a pattern in which only * and ? are special, each once."""
    a = scene.party()
    kept = [a.do(_acquire(*one)) for one in (("job", 1), ("job", 22), ("[x]", "a*b"))]
    assert [one.resource for one in scanned(a)] == ["[x]:a*b", "job:1", "job:22"]
    assert [one.resource for one in scanned(a, "job:*")] == ["job:1", "job:22"]
    assert [one.resource for one in scanned(a, "job:?")] == ["job:1"]
    assert [one.resource for one in scanned(a, "[x]:*")] == ["[x]:a*b"]
    assert scanned(a, "jo") == [] and scanned(a, "[a-z]*") == []
    assert {one.holder.fence for one in scanned(a)} == {lease.fence for lease in kept}
    for lease in kept:
        give_back(a, lease)
    assert scanned(a) == []


# ---------------------------------------------------------------- taking away


@case
def evict_takes_a_lease_away(scene: Scene) -> None:
    """The holder is told, the door stays closed for what it had left, and a note is kept."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    can_be_told(scene, a, b, "job")
    done = b.do(lambda hold: hold.evict("job", fence=lease.fence, reason="it hangs", by="on call"))
    assert done.fence > lease.fence and 8 < done.closed_for <= 9 and lease.owner.startswith(done.owner + ":")
    hears_of_eviction(scene, a, lease)
    assert fails(LeaseLost, a.start(lambda _: lease.check())).reason == "evicted"
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is None
    seen = b.do(lambda hold: hold.inspect("job"))
    assert not seen.held and seen.closed_for > 0
    (note,) = evictions(seen)
    assert (note.fence, note.by, note.reason) == (lease.fence, "on call", "it hangs")
    scene.pass_time(9.1)
    assert b.do(lambda hold: hold.lock("job").try_acquire()).fence > done.fence
    assert evictions(b.do(lambda hold: hold.inspect("job"))) == [note]


def evictions(seen: Any) -> list[Any]:
    """The notes of them: that somebody asked before is noted as well."""
    return [one for one in seen.notes if one.event == "evicted"]


@case
def evict_hits_nobody_else(scene: Scene) -> None:
    """It names a fence: whoever holds by now with another one is left alone."""
    a, b = scene.party(), scene.party()
    old = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    give_back(a, old)
    lease = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    error = fails(NotHeld, b.start(lambda hold: hold.evict("job", fence=old.fence, reason="late")))
    assert str(lease.fence) in str(error) and lease.owner not in str(error)
    fails(NotHeld, b.start(lambda hold: hold.evict("nobody", fence=old.fence, reason="late")))
    assert a.do(lambda _: lease.check()) is None


@case
def evict_opens_the_door_early_by_force_alone(scene: Scene) -> None:
    """The holder may work for as long as its lease had left: less than that needs force."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=9).acquire())
    step = {"fence": lease.fence, "reason": "its host is gone", "delay": 0}
    error = fails(InvalidRequest, b.start(lambda hold: hold.evict("job", **step)))
    assert "force=True" in str(error) and scene.look("job").holders
    assert b.do(lambda hold: hold.evict("job", **step, force=True)).closed_for == 0
    assert b.do(lambda hold: hold.lock("job").try_acquire()) is not None


@case
def revoke_asks_the_holder(scene: Scene) -> None:
    """The holder hears that somebody wants it, and holds on until it gives back by itself."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=60).acquire())
    asked: list[str] = []
    a.do(lambda _: lease.on_revoked(lambda: asked.append("asked")))
    revoked = a.do(lambda _: lease.revoked)
    can_be_told(scene, a, b, "job")
    if a.hold._engine.holder_address():
        scene.until(lambda: bool(asked) and revoked.is_set(), "the holder hears of it")
    assert a.do(lambda _: lease.check()) is None
    for _ in range(2):  # whoever asks again leaves no second note
        b.do(lambda hold: hold.revoke("job", fence=lease.fence, reason="a deployment", by="on call"))
    note = b.do(lambda hold: hold.inspect("job")).notes[-1]
    assert (note.event, note.fence, note.by, note.reason) == ("asked", lease.fence, "on call", "a deployment")
    assert lease.owner.startswith(note.owner + ":")
    give_back(a, lease)
    fails(NotHeld, b.start(lambda hold: hold.revoke("job")))
    assert [one.by for one in b.do(lambda hold: hold.inspect("job")).notes].count("on call") == 1


@case
def nothing_of_ours_leaks(scene: Scene) -> None:
    """Whatever is held, waited for, evicted or over: nothing is without an end."""
    a, b = scene.party(), scene.party()
    lease = a.do(lambda hold: hold.lock("job", ttl=9, at_least=3).acquire())
    waiting = b.start(lambda hold: hold.lock("job").acquire(wait=60))
    scene.queued("job", 1)
    assert a.do(lambda hold: hold.leaks()) == []
    if scene.capabilities.evictions:
        a.do(lambda hold: hold.evict("job", fence=lease.fence, reason="no reason", delay=0, force=True))
    else:
        give_back(a, lease)
    scene.pass_time(3.1)
    give_back(b, scene.outcome(waiting))
    assert a.do(lambda hold: hold.leaks("*")) == []


# ---------------------------------------------------------------- where it is

SERVERS = {
    "memory": "", "sqlite": "SQLite 3", "redis": "Redis ", "sentinel": "Redis ", "cluster": "Redis ",
    "redlock": "Redis ", "postgresql": "PostgreSQL 1", "etcd": "etcd 3", "zookeeper": "ZooKeeper 3",
}  # fmt: skip


@case
def ping_is_answered_by_the_store(scene: Scene) -> None:
    """A ping takes no lease and leaves nothing; the servers say what they are; a closed coordinator answers no more."""
    a = scene.party()
    for _ in range(2):
        assert 0 <= a.do(lambda hold: hold.ping()) < PATIENCE
    store = a.hold._engine.store
    found = a.do(lambda hold: hold._versions())
    assert [one for one in found if one.startswith(SERVERS[store.name]) and one[-1].isdigit()] == found
    assert bool(found) == (store.name != "memory" and "FakeRedis" not in store.url and "FakeOfLoops" not in store.url)
    assert (a.hold.store, a.hold.closed) == (store.url, False)
    assert scanned(a) == []
    a.do(lambda hold: hold.close())
    assert a.hold.closed
    fails(StoreUnavailable, a.start(lambda hold: hold.ping()))
