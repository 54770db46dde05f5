"""etcd as a server of records: without an etcd."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from leasehold._core.driver import drive
from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd.connection import Broken
from leasehold.stores.etcd.gateway import Call
from leasehold.stores.etcd.http import Reply
from leasehold.stores.etcd.server import MANY, EtcdRecords
from leasehold.stores.record.requests import Change, Outcome, Part, Place, Record, Server
from tests.support.tables import each
from tests.support.waiting import until


def test_it_is_a_server_of_records() -> None:
    """Making one connects to nothing, and neither does closing it."""
    server: Server = EtcdRecords.from_url("etcd://nobody.invalid,somebody.invalid:1/app")
    assert server.most_parts == 60
    assert server.server == "etcd at nobody.invalid:2379,somebody.invalid:1"
    assert server.perform([], time.monotonic()) == []
    server.close()
    server.forked()
    server.close()


def test_an_absent_record_that_was_never_read() -> None:
    """There is no revision to watch it from: the caller looks again, on another thread."""
    server = EtcdRecords.from_url("etcd://127.0.0.1:1")
    fired: list[tuple[Record | None, threading.Thread]] = []
    server.watch_record(Record("a"), lambda record: fired.append((record, threading.current_thread())))
    until(lambda: fired, "it fires")
    assert fired[0][0] is None and fired[0][1] is not threading.current_thread()
    server.close()
    assert len(fired) == 1


def test_watches_where_nobody_is() -> None:
    """They fire, each once; and what is still watched when it is closed fires then."""
    server = EtcdRecords.from_url("etcd://127.0.0.1:1")
    fired: list[Record | None] = []
    server.watch_place("a", Place("me", 5, "leasehold/w/a//me", True), fired.append)
    until(lambda: fired == [None], "it fires")
    server.watch_record(Record("a", "text", 7), fired.append)
    server.close()
    assert fired == [None, None]


# ---------------------------------------------------------------- alone with a record


class Etcd:
    """Answers each transaction with what comes next, and remembers what was sent."""

    def __init__(self, *answers: dict[str, Any] | Broken) -> None:
        self.answers = list(answers)
        self.sent: list[dict[str, Any]] = []

    def send(self, call: Call) -> Reply:
        """As a gateway does."""
        self.sent.append(json.loads(call.body))
        answer = self.answers.pop(0)
        if isinstance(answer, Broken):
            raise answer
        return Reply(200, json.dumps(answer).encode())

    def perform(self, server: EtcdRecords, part: Part) -> Any:
        """The reply to a change."""
        return drive(server._perform((Change((part,)),), time.monotonic() + 5), self.send)[0]


def done(revision: int) -> dict[str, Any]:
    """etcd's reply to a change of one record."""
    return {"header": {"revision": str(revision)}, "succeeded": True, "responses": [{"response_put": {}}]}


def alone(revision: int) -> EtcdRecords:
    """One that has changed a record often, and lastly at that revision."""
    server = EtcdRecords.from_url("etcd://127.0.0.1:1")
    for number in range(revision - MANY, revision):
        etcd = Etcd(done(number + 1))
        assert etcd.perform(server, Part("a", number, "text")).done
        assert etcd.sent[0]["failure"]
    return server


REFUSED = {"header": {"revision": "12"}}
NOTHING = {"header": {"revision": "13"}, "succeeded": True, "responses": [{"response_range": {}}] * 2}


def test_a_change_where_nobody_else_is_expected() -> None:
    """etcd is not to read what there is, unless it refuses the change."""
    server = alone(11)
    etcd = Etcd(REFUSED, NOTHING, done(14))
    assert etcd.perform(server, Part("a", 11, "text", nobody_waits=True)) == Outcome(False, (Record("a"),))
    assert etcd.perform(server, Part("a", 0, "text")).done
    first, look, second = etcd.sent
    assert "failure" not in first and "compare" not in look and look["success"] == second["failure"]


@each("part", [Part("b", 11, "text"), Part("a", 10, "text"), Part("a", 11, "text", bury="me")])
def test_a_change_where_others_may_be(part: Part) -> None:
    """Another record, a change by somebody else, and what nobody must come before."""
    etcd = Etcd(REFUSED | {"responses": NOTHING["responses"]})
    assert not etcd.perform(alone(11), part).done
    assert len(etcd.sent) == 1 and etcd.sent[0]["failure"]


@each(
    "spoil, kind",
    [
        (lambda: Etcd(REFUSED, Broken("gone")), StoreUnavailable),
        (lambda: Etcd(Broken("gone")), OutcomeUnknown),
    ],
)
def test_no_answer_where_nobody_else_is_expected(spoil: Callable[[], Etcd], kind: type) -> None:
    """A change that was refused is known not to be done, whatever becomes of the read behind it."""
    assert type(spoil().perform(alone(11), Part("a", 11, "text"))) is kind
