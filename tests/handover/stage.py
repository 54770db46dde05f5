"""What the tests of a bad network share: somebody with a good one who gives away, and what arrives late."""

from __future__ import annotations

from typing import Any

from leasehold.testing.parties import Party
from tests.redis.stage import Stage
from tests.servers.process import until

TTL = 5.0


def giver(stage: Stage) -> tuple[Party, Any]:
    """Somebody with a good network, and a lease of his."""
    party = stage.other()
    return party, party.do(lambda hold: hold.lock("job", ttl=TTL).acquire())


def ticket_of(stage: Stage) -> str:
    """One that was given out on a good network."""
    party, lease = giver(stage)
    ticket: str = party.do(lambda _: lease.transfer())
    return ticket


def deliver(stage: Stage) -> None:
    """What waits in the network arrives now, and is done."""
    assert stage.proxy.waiting > 0, "nothing is late"
    served = stage.look.served()
    stage.aim.relent()
    stage.proxy.release()
    until(lambda: stage.look.served() > served and stage.proxy.waiting == 0, "it arrives")
