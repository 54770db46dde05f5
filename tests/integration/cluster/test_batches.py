"""Batches in a Cluster: one write for each node, and slots that have moved."""

from __future__ import annotations

from typing import Any

from tests.support.parties import Party
from tests.support.redis.cluster import Company, calls


def take(party: Party, count: int, **options: Any) -> Any:
    """One try at so many locks."""
    return party.do(lambda hold: hold.acquire_many([hold.lock("job", number, **options) for number in range(count)]))


def test_a_batch_over_all_nodes(company: Company) -> None:
    """Each node gets its own, and all are granted and released."""
    party = company.party()
    batch = take(party, 60)
    assert batch.complete and len({company.node(lease.resource) for lease in batch.acquired}) == 3
    assert party.do(lambda hold: hold.release_many(batch)) == [True] * 60
    again = take(party, 60)
    assert again.complete and all(new.fence > old.fence for new, old in zip(again, batch, strict=True))
    assert party.do(lambda _: again.release()) is True


def test_a_batch_of_a_namespace(company: Company) -> None:
    """With slot="namespace" all are in one slot; its setting is recorded first."""
    party = company.party("namespace", namespace="shop")
    batch = take(party, 20)
    assert batch.complete and calls(company.node("shop"), "evalsha") >= 20
    assert party.do(lambda _: batch.release()) is True


def test_a_slot_that_has_moved(company: Company) -> None:
    """The old owner sends us on: that one is sent again, the others are not."""
    party = company.party()
    first = take(party, 30)
    assert party.do(lambda _: first.release()) is True
    before = company.node("job:1")
    company.move("job:1")
    batch = take(party, 30)
    assert batch.complete and company.node("job:1") is not before
    assert party.do(lambda hold: hold.release_many(batch)) == [True] * 30
    assert calls(before, "evalsha") > 0
