"""Log records, field by field: for every event its name, its level, and what it may say."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from leasehold._core.ops import Renew
from leasehold._core.types import public_owner
from leasehold._runtime import identity
from leasehold.errors import StoreUnavailable
from leasehold.observe import log
from leasehold.observe.events import NotRenewed
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, only
from tests.support.observe.life import TTL, live
from tests.support.observe.stage import Listener, Stage, raising
from tests.support.parties import FLAVOURS

FIELDS = {"event", "kind", "id_hash", "owner_prefix", "fence", "ttl_ms"}
DEBUG, WARNING = logging.DEBUG, logging.WARNING
# The level of each record, and what it says besides.
RECORDS: dict[str, tuple[int, set[str]]] = {
    "lease_acquired": (DEBUG, set()),
    "lease_refused": (DEBUG, {"outcome"}),
    "lease_renewed": (DEBUG, set()),
    "lease_downgraded": (DEBUG, set()),
    "lease_unsure": (WARNING, {"error"}),
    "lease_lost": (WARNING, {"reason"}),
    "lease_released": (DEBUG, set()),
    "stale_release": (DEBUG, set()),
    "release_unknown": (WARNING, set()),
    "fenced_off": (WARNING, {"downstream", "seen"}),
    "lease_unguarded": (WARNING, set()),
    "limit_differs": (WARNING, {"asked", "found"}),
    "anti_pattern": (DEBUG, {"pattern"}),  # in the life of the tests it is ``unguarded``, which has its own warning
}
PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Records(logging.Handler):
    """Keeps records as a handler of somebody's would get them."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.all.append(record)

    def named(self, event: str) -> list[logging.LogRecord]:
        """Those of one event."""
        return [record for record in self.all if fields(record).get("event") == event]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a record carries beyond what every record does."""
    return {name: value for name, value in vars(record).items() if name not in PLAIN}


@pytest.fixture
def records() -> Iterator[Records]:
    """All that Leasehold logs, at DEBUG."""
    handler, logger = Records(), logging.getLogger("leasehold")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_every_record(stage: Stage, heard: Listener, records: Records) -> None:
    """After a life in which everything happens there is a record of each kind, with its level and fields."""
    held = live(stage, heard)
    told = [record for record in records.all if record.name == "leasehold.lease"]
    assert {fields(record)["event"] for record in told} == set(RECORDS)
    for record in told:
        said = fields(record)
        level, more = RECORDS[said["event"]]
        repeated = said["event"] == "lease_unsure" and record.levelno == DEBUG
        assert (record.levelno == level or repeated) and set(said) == FIELDS | more
        assert said["kind"] in ("job", "held") and len(said["id_hash"]) == 12
        assert said["owner_prefix"] == identity.process_prefix() == public_owner(held.owner)
        assert isinstance(said["ttl_ms"], int) and said["ttl_ms"] > 0
        assert said["fence"] is None if said["event"] == "lease_refused" else said["fence"] > 0
        assert record.getMessage().startswith(f"{said['event']} kind={said['kind']} id_hash={said['id_hash']} ")


def test_what_records_say(stage: Stage, heard: Listener, records: Records) -> None:
    """The values that each adds."""
    live(stage, heard)
    outcomes = [fields(record)["outcome"] for record in records.named("lease_refused")]
    assert outcomes == ["busy", "timeout", "cancelled", "unavailable", "unknown"]
    assert [fields(record)["reason"] for record in records.named("lease_lost")] == [
        "evicted",
        "expired",
        "renewal_failed",
    ]
    (fenced_off,) = [fields(record) for record in records.named("fenced_off")]
    assert (fenced_off["downstream"], fenced_off["seen"]) == ("reports", fenced_off["fence"] + 1)
    assert {fields(record)["error"] for record in records.named("lease_unsure")} == {"the test does this"}


def test_one_record_for_each_event(stage: Stage, heard: Listener, records: Records) -> None:
    """As many as were told; a renewal that found somebody else's lease is told as the loss."""
    live(stage, heard)
    told = [type(event).__name__ for event in heard.events if getattr(event, "outcome", "") != "not_owner"]
    logged = [name for name in told if name in log.RECORDS]
    assert len([record for record in records.all if record.name == "leasehold.lease"]) == len(logged)


def test_a_store_that_stays_away_is_one_warning_for_each_lease(stage: Stage, heard: Listener, records: Records) -> None:
    """A renewal is tried again every second or so: thousands of leases must not fill the log. After a confirmation it
    is news again."""
    lease = stage.acquire(ttl=TTL)
    for spell in (1, 2):
        stage.spy.before = only(Renew, raising(StoreUnavailable))
        stage.until(lambda: lease.state == "unsure" and heard.of(NotRenewed)[-1].again, "it has failed twice")
        stage.spy.heal()
        stage.until(lambda: lease.state == "held", "it is renewed")
        levels = [record.levelno for record in records.named("lease_unsure")]
        assert levels.count(WARNING) == spell and levels.count(DEBUG) >= spell
    assert [event.again for event in heard.of(NotRenewed)].count(False) == 2


def test_a_loss_that_was_asked_for_is_no_warning(stage: Stage, records: Records) -> None:
    """close() ends what is held: that is for whoever looks closely."""
    stage.acquire(ttl=60)
    stage.do(stage.hold.close)
    assert [record.levelno for record in records.named("lease_lost")] == [DEBUG]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_observers(flavour: str, records: Records) -> None:
    """The log needs no observer. The first use of the store has a record, and no later one."""
    party = FLAVOURS[flavour](Spy(MemoryStore(ManualClock())))
    lease = party.do(lambda hold: hold.lock("job", 1).acquire())
    party.do(lambda hold: lease.release())
    party.close()
    expected = ["store_connecting", "lease_acquired", "lease_released"]
    assert [fields(record)["event"] for record in records.all] == expected


def test_at_warning_only_what_nobody_may_miss(stage: Stage, heard: Listener, records: Records) -> None:
    """A program that logs warnings hears of losses and refusals of guards, not of every day."""
    logging.getLogger("leasehold").setLevel(WARNING)
    live(stage, heard)
    said = {fields(record)["event"] for record in records.all}
    assert said == {name for name, (level, _) in RECORDS.items() if level == WARNING}
