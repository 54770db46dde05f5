"""Bytes that come back: S3 cannot tell them from those that never went away, so the guard does not let them."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.fence import Presented
from leasehold.guards.s3 import FenceGuard
from leasehold.guards.s3.record import REMEMBERED, ObjectState, Record, compose, is_repeat, parse
from tests.integration.guards.test_s3_guard import BY_A, BY_B, stored
from tests.support.guards.s3_fixtures import midway
from tests.support.servers.s3 import S3Server


@pytest.mark.slow
def test_why_bytes_may_not_come_back(s3_server: S3Server, bucket: str) -> None:
    """With repeat=True the ETag is what a frozen owner saw, and its stale write gets through: this is the hole."""
    slow, fast = s3_server.client(), s3_server.client()
    a, b = FenceGuard(slow, bucket), FenceGuard(fast, bucket)
    a.verify()
    b.put("status", "idle", 9, **BY_B)
    midway(slow, lambda: b.put("status", "idle", 11, **BY_B, repeat=True))
    a.put("status", "running", 10, **BY_A)
    assert stored(fast, bucket, "status")[0] == b"running"


@pytest.mark.slow
def test_bytes_with_something_unique_may(s3_server: S3Server, bucket: str) -> None:
    """The same story with a function as body: the frozen owner is refused."""
    slow, fast = s3_server.client(), s3_server.client()
    a, b = FenceGuard(slow, bucket), FenceGuard(fast, bucket)
    a.verify()
    b.put("status", lambda unique: f"idle {unique}", 9, **BY_B)
    midway(slow, lambda: b.put("status", lambda unique: f"idle {unique}", 11, **BY_B))
    with pytest.raises(StaleOwner):
        a.put("status", lambda unique: f"running {unique}", 10, **BY_A)
    assert stored(fast, bucket, "status")[0].startswith(b"idle ")


@pytest.mark.slow
def test_a_newer_owner_may_not_repeat_the_bytes(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Neither those that are there nor those from before, through a deletion too; and nothing is written."""
    s3_guard.put("status", "idle", 10, **BY_A)
    with pytest.raises(InvalidRequest, match="unique"):
        s3_guard.put("status", "idle", 11, **BY_B)
    s3_guard.put("status", "running", 11, **BY_B)
    s3_guard.delete("status", 11, **BY_B)
    for status in ("idle", "running"):
        with pytest.raises(InvalidRequest, match="repeat=True"):
            s3_guard.put("status", status, 12, **BY_A)
    assert stored(s3, bucket, "status")[1]["leasehold-fence"] == "11"
    s3_guard.put("status", "idle", 12, **BY_A, repeat=True)
    assert stored(s3, bucket, "status")[0] == b"idle"


@pytest.mark.slow
def test_an_owner_may_repeat_its_own_last_write(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """As after an unknown outcome: nobody older has seen these bytes there."""
    for _ in range(3):
        s3_guard.put("status", "idle", 10, **BY_A)
    assert stored(s3, bucket, "status")[0] == b"idle"


@pytest.mark.slow
def test_bytes_of_somebody_without_a_guard_may_not_be_repeated(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """An older owner may have seen those too."""
    s3.put_object(Bucket=bucket, Key="status", Body=b"idle")
    with pytest.raises(InvalidRequest, match="unique"):
        s3_guard.put("status", "idle", 10, **BY_A)


def test_the_last_states_are_remembered() -> None:
    """As many as there is room for in the metadata; the oldest go first."""
    attempt, seen = Presented("report:42", 10), ObjectState()
    for number in range(REMEMBERED + 1):
        seen = _after(attempt, seen, number)
    assert is_repeat(b"1", 10, _after(attempt, seen, REMEMBERED + 1))
    assert not is_repeat(b"0", 10, _after(attempt, seen, REMEMBERED + 1))
    assert not is_repeat(b"new", 10, seen)
    assert sum(len(name) + len(text) for name, text in compose(attempt, "0" * 32, seen).items()) < 1024


def _after(attempt: Presented, before: ObjectState, number: int) -> ObjectState:
    from hashlib import md5

    metadata = compose(attempt, f"{number}", before)
    return ObjectState(f'"{md5(str(number).encode(), usedforsecurity=False).hexdigest()}"', parse(metadata), metadata)


def test_an_etag_that_is_no_digest_of_the_bytes_never_repeats() -> None:
    """Where S3 encrypts with KMS, or in a directory bucket, each write has an ETag of its own: nothing is refused."""
    seen = ObjectState('"3f2a0c5d9e7b4a6188c0d1e2f3a4b5c6"', Record(fence=9, past=""))
    assert not is_repeat(b"idle", 10, seen)
