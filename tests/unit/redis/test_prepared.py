"""The first claim of an acquire, packed once for a lock: the same bytes as when it is packed anew."""

from __future__ import annotations

from leasehold._core import ops
from leasehold.stores.redis import protocol
from tests.support.tables import each

CLAIMS = [
    ops.Claim("report:42", "", 30_000),
    ops.Claim("app/report:é:%25", "", 50, address="@me", holder_address="news@me", delay_ms=700),
    ops.Claim("pool", "", 30_000, enqueue=False, rule="semaphore", permits=2, limit=7),
    ops.Claim("pool", "", 30_000, rule="read", meta='{"who":"\udc80"}'),
]


@each("op", CLAIMS, ids=["usual", "address", "semaphore", "meta"])
@each(("owner", "floor"), [("host:7:secret.1", 0), ("host:7:secret.20", 1_794_896_340_969_983)])
def test_prepared_claims_are_the_claims_themselves(op: ops.Claim, owner: str, floor: int) -> None:
    """Whatever is claimed, for any owner and floor."""
    claim = op._replace(owner=owner, floor=floor)
    found = protocol.prepared_claim(op)(owner, floor)
    assert found == protocol.request(claim) == protocol.pack(protocol.command(claim))
