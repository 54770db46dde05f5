"""A request is sent at most once, and never after its caller has given up."""

from __future__ import annotations

import pytest
from kazoo import exceptions
from kazoo.exceptions import BadVersionError, ConnectionLoss, RolledBackError, RuntimeInconsistency, ZookeeperError
from kazoo.protocol.serialization import Exists, SetData

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.stores.zookeeper import calls, failures
from leasehold.stores.zookeeper.calls import NotSent, Unanswered
from tests.support.tables import each


def test_withdrawn_before_it_is_sent() -> None:
    """kazoo, which still has it in its queue, sends a question in its place."""
    call = calls.change("/x", b"data", 3)
    call.give_up()
    assert call.type == Exists.type
    assert call.serialize() == Exists("/", None).serialize()
    call.set("too late")
    with pytest.raises(NotSent):
        call.result()


def test_given_up_after_it_was_sent() -> None:
    """It may have been done, and what the server answers later is not for us any more."""
    call = calls.change("/x", b"data", 3)
    assert call.type == SetData.type
    call.give_up()
    assert call.serialize() == SetData("/x", b"data", 3).serialize()
    call.set("too late")
    with pytest.raises(Unanswered):
        call.result()


def test_lost_before_and_after_it_was_sent() -> None:
    """kazoo raises ConnectionLoss for both; only the first is certain."""
    waits, sent = calls.change("/x", b"", 0), calls.change("/x", b"", 0)
    assert sent.type == SetData.type
    for call in (waits, sent):
        call.set_exception(ConnectionLoss())
    with pytest.raises(NotSent):
        waits.result()
    with pytest.raises(ConnectionLoss):
        sent.result()


def test_finished_is_called_once() -> None:
    """Whatever comes afterwards."""
    count: list[int] = []
    call = calls.get("/x", finished=lambda: count.append(1))
    call.set((b"", None))
    call.set_exception(ConnectionLoss())
    call.give_up()
    assert count == [1]
    assert call.result() == (b"", None)


def test_a_withdrawn_watch_is_not_registered() -> None:
    """kazoo would register it for the question that was sent in its place."""
    call = calls.get("/x", watcher=print)
    call.give_up()
    assert call.watcher is None


def test_the_operation_that_was_refused() -> None:
    """Its neighbours are reported as rolled back, or as inconsistent."""
    assert calls.refusal([True, "path"]) is None
    error = BadVersionError()
    assert calls.refusal([RolledBackError(), error, RuntimeInconsistency()]) == (1, error)


ERRORS = [one for one in vars(exceptions).values() if isinstance(one, type) and issubclass(one, ZookeeperError)]


@each("kind", ERRORS)
def test_every_error_has_a_sentence(kind: type[Exception]) -> None:
    """It names the server, and a refusal is certain."""
    refused = failures.refusal("ZooKeeper at host:2181", kind())
    assert isinstance(refused, StoreUnavailable)
    assert str(refused).startswith("ZooKeeper at host:2181 ")
    assert len(str(refused)) > len("ZooKeeper at host:2181 refused: ")


def test_what_is_unknown() -> None:
    """It says whether the answer is late, or cannot come any more."""
    late, broken = failures.unknown("S", Unanswered()), failures.unknown("S", ConnectionLoss())
    assert isinstance(late, OutcomeUnknown)
    assert str(late) == "S did not answer in time"
    assert str(broken) == "the connection to S broke before the answer came (ConnectionLoss)"
