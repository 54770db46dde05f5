"""What the tests of a bad network share: somebody with a good one who gives away, and what arrives late."""

from __future__ import annotations

from typing import Any

from tests.support.parties import Party
from tests.support.redis.stage import Stage

TTL = 30.0  # no test waits for its end


def giver(stage: Stage) -> tuple[Party, Any]:
    """Somebody with a good network, and a lease of his."""
    party = stage.other()
    return party, party.do(lambda hold: hold.lock("job", ttl=TTL).acquire())


def ticket_of(stage: Stage) -> str:
    """One that was given out on a good network."""
    party, lease = giver(stage)
    ticket: str = party.do(lambda _: lease.transfer())
    return ticket
