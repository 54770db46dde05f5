"""What a client makes of an answer: the errors of the guard behind, and what its coordinator learns."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, StaleOwner, StoreUnavailable
from leasehold.guards.http import Fencing, check_response
from leasehold.observe.events import Event, FencedOff
from tests.support.guards.http_tools import RESOURCE, A, ASGIService, Pairs, memory, token
from tests.support.tables import each

LEASE = Fencing(9, RESOURCE, A)


def body(name: str, **more: Any) -> bytes:
    """A problem."""
    return json.dumps({"type": f"urn:leasehold:{name}", "detail": "because", **more}).encode()


@each(
    ("sent", "error"),
    [
        (token(9), StaleOwner),
        (token(10, mode="shared"), InvalidRequest),
        (token("nothing"), InvalidRequest),
        ([], InvalidRequest),
    ],
)
def test_refusals_are_errors_again(sent: Pairs, error: type[Exception]) -> None:
    """Of a real service."""
    answer = ASGIService(memory()).send("POST", sent)
    with pytest.raises(error) as caught:
        check_response(answer.status, answer.body, LEASE)
    assert (caught.value.resource, caught.value.fence, caught.value.owner) == (RESOURCE, 9, "host-1:11")  # type: ignore[attr-defined]  # all of ours have them
    assert getattr(caught.value, "seen", 10) == 10
    assert "42" not in str(caught.value) and "a1a1" not in str(caught.value)


@pytest.mark.parametrize("name", ["guard-unavailable", "earlier-owner-inside"])
def test_what_may_be_tried_again(name: str) -> None:
    """Nothing was done, and the lease may still be good."""
    with pytest.raises(StoreUnavailable, match="because"):
        check_response(503, body(name), LEASE)


@each(
    ("status", "said"),
    [
        (200, body("stale-owner", seen=10)),
        (409, b""),
        (409, b"Conflict"),
        (409, b"\xff\xfe"),
        (409, b"[]"),
        (409, b'{"type": 5}'),
        (409, b"[" * 100_000),
        (409, b'{"type": "https://example.org/out-of-stock"}'),
        (409, body("something-new")),
        (500, body("stale-owner", seen=10)),
    ],
)
def test_other_answers_are_the_clients_own(status: int, said: bytes) -> None:
    """A service has reasons of its own to say 409."""
    check_response(status, said, LEASE)
    check_response(status, said.decode("latin-1"), LEASE)


@each("seen", [None, "10", 10.5, True, 0, -1, 2**63, 2**53 + 5])
def test_a_service_that_lies_about_the_fence(seen: Any) -> None:
    """It is refused all the same, and a fence that no clock can have minted teaches nothing."""
    with leasehold.connect("memory://") as hold:
        lease = hold.lock("report-export", 7).acquire()
        assert lease is not None
        with pytest.raises(StaleOwner) as caught:
            check_response(409, body("stale-owner", seen=seen), lease)
        assert caught.value.seen == (seen if seen == 2**53 + 5 else None)
        lease.release()
        with hold.lock("report-export", 7) as lease:
            assert lease.fence < 2**53


def test_a_refusal_is_told_and_teaches() -> None:
    """Whoever observes the coordinator hears of it, and its next lease is newer than what the service has seen."""
    heard: list[Event] = []
    with leasehold.connect("memory://", observers=[heard.append]) as hold:
        lease = hold.lock("report-export", 8).acquire()
        assert lease is not None
        seen = lease.fence + 60_000_000
        with pytest.raises(StaleOwner):
            check_response(409, body("stale-owner", seen=seen), lease)
        (told,) = [one for one in heard if isinstance(one, FencedOff)]
        assert (told.seen, told.downstream, told.lease.kind) == (seen, "http", "report-export")
        lease.release()
        with hold.lock("report-export", 8) as later:
            assert later.fence > seen


def test_a_refusal_of_what_stands_for_a_lease_teaches() -> None:
    """Also where the lease itself is not at hand, but only what its headers say."""
    with leasehold.connect("memory://") as hold:
        lease = hold.lock("report-export", 9).acquire()
        assert lease is not None
        seen = lease.fence + 60_000_000
        standing_in = SimpleNamespace(resource=lease.resource, fence=lease.fence, owner=lease.owner)
        with pytest.raises(StaleOwner):
            check_response(409, body("stale-owner", seen=seen), standing_in)
        lease.release()
        with hold.lock("report-export", 9) as later:
            assert later.fence > seen
