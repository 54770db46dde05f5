"""Killed in the middle: the request is on its way or done, and nobody lives to hear of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.processes.handover.conftest import MODULE
from tests.support.redis.crew import RedisCrew
from tests.support.redis.stage import Aim, arrive
from tests.support.servers.proxy import Proxy
from tests.support.waiting import until
from tests.support.workers.crew import SLACK, Crew, Worker

pytestmark = pytest.mark.slow

TTL = 1.5
LONG = 30.0  # seconds: what need not end


def killed_within(crew: RedisCrew, proxy: Proxy, worker: Worker, op: str, done: bool, **command: object) -> None:
    """It is killed while its next op of that kind is under way, or done and unanswered."""
    aim = Aim(proxy)
    (aim.lose if done else aim.hold)(op)
    worker.tell(**command)  # type: ignore[arg-type]  # what to do, and with what
    until(lambda: aim.seen[op] >= 1, f"a {op} is under way")
    if done:
        proxy.settle()
        crew.look.settle()
    worker.kill()
    aim.relent()


@pytest.mark.parametrize("done", [True, False], ids=["done", "on its way"])
def test_a_giver_killed_in_the_middle(redis_crew: RedisCrew, proxy: Proxy, done: bool) -> None:
    """Nobody has the ticket: free after a ttl at most, also when the request arrives after the giver's death."""
    giver = redis_crew.spawn(url=proxy.url)
    lease = giver.ask("acquire", kind="job", ttl=TTL, renew=False)
    killed_within(redis_crew, proxy, giver, "renew", done, do="transfer")
    if not done:
        arrive(proxy, redis_crew.look)
    assert redis_crew.look.left_ms() <= TTL * 1000
    got = redis_crew.spawn().ask("acquire", kind="job", ttl=LONG, wait=TTL + SLACK + 5)
    assert got["fence"] > lease["fence"]


def test_a_request_of_a_dead_giver_that_arrives_after_the_next_grant(redis_crew: RedisCrew, proxy: Proxy) -> None:
    """Late, and of another owner: it changes nothing for whoever holds now."""
    giver, other = redis_crew.spawn(url=proxy.url), redis_crew.spawn()
    giver.ask("acquire", kind="job", ttl=TTL, renew=False)
    killed_within(redis_crew, proxy, giver, "renew", False, do="transfer")
    got = other.ask("acquire", kind="job", ttl=LONG, wait=TTL + SLACK + 5)
    arrive(proxy, redis_crew.look)
    assert redis_crew.look.holder() == got["owner"] and other.ask("release")["released"] is True


def test_an_adopter_killed_after_it_adopted_unheard(redis_crew: RedisCrew, proxy: Proxy) -> None:
    """A second process with the same ticket is refused, and has to wait until the first one's time is over."""
    (giver, second), adopter = redis_crew.ready("sync", "sync"), redis_crew.spawn("asyncio", proxy.url)
    giver.ask("acquire", kind="job", ttl=LONG)
    ticket = giver.ask("transfer")["ticket"]
    killed_within(redis_crew, proxy, adopter, "adopt", True, do="adopt", ticket=ticket, ttl=TTL)
    refused = second.ask("adopt", ticket=ticket)
    assert (refused["error"], refused["reason"]) == ("LeaseLost", "taken")
    assert redis_crew.look.left_ms() <= TTL * 1000
    assert second.ask("acquire", kind="job", ttl=LONG, wait=TTL + SLACK + 5)["fence"]


def test_an_adopter_killed_before_its_request_arrived(redis_crew: RedisCrew, proxy: Proxy) -> None:
    """The ticket is good for another; the dead one's request comes later, and takes nothing from him."""
    giver, adopter, second = redis_crew.spawn(), redis_crew.spawn(url=proxy.url), redis_crew.spawn()
    giver.ask("acquire", kind="job", ttl=LONG)
    ticket = giver.ask("transfer")["ticket"]
    killed_within(redis_crew, proxy, adopter, "adopt", False, do="adopt", ticket=ticket)
    adopted = second.ask("adopt", ticket=ticket)
    arrive(proxy, redis_crew.look)
    assert redis_crew.look.holder() == adopted["owner"] and second.ask("write") == {"value": 1}


def test_a_giver_killed_inside_a_transaction(tmp_path: Path) -> None:
    """On SQLite: what was not committed has not happened, and nobody waits for longer than a ttl."""
    crew = Crew(tmp_path)
    crew.module = MODULE
    try:
        giver, newcomer = crew.ready("sync", "sync")
        lease = giver.ask("acquire", kind="job", ttl=TTL, renew=False)
        giver.ask("stick_in_commit")
        giver.tell("transfer")
        assert giver.hear() == {"stuck": True}
        giver.kill()
        assert crew.peek("job").holders[0].ticket == ""
        at = time.monotonic()
        got = newcomer.ask("acquire", kind="job", ttl=LONG, wait=TTL + SLACK + 5)
        assert got["fence"] > lease["fence"] and time.monotonic() - at <= TTL + SLACK + 1
        crew.sound()
    finally:
        crew.close()
