"""Nodes that are slow, silent, cut off and back again; and what is left behind on each."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from leasehold import LeaseLost, NotAcquired, OutcomeUnknown, StoreUnavailable
from leasehold._core.ops import Inspect
from leasehold.stores.redis.redlock.commands import RAISE_FENCE, VOTE
from tests.integration.redlock.stage import OWNER, Stage, acquire
from tests.support.parties import mostly
from tests.support.servers.proxy import Verdict
from tests.support.servers.redlock import RedlockNode
from tests.support.waiting import until

pytestmark = pytest.mark.slow
LAST_FENCE = OWNER.replace("owner", "fence")


def warm(stage: Stage, party: Any) -> None:
    """Its connections are open, the nodes know the scripts, and none has anything left to do: a release returns when a
    majority has it."""
    for _ in range(3):
        assert give_back(party, acquire(party)) is True
    stage.nothing_left()


def give_back(party: Any, lease: Any) -> Any:
    """Whether it was still this party's."""
    return party.do(lambda _: lease.release())


def counting(nodes: list[RedlockNode]) -> list[int]:
    """How often each node is sent a part of a claim, from now on: by its digest, or in full."""
    counts = [0] * len(nodes)
    marks = [VOTE.sha.encode(), RAISE_FENCE.sha.encode(), RAISE_FENCE.text[:100].encode()]

    def counter(place: int) -> Any:
        def count(chunk: bytes) -> str:
            counts[place] += any(mark in chunk for mark in marks)
            return "pass"

        return count

    for place, node in enumerate(nodes):
        node.link.on_request = counter(place)
    return counts


def fences(stage: Stage) -> list[int]:
    """Those of the holder of ``job``, by the nodes that have one."""
    return [int(raw.split()[0]) for node in stage.nodes if (raw := node.server.client().get(OWNER))]


def test_an_acquire_takes_one_round_trip(five: Stage) -> None:
    """All nodes give the fence that they are asked for, unless one gets the claim more than 20 ms late, as it may on a
    busy machine."""
    party = five.party()
    warm(five, party)

    def once_each() -> bool:
        for node in five.nodes:
            node.link.settle()
        counts = counting(five.nodes)
        lease = acquire(party)
        for node in five.nodes:
            node.link.settle()
        found = counts == [1] * 5 and fences(five) == [lease.fence] * 5
        give_back(party, lease)
        five.nothing_left()
        return found

    until(once_each, "every node is sent one command, and has the fence")


def test_a_higher_fence_of_one_node_is_written_back(five: Stage) -> None:
    """Its clock was ahead of what it was asked for: the fence is on a majority before the lease is granted, in a second
    round trip."""
    party = five.party()
    warm(five, party)
    five.only(0, 1, 2)
    five.nodes[0].clock.set_off(0.3)
    counts = counting(five.nodes)
    lease = acquire(party)
    assert fences(five) == [lease.fence] * 3
    assert counts[:3] == [1, 2, 2]


def give_another_fence(client: Any, lease: Any, fence: int) -> None:
    """As if this node had given it."""
    record = client.get(OWNER).decode()
    client.set(OWNER, record.replace(str(lease.fence), str(fence)), keepttl=True)
    client.set(LAST_FENCE, fence, keepttl=True)


@pytest.mark.parametrize("off", [-1, 1], ids=["lower", "higher"])
def test_a_renewal_mends_the_fence_of_a_node(three: Stage, off: int) -> None:
    """One that gave the lease another fence, after the majority was found, does not renew it. It gets the fence
    with the renewal, or with the next one where its reply comes after those of the majority. From then on one of the
    others may be lost."""
    party = three.party()
    warm(three, party)
    lease = acquire(party)
    until(lambda: fences(three) == [lease.fence] * 3, "every node has granted it")
    client: Any = three.nodes[2].server.client()
    give_another_fence(client, lease, lease.fence + off)

    def mended() -> bool:
        party.do(lambda _: lease.extend(20))
        return fences(three) == [lease.fence] * 3

    until(mended, "the node has the fence")
    assert int(client.get(LAST_FENCE)) == lease.fence + max(off, 0)
    three.only(0, 2)
    party.do(lambda _: lease.extend(20))
    assert lease.state == "held"


def test_a_late_node_with_another_fence_is_left_with_nothing(three: Stage) -> None:
    """The release has returned when that node replies that it does not know this lease: it is withdrawn there."""
    party = three.party()
    warm(three, party)
    lease = acquire(party)
    until(lambda: fences(three) == [lease.fence] * 3, "every node has granted it")
    give_another_fence(three.nodes[2].server.client(), lease, lease.fence + 1)
    three.nodes[2].link.hold_replies()
    assert give_back(party, lease) is True
    assert three.owners()[2]
    three.nodes[2].link.release()
    three.nothing_left()


@mostly("sync", "five")
def test_a_lease_outlives_any_minority(five: Stage) -> None:
    """Every node that has granted it has its fence: whichever two are lost then, the others renew it."""
    party = five.party()
    warm(five, party)
    for lost in itertools.combinations(range(5), 2):
        lease = until(partial(_granted_by_all, five, party), "every node has granted it")
        five.only(*{0, 1, 2, 3, 4} - set(lost))
        until(partial(_extended, party, lease), "a majority renews it")
        five.only(0, 1, 2, 3, 4)
        assert give_back(party, lease) is True
        five.nothing_left()


def _granted_by_all(stage: Stage, party: Any) -> Any:
    """A link that was cut is not always open again when a majority has granted."""
    lease = acquire(party)
    if len(fences(stage)) == len(stage.nodes):
        return lease
    give_back(party, lease)
    stage.nothing_left()
    return None


def _extended(party: Any, lease: Any) -> bool:
    """A node whose fence is mended by the first renewal confirms the next."""
    try:
        party.do(lambda _: lease.extend(20))
    except OutcomeUnknown:
        return False
    return True


def test_a_slow_node_does_not_slow_the_majority(three: Stage) -> None:
    """Nothing comes from it until everything is over: acquire, extend, a refusal and release return all the same."""
    one, two = three.party(), three.party()
    warm(three, one)
    warm(three, two)
    three.nodes[1].link.hold_replies()
    lease = acquire(one)
    one.do(lambda _: lease.extend(20))
    assert acquire(two) is None
    assert one.do(lambda _: lease.release()) is True
    until(lambda: three.nodes[1].link.waiting > 0, "its replies wait in the network")
    three.nodes[1].link.release()
    three.nothing_left()


def test_late_replies_are_not_taken_for_those_of_the_next_request(three: Stage) -> None:
    """Replies to five acquires and releases come at once, in the middle of the sixth: each lease is released, and no
    fence comes twice."""
    party = three.party()
    warm(three, party)
    fences = []
    three.nodes[0].link.hold_replies()
    for number in range(10):
        if number == 5:
            three.nodes[0].link.release()
        lease = acquire(party)
        fences.append(lease.fence)
        assert give_back(party, lease) is True
    assert fences == sorted(set(fences))
    three.nothing_left()


def test_a_minority_is_cut_off_and_comes_back(three: Stage) -> None:
    """Leases are granted, renewed and released without it, and it takes part again when it is back."""
    party = three.party()
    warm(three, party)
    three.nodes[2].cut_off()
    lease = acquire(party)
    party.do(lambda _: lease.extend(20))
    assert party.do(lambda _: lease.release()) is True
    three.nodes[2].heal()

    def takes_part() -> bool:
        lease = acquire(party)
        party.do(lambda _: lease.extend(20))  # a node that is only just connected has had time for its claim
        found = three.owners()[2]
        party.do(lambda _: lease.release())
        return found

    until(takes_part, "the node takes part again")
    three.nothing_left()


def test_a_firewall_forgets_a_minority(three: Stage) -> None:
    """Nobody is told, and nobody waits for it."""
    party = three.party()
    warm(three, party)
    three.nodes[0].link.blackhole()
    for _ in range(3):
        lease = acquire(party)
        assert give_back(party, lease) is True


def test_without_a_majority_nothing_is_taken(three: Stage) -> None:
    """The error names the nodes that are missing, and the one that granted is free again."""
    party = three.party()
    warm(three, party)
    three.only(1)
    with pytest.raises(StoreUnavailable, match=r"2 of 3 Redlock nodes do not count, and 2 must: .*cannot be reached"):
        acquire(party)
    three.nothing_left()


def test_a_majority_that_is_silent(three: Stage) -> None:
    """Its claims are held up, and arrive when everything is over: they get nothing, or are withdrawn."""
    party = three.party()
    warm(three, party)
    for node in three.nodes[:2]:
        node.link.hold_requests()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        acquire(party, ttl=2)
    for node in three.nodes[:2]:
        node.link.release()
    three.nothing_left()
    assert until(lambda: acquire(party), "it can be acquired again")


@mostly("asyncio", "three")
def test_a_majority_lost_while_held(three: Stage) -> None:
    """Renewals fail, and the holder learns of its loss before its deadline."""
    party = three.party()
    lease = acquire(party, ttl=1.5)
    three.only(0)
    until(lambda: lease.state != "held", "renewals fail")
    until(lambda: lease.state == "lost", "the loss is declared")
    assert lease.remaining() <= 0 or lease.state == "lost"
    with pytest.raises(LeaseLost, match="renewal_failed"):
        lease.check()


@mostly("sync", "three")
def test_the_watchdog_renews_on_a_majority(three: Stage) -> None:
    """One node is cut off, and the lease is renewed again and again."""
    party = three.party()
    warm(three, party)
    three.nodes[1].cut_off()
    lease = acquire(party, ttl=2)
    end = lease.deadline
    until(lambda: lease.deadline > end + 1, "it is renewed twice")
    lease.check()


def test_a_refused_claim_is_withdrawn_on_all_nodes(three: Stage) -> None:
    """The holder has two nodes; the third grants to another party, and is free again at once."""
    one, two = three.party(), three.party()
    warm(three, two)
    three.only(0, 1)
    acquire(one)
    three.only(0, 1, 2)
    assert until(lambda: acquire(two) is None, "it is refused, and no node is missing")
    until(lambda: three.owners() == [True, True, False], "the third node is free")


def test_a_withdrawal_reaches_a_node_that_was_cut_off(three: Stage) -> None:
    """The claim of the second arrived, its reply did not, and then the node was gone: the withdrawal comes when it is
    back."""
    one, two = three.party(), three.party()
    warm(three, two)
    three.only(0, 1)
    acquire(one)
    node = three.nodes[2]
    node.heal()
    votes: list[bytes] = []

    def cut_votes(chunk: bytes) -> Verdict:
        votes.extend([chunk] * (VOTE.sha.encode() in chunk))
        return "cut_reply" if VOTE.sha.encode() in chunk else "pass"

    node.link.on_request = cut_votes
    until(lambda: acquire(two) is None and votes, "a claim has arrived there")
    node.cut_off()
    node.heal()
    until(lambda: not three.owners()[2], "the third node is free")


def test_waiters_get_the_lease_one_after_another(three: Stage) -> None:
    """There is no queue: they try again, and each gets it once."""
    parties = [three.party() for _ in range(4)]
    fences: list[int] = []

    def work(lease: Any) -> None:
        fences.append(lease.fence)

    futures = [party.within(lambda hold: hold.lock("job", ttl=5, wait=30), work) for party in parties for _ in range(3)]
    for future in futures:
        future.result(60)
    assert len(fences) == 12 and fences == sorted(set(fences))
    three.nothing_left()


def test_a_wait_ends_in_time_and_leaves_nothing(three: Stage) -> None:
    """A party that gave up has no claim on any node."""
    one, two = three.party(), three.party()
    lease = acquire(one)
    with pytest.raises(NotAcquired) as caught:
        two.within(lambda hold: hold.lock("job", wait=0.2), lambda _: None).result(30)
    assert lease.owner.startswith(caught.value.holder)
    assert one.do(lambda _: lease.release()) is True
    three.nothing_left()


def test_nodes_that_lose_their_scripts(three: Stage) -> None:
    """They are sent again, for claims, fences, releases and withdrawals alike."""
    one, two = three.party(), three.party()
    warm(three, one)
    warm(three, two)
    for node in three.nodes:
        node.server.client().script_flush()
    lease = acquire(one)
    for node in three.nodes:
        node.server.client().script_flush()
    assert acquire(two) is None
    one.do(lambda _: lease.extend(20))
    for node in three.nodes:
        node.server.client().script_flush()
    assert give_back(one, lease) is True
    three.nothing_left()


def test_a_master_that_is_made_a_replica(three: Stage) -> None:
    """It takes no writes, and does not count; the others do."""
    party = three.party()
    warm(three, party)
    three.nodes[2].server.client().replicaof("127.0.0.1", three.nodes[0].server.port)
    for _ in range(3):
        assert give_back(party, acquire(party)) is True
    three.nodes[2].server.client().client_kill_filter(_type="normal", skipme=True)
    for _ in range(3):
        assert give_back(party, acquire(party)) is True


def test_extend_by_a_majority(three: Stage) -> None:
    """Longer and shorter, with one node missing; the end on each node is the new one."""
    party = three.party()
    lease = acquire(party)
    three.nodes[0].cut_off()
    party.do(lambda _: lease.extend(60))
    assert lease.remaining() > 30
    party.do(lambda _: lease.extend(5))
    assert lease.remaining() <= 5
    assert all(0 < node.server.client().pttl(OWNER) <= 5000 for node in three.nodes[1:])


@mostly("asyncio", "five")
@pytest.mark.parametrize("acquires", [250, pytest.param(1000, marks=pytest.mark.soak)])
def test_fences_grow_while_nodes_come_and_go(five: Stage, acquires: int) -> None:
    """Two parties in turn, with another minority cut off after every fifty acquires."""
    parties, fences = [five.party(), five.party()], []
    for number in range(acquires):
        if number % 50 == 0:
            gone = {number // 50 % 5, number // 50 * 2 % 5}
            five.only(*{0, 1, 2, 3, 4} - gone)
        lease = until(partial(_try, parties[number % 2]), "a majority grants")
        fences.append(lease.fence)
        assert give_back(parties[number % 2], lease) is True
    assert fences == sorted(set(fences))


def _try(party: Any) -> Any:
    """A node that was cut off may refuse for a moment, with what it has not been told."""
    try:
        return acquire(party)
    except StoreUnavailable:
        return None


def test_inspection_shows_what_a_majority_says(three: Stage) -> None:
    """A holder that only one node knows is no holder; each node can be looked at by its own URL."""
    party = three.party()
    lease = acquire(party)
    three.nodes[0].flush()
    assert three.store().execute(Inspect("job")).holders[0].fence == lease.fence  # type: ignore[union-attr]  # a View
    three.nodes[1].flush()
    assert three.store().execute(Inspect("job")).holders == ()  # type: ignore[union-attr]  # a View
    assert three.owners() == [False, False, True]
