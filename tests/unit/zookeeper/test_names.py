"""The names of nodes, and the order of places."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.types import owner_digest, owner_id
from leasehold.stores.record.requests import Offer
from leasehold.stores.zookeeper.names import (
    BUCKETS,
    Names,
    bucket,
    escaped,
    place_owner,
    place_prefix,
    queue,
    session_name,
    unescaped,
)
from leasehold.stores.zookeeper.revisions import Revision, unpacked
from tests.support.tables import each

OURS, THEIRS = 0x10002C2977A0000, -5
WHO = place_prefix("abc", OURS)


@given(st.text(min_size=1))
def test_every_name_comes_back(name: str) -> None:
    """Whatever is in it, it is one node, and never a step up."""
    node = escaped(name)
    assert "/" not in node
    assert node not in (".", "..")
    assert node.isascii()
    assert unescaped(node) == name


@each("node", ["a/b", "%2e", "%ff", "", "%41", "a b"])
def test_names_of_somebody_else(node: str) -> None:
    """What we would have named otherwise is none of ours."""
    assert unescaped(node) is None


def test_paths() -> None:
    """A record lies in the bucket of its name, a place below it."""
    names = Names("/x")
    record = names.record("jobs:nightly/1")
    assert record == f"/x/r/{bucket('jobs:nightly/1')}/jobs:nightly%2F1"
    assert names.place("jobs:nightly/1", "p") == f"{record}/p"
    assert bucket("anything") in BUCKETS


def test_places_are_ordered_by_their_number() -> None:
    """Whoever made them. Names that are no places are left out."""
    other = place_prefix(place_owner("x-y", None), THEIRS)
    found = queue([f"{other}0000000007", "stranger", f"{WHO}0000000009", f"{other[:-1]}", f"{WHO}12"], OURS)
    assert [(place.owner, place.number, place.ours) for place in found.places] == [("x-y", 7, False), ("abc", 9, True)]
    assert found.surplus == ()


def test_the_counter_goes_on_below_zero() -> None:
    """It is a signed integer of 32 bits: after 2147483647 comes -2147483648."""
    found = queue([f"{WHO}-2147483648", f"{place_prefix('z', OURS)}2147483647"], OURS)
    assert [place.owner for place in found.places] == ["z", "abc"]
    assert [place.number for place in found.places] == [2**31 - 1, 2**31]


def test_a_place_that_was_made_twice() -> None:
    """The first one counts; the other is to be removed if it is ours."""
    theirs = place_prefix("abc", THEIRS)
    found = queue([f"{WHO}0000000009", f"{WHO}0000000003", f"{theirs}0000000001", f"{theirs}0000000002"], OURS)
    assert [(place.number, place.ours) for place in found.places] == [(1, False), (3, True)]
    assert found.surplus == (f"{WHO}0000000009",)


def test_of_an_earlier_session() -> None:
    """The name alone does not make a place ours (trap 27)."""
    assert [place.ours for place in queue([f"{WHO}0000000009"], OURS + 1).places] == [False]
    assert [place.ours for place in queue([f"{WHO}0000000009"], None).places] == [False]


@given(st.integers(0, 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_revisions_come_back(mzxid: int, removals: int, version: int) -> None:
    """Also those of counters that went on below zero."""
    revision = Revision(mzxid, removals, version)
    assert unpacked(revision.packed()) == revision


def test_a_place_says_what_its_claim_offers() -> None:
    """Without the token of its owner, and whatever characters are in the rest."""
    owner = "höst-1.x:4711:secret.1"
    given = Offer(owner_id(owner), 30_000, 17, 18, "@ad-dress.é", 19)
    name = f"{place_prefix(place_owner(owner_digest(owner), given), THEIRS)}0000000003"
    (found,) = queue([name], OURS).places
    assert (found.owner, found.number, found.offer) == (owner_digest(owner), 3, given)
    assert "secret" not in name and "/" not in name


def test_an_offer_that_is_none_of_ours() -> None:
    """The place counts all the same: its claim takes the resource itself."""
    for text in ("1.2.3", "x.1.1.1.a.b", "0.1.1.1.a.b", f"1.{2**60}.1.1.a.b", "1.1.1.-1.a.b"):
        (found,) = queue([f"abc.{text.replace('-', '%2D')}-{session_name(THEIRS)}-0000000003"], OURS).places
        assert (found.owner, found.offer) == ("abc", None)
