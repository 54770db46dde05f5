"""A bad network between the guard and S3: what happened is told as it is, and "unknown" is never a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.errors import OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.s3 import FenceGuard
from tests.integration.guards.test_s3_guard import BY_A, BY_B, stored
from tests.support.guards.s3_fixtures import counted
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.s3 import S3Server
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


@pytest.fixture
def network(s3_server: S3Server) -> Iterator[Proxy]:
    """In front of the stand-in."""
    with Proxy(s3_server.port) as proxy:
        yield proxy


def through(server: S3Server, network: Proxy, tries: int, patience: float = PATIENCE) -> Any:
    """A client that tries so often, and waits so long for a reply."""
    retries = {"total_max_attempts": tries, "mode": "standard"}
    return server.client(f"http://127.0.0.1:{network.port}", retries=retries, read_timeout=patience)


def first_write(verdict: Verdict) -> Callable[[bytes], Verdict]:
    """This becomes of the first put whose bytes come by; boto3 sends them after its headers, when it is told to."""
    writes: list[bytes] = []

    def judge(chunk: bytes) -> Verdict:
        headers, _, body = chunk.partition(b"\r\n\r\n")
        first = chunk.startswith((b"PUT ", b"GET ", b"HEAD "))
        whole = body or b"100-continue" not in headers.lower()
        if (first and not (chunk.startswith(b"PUT ") and whole)) or writes:
            return "pass"
        writes.append(chunk)
        return verdict

    return judge


def guarded(client: Any, bucket: str) -> tuple[FenceGuard, list[str]]:
    """A guard whose questions about the store are asked, and what it sends from now on."""
    guard = FenceGuard(client, bucket)
    guard.verify()
    return guard, counted(client)


def second_time(client: Any, operation: str, call: Callable[[], object]) -> None:
    """Call this before such a request leaves for the second time from now on."""
    calls: list[Callable[[], object]] = [call, lambda: None]

    def count(**_: object) -> None:
        if calls:
            calls.pop()()

    client.meta.events.register(f"before-send.s3.{operation}", count)


def test_a_put_that_was_sent_again_knows_its_own_first_try(
    s3_server: S3Server, s3: Any, bucket: str, network: Proxy
) -> None:
    """The reply is lost, the client repeats the put and is told that its condition does not hold: it was ourselves."""
    guard, sent = guarded(through(s3_server, network, 2), bucket)
    network.on_request = first_write("cut_reply")
    guard.put("report", b"A", 10, **BY_A)
    assert sent == ["HeadObject", "PutObject", "PutObject", "HeadObject"]
    assert stored(s3, bucket)[0] == b"A"


def test_a_put_without_an_answer_is_looked_for(s3_server: S3Server, s3: Any, bucket: str, network: Proxy) -> None:
    """A client that does not repeat: the object says that it was written."""
    guard, sent = guarded(through(s3_server, network, 1), bucket)
    network.on_request = first_write("cut_reply")
    found = guard.put("report", b"A", 10, **BY_A)
    assert sent == ["HeadObject", "PutObject", "HeadObject"]
    assert found.etag == s3.head_object(Bucket=bucket, Key="report")["ETag"]
    guard.put("report", b"A2", 10, **BY_A, after=found)


def test_a_put_that_may_come_yet_is_unknown(s3_server: S3Server, s3: Any, bucket: str, network: Proxy) -> None:
    """It is on its way when nobody waits any more; it may arrive late, and then not over a newer owner."""
    guard, _ = guarded(through(s3_server, network, 1, patience=3), bucket)
    network.on_request = first_write("hold")
    with pytest.raises(OutcomeUnknown) as caught:
        guard.put("report", b"A", 10, **BY_A)
    assert (caught.value.resource, caught.value.fence) == (BY_A["resource"], 10)
    assert type(caught.value.__cause__).__name__ == "ReadTimeoutError"
    FenceGuard(s3, bucket).put("report", b"B", 11, **BY_B)
    network.release()
    until(lambda: network.waiting == 0, "it has arrived")
    assert stored(s3, bucket)[0] == b"B"
    with pytest.raises(StaleOwner):
        guard.put("report", b"A", 10, **BY_A)


def test_what_a_newer_owner_wrote_over_is_unknown(s3_server: S3Server, s3: Any, bucket: str, network: Proxy) -> None:
    """Our put happened, its reply was lost, and another was written before we could look: nobody says "nothing"."""
    client = through(s3_server, network, 2)
    guard, _ = guarded(client, bucket)
    other = FenceGuard(s3, bucket)
    other.verify()
    network.on_request = first_write("cut_reply")

    second_time(client, "PutObject", lambda: other.put("report", b"B", 11, **BY_B))
    with pytest.raises(OutcomeUnknown):
        guard.put("report", b"A", 10, **BY_A)
    assert stored(s3, bucket)[0] == b"B"


def test_who_cannot_look_either_does_not_know(s3_server: S3Server, s3: Any, bucket: str, network: Proxy) -> None:
    """Written, no reply, and then nothing goes through any more."""
    client = through(s3_server, network, 1)
    guard, _ = guarded(client, bucket)
    network.on_request = first_write("cut_reply")
    second_time(client, "HeadObject", network.refuse)
    with pytest.raises(OutcomeUnknown):
        guard.put("report", b"A", 10, **BY_A)
    assert stored(s3, bucket)[0] == b"A"


def test_nobody_there(s3_server: S3Server, bucket: str, network: Proxy) -> None:
    """No connection: nothing was written, and it may be tried again."""
    guard, _ = guarded(through(s3_server, network, 1), bucket)
    network.refuse()
    network.cut()
    steps: list[Callable[[], object]] = [
        lambda: guard.put("report", b"A", 10, **BY_A),
        lambda: guard.get("report", 10, **BY_A),
        lambda: guard.check(10, **BY_A),
        guard.verify,
    ]
    for step in steps:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
            step()
        assert caught.value.__cause__ is not None
        assert "report" not in str(caught.value), "keys are made of ids, and this may be logged"
    network.accept()
    guard.put("report", b"A", 10, **BY_A)


def test_a_body_that_is_cut_off(s3_server: S3Server, s3: Any, bucket: str, network: Proxy) -> None:
    """What was read in part is not taken for the object. It is larger than all that buffers on the way can hold."""
    s3.put_object(Bucket=bucket, Key="report", Body=b"x" * 40_000_000)
    client = through(s3_server, network, 1)
    client.meta.events.register("after-call.s3.GetObject", lambda **_: network.cut())
    with pytest.raises(StoreUnavailable):
        FenceGuard(client, bucket).get("report", 10, **BY_A)
