"""Tickets: how they travel, where they are good for something, and what they do not give away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any

import pytest

import leasehold
from leasehold import LeaseLost
from leasehold._core import ops
from leasehold._core.tickets import read
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, look
from tests.support.sqlite import SOURCES


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture
def hold(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """A coordinator over it."""
    with leasehold.connect(spy) as made:
        yield made


def taken(hold: leasehold.Leasehold, *name: Any, **options: Any) -> leasehold.Lease:
    """A lease."""
    lease = hold.lock(*(name or ("job",)), **options).acquire(wait=0)
    assert lease is not None
    return lease


def test_a_ticket_of_another_store(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Told so that one looks in the right place; whoever holds the same name here is not disturbed."""
    with leasehold.connect(MemoryStore()) as there:
        ticket = taken(there, ttl=30).transfer()
        with pytest.raises(LeaseLost, match="is it the store that the giver uses") as info:
            hold.adopt(ticket)
        assert info.value.reason == "deleted"
        mine = taken(hold, ttl=30)
        with pytest.raises(LeaseLost):
            hold.adopt(ticket)
        mine.check()


def test_a_ticket_says_which_namespace(spy: Spy, hold: leasehold.Leasehold) -> None:
    """It names the whole resource: the adopter's own namespace and key change nothing, and nothing else is reached."""
    with (
        leasehold.connect(spy.inner, namespace="acme", hide_ids="hunter2") as giver,
        leasehold.connect(spy.inner, namespace="other") as adopter,
    ):
        ticket = taken(giver, "job", "alice", ttl=30).transfer()
        mine = taken(adopter, "job", "alice", ttl=30)
        adopted = adopter.adopt(ticket)
        assert adopted.resource == giver.lock("job", "alice").resource and adopted.resource.startswith("acme/job:")
        assert mine.state == "held" and adopter.lock("job", "alice").resource == "other/job:alice"


def test_the_id_of_a_giver_without_a_key_is_no_hash(spy: Spy, hold: leasehold.Leasehold) -> None:
    """An adopter who hides ids logs what the giver logs, and no part of the id."""
    with leasehold.connect(spy.inner, hide_ids="hunter2") as adopter:
        lease = taken(hold, "job", "alice@example.com", ttl=30)
        adopted = adopter.adopt(lease.transfer())
        assert adopted.log_context()["id_hash"] == lease.log_context()["id_hash"]
        assert "alice" not in repr(adopted)


def test_a_ticket_holds_no_secret(spy: Spy, hold: leasehold.Leasehold) -> None:
    """Neither the owner token nor the secret of its process, in whatever form: it opens nothing else."""
    lease = taken(hold, ttl=30)
    ticket = lease.transfer()
    secret = lease.owner.rpartition(":")[2].partition(".")[0]
    told = read(ticket)
    packed = ticket + repr(told)
    assert secret not in packed and lease.owner not in packed and secret not in told.nonce
    drawn = urlsafe_b64decode(secret + "==")
    assert len(drawn) == 16 and drawn not in bytes.fromhex(told.nonce) + told.resource.encode()
    assert drawn.hex() not in packed.lower()
    for op in (ops.Release("job", told.nonce, told.fence), ops.Renew("job", told.nonce, told.fence, 9_000)):
        assert isinstance(spy.inner.execute(op), ops.NotYours)
    assert isinstance(spy.inner.execute(ops.Evict("job", told.nonce, told.fence, "r")), ops.NotYours)
    assert look(spy, "job").holders[0].owner == lease.owner
    assert hold.adopt(ticket).owner.partition(".")[0] == lease.owner.partition(".")[0], "same process here"


def test_no_ticket_in_errors_and_reprs(spy: Spy, hold: leasehold.Leasehold) -> None:
    """An error about a ticket does not repeat it, and no repr shows its nonce."""
    lease = taken(hold, "job", "alice", ttl=30)
    ticket = lease.transfer()
    adopted = hold.adopt(ticket)
    with pytest.raises(LeaseLost) as info:
        hold.adopt(ticket)
    shown = (
        f"{info.value!r} {info.value} {info.value.__dict__} {lease!r} {adopted!r} {hold!r} {hold.inspect(adopted)!r}"
    )
    assert ticket not in shown and read(ticket).nonce not in shown and "alice" not in str(info.value)
    assert adopted.owner not in shown and lease.owner not in shown


BEARER = """
import json, os, sys
import leasehold
ways = {"argv": lambda: sys.argv[2], "env": lambda: os.environ["TICKET"],
        "json": lambda: json.load(sys.stdin)["ticket"], "line": lambda: sys.stdin.readline()}
given = ways[sys.argv[3]]()
with leasehold.connect(sys.argv[1]) as hold, hold.adopt(given, ttl=5) as lease:
    print(lease.fence)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["argv", "env", "json", "line"])
def test_a_ticket_travels(way: str, tmp_path: Any) -> None:
    """As an argument, in the environment, in a JSON message, and as a line with its newline: to another process."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with leasehold.connect(url) as hold:
        lease = taken(hold, "job", "näme with spaces & 🔒", ttl=30)
        ticket = lease.transfer()
        environment = {**os.environ, "PYTHONPATH": SOURCES, "TICKET": ticket if way == "env" else ""}
        command = [sys.executable, "-c", BEARER, url, ticket if way == "argv" else "-", way]
        message = json.dumps({"ticket": ticket}) if way == "json" else f"  {ticket}\n"
        done = subprocess.run(
            command, env=environment, input=message, check=False, capture_output=True, text=True, timeout=40
        )
        assert done.returncode == 0 and int(done.stdout) > lease.fence, done.stderr
        assert hold.lock("job", "näme with spaces & 🔒").try_acquire() is not None
