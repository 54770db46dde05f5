"""The guard rule, and what may be presented to a guard."""

from __future__ import annotations

import pickle
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leasehold
from leasehold._core.types import owner_digest as digest
from leasehold.errors import InvalidRequest
from leasehold.guards.fence import Presented, accept, presented, refusal
from tests.support.tables import each

SECRET = "5ec2e7" * 6
TOKEN = f"host-1:4711:{SECRET}.9"


@each(
    ("last_fence", "last_owner", "fence", "owner", "accepted"),
    [
        (None, "", 1, "a", True),
        (None, "", 1, "", True),
        (7, "a", 8, "b", True),
        (7, "a", 8, "a", True),
        (7, "a", 8, "", True),
        (7, "a", 7, "a", True),
        (7, "", 7, "", True),
        (7, "a", 7, "b", False),
        (7, "a", 7, "", False),
        (7, "", 7, "a", False),
        (7, "a", 6, "a", False),
        (7, "a", 6, "b", False),
        (7, "", 6, "", False),
    ],
)
def test_the_rule(last_fence: int | None, last_owner: str, fence: int, owner: str, accepted: bool) -> None:
    """Accepted: a higher fence, or the same one from the same owner. Nothing else."""
    assert accept(last_fence, last_owner, fence, owner) is accepted


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["", "a", "b"]))))
def test_accepted_fences_never_decrease(attempts: list[tuple[int, str]]) -> None:
    """Whatever is presented in whatever order, a fence has one owner and no accepted one is followed by an older."""
    last: tuple[int | None, str] = (None, "")
    taken: list[tuple[int, str]] = []
    for fence, owner in attempts:
        if accept(*last, fence, owner):
            last = (fence, owner)
            taken.append((fence, owner))
    fences = [fence for fence, _ in taken]
    assert fences == sorted(fences)
    assert len({fence for fence, _ in taken}) == len(set(taken))


def test_a_lease_is_presented_as_it_is() -> None:
    """A lease brings its resource, its fence and its owner; the owner leaves as a digest."""
    with leasehold.connect("memory://") as hold, hold.lock("report-export", 42) as lease:
        attempt = presented(lease)
        assert attempt[:3] == (lease.resource, lease.fence, digest(lease.owner))
        assert lease.owner not in repr(attempt)


def test_a_bare_fence_names_its_resource() -> None:
    """A fence out of a message needs its resource; without an owner the owner is unknown."""
    assert presented(12, "report-export:42") == Presented("report-export:42", 12, "")
    assert presented(12, "report-export:42", TOKEN).owner == digest(TOKEN)
    with pytest.raises(InvalidRequest, match="resource="):
        presented(12)


@each("fence", [0, -1, 2**63, 10**40, True, False, "12", b"12", 12.0, None, float("nan"), [12]])
def test_what_is_no_fence(fence: Any) -> None:
    """Zero, negative, boolean, textual, fractional and too large fences are mistakes, not stale owners."""
    with pytest.raises(InvalidRequest, match="fence"):
        presented(fence, "report-export:42")
    if fence is not None:
        with pytest.raises(InvalidRequest, match="fence"):
            presented(SimpleNamespace(resource="report-export:42", fence=fence, owner=TOKEN))


def test_what_equals_a_fence_that_was_accepted() -> None:
    """What was accepted is remembered, and is not taken for what only equals it."""
    assert presented(SimpleNamespace(resource="a", fence=1, owner=TOKEN)).fence == 1
    for fence in (True, 1.0):
        with pytest.raises(InvalidRequest, match="fence is an int"):
            presented(SimpleNamespace(resource="a", fence=fence, owner=TOKEN))


def test_the_highest_fence() -> None:
    """A BIGINT column holds 2**63 - 1, and so do we."""
    assert presented(2**63 - 1, "a").fence == 2**63 - 1


def test_an_unfenced_lease_is_refused() -> None:
    """A lease without a fence cannot be told from a stale one."""
    with pytest.raises(InvalidRequest, match="has no fence"):
        presented(SimpleNamespace(resource="rebuild", fence=None, owner="a:1:b"))


@each("resource", ["", "x" * 513, "é" * 257, "a\0b", "\ud800", 42, b"a", ["a"]])
def test_what_is_no_resource(resource: Any) -> None:
    """A resource is text that fits into the table's key."""
    with pytest.raises(InvalidRequest, match="resource"):
        presented(12, resource)


class Names(str, Enum):  # noqa: UP042 # many programs have such ones
    """Text, of which str() says something else than it is."""

    RESOURCE = "report-export:42"
    OWNER = "host-1:4711:secret.1"


def test_names_that_are_members_of_an_enum() -> None:
    """They are what they are equal to: under another name a stale owner would be the first."""
    assert presented(12, Names.RESOURCE, Names.OWNER) == presented(12, "report-export:42", "host-1:4711:secret.1")
    assert type(presented(12, Names.RESOURCE).resource) is str


@each("owner", ["", 42, b"token", "\ud800", True])
def test_what_is_no_owner(owner: Any) -> None:
    """An owner is a token as text, or is left out."""
    with pytest.raises(InvalidRequest, match="owner"):
        presented(12, "report-export:42", owner)


def test_a_lease_takes_no_other_name() -> None:
    """Fences grow for each resource: a lease must not be checked under the name of another."""
    with leasehold.connect("memory://") as hold, hold.lock("rebuild") as lease:
        for resource, owner in (("other", None), (None, "other")):
            with pytest.raises(InvalidRequest, match="its own"):
                presented(lease, resource, owner)


def test_the_refusal_teaches() -> None:
    """It says both fences and what to do, shows no id and no secret, and survives pickling."""
    attempt = presented(11, "acme/report-export:tenant-9:42", TOKEN)
    error = pickle.loads(pickle.dumps(refusal(attempt, 12)))  # noqa: S301  # our own bytes
    assert (error.fence, error.seen, error.resource) == (11, 12, "acme/report-export:tenant-9:42")
    assert error.owner == "host-1:4711"
    text = str(error)
    assert "acme/report-export" in text
    assert "11 is older than 12" in text
    assert "Roll back" in text
    assert "tenant-9" not in text
    assert SECRET not in text + repr(error) + repr(attempt)
    assert "another owner" in str(refusal(attempt, 11))


def test_the_refusal_of_one_without_a_name() -> None:
    """An equal fence without its owner is mostly the same holder, who left owner= out: the message says so."""
    text = str(refusal(presented(11, "report-export:42"), 11))
    assert "owner=" in text and "somebody else" not in text


def test_what_somebody_may_have_meant() -> None:
    """A lock in place of its lease, an acquire that got nothing, a number that is still text."""
    with leasehold.connect("memory://") as hold:
        for given, hint in ((hold.lock("rebuild"), "acquire"), (None, "acquire"), ("12", "make an int")):
            with pytest.raises(InvalidRequest, match=hint):
                presented(given)  # type: ignore[arg-type]  # on purpose


def test_the_digest_is_frozen() -> None:
    """Tables outlive releases: 128 bits of BLAKE2b of the token, in hex, for ever."""
    assert digest("host:1:secret.1") == "9959869edf597da43146713f69ff620e"
