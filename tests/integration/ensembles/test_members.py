"""Members of an ensemble that fail while a lease is held and others wait for it."""

from __future__ import annotations

import time

import pytest

from tests.integration.ensembles.members import Members, ZooKeeperMembers
from tests.integration.ensembles.stage import SHORT, TTL, Inside, judge, stage, survived
from tests.support.waiting import until
from tests.support.workers.journal import now

WHO = {"leader": lambda members: members.leader(), "follower": lambda members: members.followers()[0]}
SESSION = 3.0  # seconds: a silent member is left after two thirds of it
who = pytest.mark.parametrize("who", WHO)
leader_first = pytest.mark.parametrize("who", ["leader", pytest.param("follower", marks=pytest.mark.soak)])
follower_first = pytest.mark.parametrize("who", ["follower", pytest.param("leader", marks=pytest.mark.soak)])


def others(members: Members, one: object) -> list[object]:
    """All members but this one."""
    return [member for member in members.servers if member is not one]


@leader_first
def test_kill_9(members: Members, who: str) -> None:
    """Of the member that all clients are connected to: the lease goes on."""
    victim = WHO[who](members)
    survived(members, victim.kill, victim, *others(members, victim), ttl=9)


@leader_first
def test_it_stands_still(members: Members, who: str) -> None:
    """The member that all clients are connected to: they find another one, and the lease goes on."""
    if isinstance(members, ZooKeeperMembers):
        members.session = SESSION
    victim = WHO[who](members)
    survived(members, victim.freeze, victim, *others(members, victim), ttl=9)


@pytest.mark.soak
@who
def test_it_is_cut_off_from_the_others(members: Members, who: str) -> None:
    """The member that all clients are connected to: it answers, but confirms nothing, so they find another one."""
    victim = WHO[who](members)
    survived(members, lambda: members.cut_off(victim), victim, *others(members, victim))


@follower_first
def test_it_is_cut_off_with_its_holder(members: Members, who: str) -> None:
    """The holder reaches only that member: it stops before its deadline, and those who wait elsewhere go on after it.
    A session that this member believes in prolongs nothing."""
    victim = WHO[who](members)
    with stage(members) as played:
        holder = played.hold(victim, ttl=SHORT)
        waiters = played.queue(*others(members, victim), ttl=SHORT)
        members.cut_off(victim)
        until(lambda: holder.lost, "its holder knows that it is lost")
        until(lambda: all(waiter.turns for waiter in waiters), "the others go on")
        members.heal()


@pytest.mark.soak
@pytest.mark.parametrize("back", ["in time", "too late"])
def test_another_leads_while_the_old_leader_has_the_holder(members: Members, back: str) -> None:
    """The holder reaches only the old leader, which is cut off. Nobody is granted the lease before its deadline: if the
    old leader is back by then, the holder goes on, else those who wait elsewhere."""
    old = members.leader()
    with stage(members) as played:
        holder = played.hold(old)
        waiters = played.queue(*others(members, old))
        members.cut_off(old)
        until(lambda: members.leader() is not old, "another one leads")
        assert not any(waiter.held.is_set() for waiter in waiters) and not holder.lost
        if back == "in time":
            members.heal()
            renewed = now() + TTL
            until(lambda: holder.lost or holder.lease.deadline > renewed, "its lease is renewed")
            assert not holder.lost, "the lease was lost"
        else:
            until(lambda: holder.lost, "its holder knows that it is lost")
            until(lambda: all(waiter.turns for waiter in waiters), "the others go on")
            members.heal()


@pytest.mark.soak
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_all_members_restart(members: Members, how: str) -> None:
    """The lease goes on, and those who wait get it next."""

    def crash() -> None:
        for server in members.servers:
            if how == "kill":
                server.kill()
            else:
                server._end(server._farewell)
        members.heal()

    survived(members, crash)


@pytest.mark.soak
def test_no_majority_for_longer_than_a_lease(members: Members) -> None:
    """Its holder stops before its deadline, nobody is granted anything meanwhile, and all go on afterwards."""
    with stage(members) as played:
        holder = played.hold(ttl=SHORT)
        waiters = played.queue(ttl=SHORT)
        one, two = members.servers[:2]
        one.freeze()
        two.kill()
        until(lambda: holder.lost, "its holder knows that it is lost")
        time.sleep(SHORT)
        assert not any(waiter.held.is_set() for waiter in waiters)
        members.heal()


def test_two_inside_are_seen() -> None:
    """The judge can say no (I18)."""
    fine = [Inside(1, 2, 1, "a"), Inside(2, 3, 2, "b")]
    judge(fine, [1, 1, 2])
    for wrong in (fine[1]._replace(since=1.9), fine[1]._replace(fence=1), fine[1]._replace(owner="a")):
        with pytest.raises(AssertionError):
            judge([fine[0], wrong], [])
    with pytest.raises(AssertionError, match="stale"):
        judge(fine, [1, 2, 1])
