"""What observers hear of a batch: the life of each lease, as if it had been acquired by itself."""

from __future__ import annotations

from typing import Any

from leasehold._core.ops import Claim, Release
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.observe.events import Acquired, Contended, LimitDiffers, Refused, Released, ReleaseUnknown
from tests.support.lock import only, reply_lost, unreachable
from tests.support.observe.fixtures import flavour, heard, set_up, stage
from tests.support.observe.stage import Listener, Stage, subject
from tests.support.scene import fails

__all__ = ["flavour", "heard", "set_up", "stage"]


def three(stage: Stage, **options: Any) -> Any:
    """One try at kinds a, b and c."""
    return stage.do(lambda: stage.hold.acquire_many([stage.lock(name, ttl=6, **options) for name in "abc"]))


def told(heard: Listener) -> list[tuple[str, str]]:
    """What, and of which kind, in order."""
    return [(type(event).__name__, subject(event).kind) for event in heard.events]


def test_each_has_a_life(stage: Stage, heard: Listener) -> None:
    """Acquired and Released for each, with a number of its own."""
    batch = three(stage)
    assert stage.do(batch.release) is True
    assert told(heard) == [(what, kind) for what in ("Acquired", "Released") for kind in "abc"]
    begun = {event.lease.number for event in heard.of(Acquired)}
    assert begun == {event.lease.number for event in heard.of(Released)} and len(begun) == 3


def test_one_that_is_held_by_another(stage: Stage, heard: Listener) -> None:
    """Contended and Refused for that one, with its holder; nothing of the kind for the others."""
    stage.rival("b")
    batch = three(stage)
    assert [event.lease.kind for event in heard.of(Acquired)] == ["a", "c"]
    assert [(event.lease.kind, event.queued) for event in heard.of(Contended)] == [("b", False)]
    (refused,) = heard.of(Refused)
    assert (refused.lease.kind, refused.outcome, refused.holder, refused.contended) == ("b", "busy", "rival:1", True)
    assert stage.do(batch.release) is True


def test_a_store_that_is_away(stage: Stage, heard: Listener) -> None:
    """Each is refused for that, once."""
    stage.spy.before = only(Claim, unreachable)
    locks = [stage.lock(name) for name in "abc"]
    assert isinstance(stage.refused(lambda: stage.hold.acquire_many(locks)), StoreUnavailable)
    assert [(event.lease.kind, event.outcome) for event in heard.of(Refused)] == [(one, "unavailable") for one in "abc"]


def test_a_reply_that_is_lost(stage: Stage, heard: Listener) -> None:
    """The outcome of that one is unknown."""
    stage.spy.after = only(Claim, lambda op: reply_lost(op) if op.resource == "b" else None)
    batch = three(stage)
    assert [(event.lease.kind, event.outcome) for event in heard.of(Refused)] == [("b", "unknown")]
    assert stage.do(batch.release) is True


def test_releases_that_are_not_confirmed(stage: Stage, heard: Listener) -> None:
    """ReleaseUnknown for that one, Released for the others."""
    batch = three(stage)
    stage.spy.after = only(Release, lambda op: reply_lost(op) if op.resource == "b" else None)
    fails(OutcomeUnknown, stage.start(lambda: stage.hold.release_many(batch)))
    assert [event.lease.kind for event in heard.of(Released)] == ["a", "c"]
    assert [event.lease.kind for event in heard.of(ReleaseUnknown)] == ["b"]


def test_another_limit(stage: Stage, heard: Listener) -> None:
    """A semaphore of a batch reports it as one by itself does, granted or refused."""
    stage.do(lambda: stage.hold.semaphore("a", limit=2).resize(1))
    stage.do(lambda: stage.hold.semaphore("b", limit=2).resize(1))
    theirs = stage.do(lambda: stage.hold.semaphore("b", limit=1).acquire())
    heard.clear()
    pools = [stage.hold.semaphore(name, limit=2) for name in "ab"]
    batch = stage.do(lambda: stage.hold.acquire_many(pools))
    assert [lease.resource for lease in batch.acquired] == ["a"] and list(batch.refused) == ["b"]
    assert sorted((event.lease.kind, event.found) for event in heard.of(LimitDiffers)) == [("a", 1), ("b", 1)]
    assert stage.do(theirs.release) and stage.do(batch.release)


def test_metadata_and_spans_travel(stage: Stage) -> None:
    """The metadata of each lock is with its lease."""
    locks = [stage.lock(name, meta={"for": name}) for name in "ab"]
    batch = stage.do(lambda: stage.hold.acquire_many(locks))
    assert [claim.meta for claim in stage.spy.of(Claim)] == ['{"for":"a"}', '{"for":"b"}']
    assert [lease.meta for lease in batch.acquired] == [{"for": "a"}, {"for": "b"}]
    assert stage.do(batch.release) is True
