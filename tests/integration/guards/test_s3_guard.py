"""FenceGuard for S3: objects are written, read and deleted by the newest owner, and by nobody older."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, StaleOwner, StoreUnavailable
from leasehold.guards.s3 import Conflict, FenceGuard
from leasehold.stores.memory import MemoryStore
from tests.support.guards.s3_fixtures import counted, midway
from tests.support.servers.s3 import S3Server

pytestmark = pytest.mark.slow

A, B = "host-1:11:5ec2e75ec2e75ec2e75ec2e75ec2e7.1", "host-2:22:5ec2e75ec2e75ec2e75ec2e75ec2e7.2"
RESOURCE = "report-export:42"
BY_A: dict[str, Any] = {"resource": RESOURCE, "owner": A}
BY_B: dict[str, Any] = {"resource": RESOURCE, "owner": B}


def stored(client: Any, bucket: str, key: str = "report") -> tuple[bytes, dict[str, str]]:
    """An object as everybody sees it."""
    response = client.get_object(Bucket=bucket, Key=key)
    return response["Body"].read(), response["Metadata"]


# ---------------------------------------------------------------- put


def test_an_object_is_written_as_it_is(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Bytes, type and metadata of the user, beside the fence, and never the owner's token."""
    made = s3_guard.put("report", b"\0body", 10, **BY_A, ContentType="text/csv", Metadata={"by": "nightly"})
    body, metadata = stored(s3, bucket)
    assert body == made.body == b"\0body"
    assert (metadata["by"], metadata["leasehold-fence"]) == ("nightly", "10")
    assert s3.head_object(Bucket=bucket, Key="report")["ContentType"] == "text/csv"
    assert "5ec2e7" not in str(metadata) + repr(made)


def test_text_is_utf_8(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """So that nobody must encode by hand."""
    s3_guard.put("report", "jö", 10, **BY_A)
    assert stored(s3, bucket)[0] == "jö".encode()


def test_a_stale_owner_changes_nothing(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Neither bytes nor metadata, whether it is older or has the same fence as another."""
    s3_guard.put("report", b"B", 11, **BY_B)
    before = stored(s3, bucket)
    for fence in (10, 11):
        with pytest.raises(StaleOwner) as caught:
            s3_guard.put("report", b"A", fence, **BY_A)
        assert (caught.value.fence, caught.value.seen) == (fence, 11)
        with pytest.raises(StaleOwner):
            s3_guard.delete("report", fence, **BY_A)
        with pytest.raises(StaleOwner):
            s3_guard.get("report", fence, **BY_A)
    assert stored(s3, bucket) == before


def test_an_owner_that_freezes_before_its_write_is_refused(s3_server: S3Server, bucket: str) -> None:
    """It looked, found nothing newer and stood still; by the time it writes somebody else was there."""
    slow, fast = s3_server.client(), s3_server.client()
    a, b = FenceGuard(slow, bucket), FenceGuard(fast, bucket)
    a.verify()
    midway(slow, lambda: b.put("report", b"B", 11, **BY_B))
    with pytest.raises(StaleOwner) as caught:
        a.put("report", b"A", 10, **BY_A)
    assert (caught.value.fence, caught.value.seen) == (10, 11)
    assert stored(fast, bucket)[0] == b"B"


def test_an_owner_that_is_overtaken_by_an_older_one_writes_again(s3_server: S3Server, bucket: str) -> None:
    """The older one came first, and was in its right; the newer one looks again and replaces it."""
    fast, slow = s3_server.client(), s3_server.client()
    a, b = FenceGuard(fast, bucket), FenceGuard(slow, bucket)
    b.verify()
    midway(slow, lambda: a.put("report", b"A", 10, **BY_A))
    b.put("report", b"B", 11, **BY_B)
    assert stored(fast, bucket)[0] == b"B"


def test_a_put_is_two_requests(s3_guard: FenceGuard, requests: list[str]) -> None:
    """One to look and one to write, also when the object is there; a refusal is one."""
    for fence in (10, 11):
        s3_guard.put("report", f"{fence}", fence, resource=RESOURCE)
        assert [requests.pop(0), requests.pop(0)] == ["HeadObject", "PutObject"]
    with pytest.raises(StaleOwner):
        s3_guard.put("report", b"late", 10, resource=RESOURCE)
    found = s3_guard.get("report", 11, resource=RESOURCE)
    s3_guard.put("report", b"next", 11, resource=RESOURCE, after=found)
    s3_guard.delete("report", 11, resource=RESOURCE)
    assert requests == ["HeadObject", "GetObject", "HeadObject", "PutObject", "HeadObject", "PutObject"]


def test_a_check_is_two_requests(s3_guard: FenceGuard, requests: list[str]) -> None:
    """And one when the fence is known already, or for a reader."""
    s3_guard.check(10, **BY_A)
    s3_guard.check(10, **BY_A)
    s3_guard.check(11, **BY_A, shared=True)
    assert requests == ["HeadObject", "PutObject", "HeadObject", "GetObject"]


def test_the_first_write_of_a_guard_asks_whether_conditions_are_kept(s3: Any, bucket: str) -> None:
    """Three requests in a new bucket, two in one that was asked before, none for the writes that follow."""
    first, second, sent = FenceGuard(s3, bucket), FenceGuard(s3, bucket), counted(s3)
    first.put("one", b"1", 10, resource=RESOURCE)
    assert sent == ["PutObject", "PutObject", "PutObject", "HeadObject", "PutObject"]
    sent.clear()
    second.check(10, resource=RESOURCE)
    assert sent == ["PutObject", "PutObject", "HeadObject", "PutObject"]
    sent.clear()
    second.put("two", b"2", 10, resource=RESOURCE)
    assert sent == ["HeadObject", "PutObject"]


def test_a_lease_is_presented_as_it_is(s3_guard: FenceGuard) -> None:
    """It brings resource, fence and owner; and it knows then that a guard has seen it."""
    with leasehold.connect(MemoryStore()) as hold, hold.lock("report-export", 42) as lease:
        s3_guard.put("report", b"body", lease)
        found = s3_guard.get("report", lease)
        assert found is not None and found.fence == lease.fence
        assert lease.guarded


def test_nobody_gives_up_too_early_or_never(s3_server: S3Server, bucket: str) -> None:
    """Others write between each look and write: after so many attempts it is a Conflict, and nothing was written."""
    slow, fast = s3_server.client(), s3_server.client()
    guard, other, number = FenceGuard(slow, bucket, attempts=3), FenceGuard(fast, bucket), iter(range(100))
    guard.verify()
    sent = counted(slow)

    def interfere(**_: object) -> None:
        other.put("report", f"other {next(number)}", 10, **BY_A)

    slow.meta.events.register("before-call.s3.PutObject", interfere)
    with pytest.raises(Conflict) as caught:
        guard.put("report", b"mine", 10, **BY_A)
    assert sent.count("PutObject") == 3
    assert stored(fast, bucket)[0] == b"other 2"
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), Conflict)  # noqa: S301 # our own
    assert caught.value.resource == RESOURCE


# ---------------------------------------------------------------- get, change, put


def test_what_is_found_can_be_changed(s3_guard: FenceGuard) -> None:
    """Body, ETag, fence and the user's metadata; what a put gives can be built on too."""
    assert s3_guard.get("counter", 10, **BY_A) is None
    first = s3_guard.put("counter", b"1", 10, **BY_A, after=None, Metadata={"By": "me"})
    found = s3_guard.get("counter", 10, **BY_A)
    assert found is not None and found == first.__class__("counter", b"1", first.etag, 10, {"by": "me"}, first.write)
    second = s3_guard.put("counter", b"2", 10, **BY_A, after=found)
    s3_guard.put("counter", b"3", 10, **BY_A, after=second)
    last = s3_guard.get("counter", 10, **BY_A)
    assert last is not None and last.body == b"3"


def test_what_has_changed_since_is_not_overwritten(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """By the same owner, by an older one, by somebody without a guard: Conflict, and nothing is written."""
    s3_guard.put("counter", b"1", 10, **BY_A)
    found = s3_guard.get("counter", 11, **BY_B)
    s3_guard.put("counter", b"2", 10, **BY_A)
    with pytest.raises(Conflict, match="read again"):
        s3_guard.put("counter", b"2", 11, **BY_B, after=found)
    found = s3_guard.get("counter", 11, **BY_B)
    s3.put_object(Bucket=bucket, Key="counter", Body=b"by hand")
    with pytest.raises(Conflict):
        s3_guard.put("counter", b"3", 11, **BY_B, after=found)
    assert stored(s3, bucket, "counter")[0] == b"by hand"


def test_the_same_bytes_written_anew_are_a_change(s3_guard: FenceGuard) -> None:
    """The ETag is the same, and still somebody was there: each write has a name of its own."""
    found = s3_guard.put("counter", b"1", 10, **BY_A)
    s3_guard.put("counter", b"1", 10, **BY_A)
    with pytest.raises(Conflict):
        s3_guard.put("counter", b"2", 10, **BY_A, after=found)


def test_a_newer_owner_is_a_stale_owner_and_no_conflict(s3_guard: FenceGuard) -> None:
    """There is nothing to read again for who has lost its lease."""
    found = s3_guard.put("counter", b"1", 10, **BY_A)
    s3_guard.put("counter", b"2", 11, **BY_B)
    with pytest.raises(StaleOwner):
        s3_guard.put("counter", b"2", 10, **BY_A, after=found)


def test_nothing_must_still_be_nothing(s3_guard: FenceGuard) -> None:
    """after=None: who found no object creates it, and only once."""
    s3_guard.put("counter", b"1", 10, **BY_A, after=None)
    with pytest.raises(Conflict):
        s3_guard.put("counter", b"one", 10, **BY_A, after=None)


def test_what_was_found_and_is_gone_is_not_brought_back(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Deleted through the guard or by hand."""
    for delete in (
        lambda: s3_guard.delete("counter", 10, **BY_A),
        lambda: s3.delete_object(Bucket=bucket, Key="counter"),
    ):
        found = s3_guard.put("counter", lambda unique: unique, 10, **BY_A)
        delete()
        with pytest.raises(Conflict):
            s3_guard.put("counter", b"2", 10, **BY_A, after=found)


# ---------------------------------------------------------------- delete


def test_who_is_deleted_keeps_its_fence(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """There is nothing to read, older owners are refused, and newer ones can create it anew."""
    s3_guard.put("report", b"A", 10, **BY_A)
    s3_guard.delete("report", 11, **BY_B)
    assert s3_guard.get("report", 11, **BY_B) is None
    with pytest.raises(StaleOwner):
        s3_guard.put("report", b"A again", 10, **BY_A)
    with pytest.raises(StaleOwner):
        s3_guard.get("report", 10, **BY_A)
    assert stored(s3, bucket)[1]["leasehold-deleted"] == "1"
    s3_guard.put("report", b"new", 12, **BY_A, after=None)
    assert "leasehold-deleted" not in stored(s3, bucket)[1]


def test_what_is_not_there_can_be_deleted(s3_guard: FenceGuard) -> None:
    """It is then known by whom, and an older owner cannot create it."""
    s3_guard.delete("report", 11, **BY_B)
    with pytest.raises(StaleOwner):
        s3_guard.put("report", b"A", 10, **BY_A)


def test_only_what_was_found_is_deleted(s3_guard: FenceGuard) -> None:
    """delete takes after= like put."""
    found = s3_guard.put("report", b"1", 10, **BY_A)
    s3_guard.put("report", b"2", 10, **BY_A)
    with pytest.raises(Conflict):
        s3_guard.delete("report", 10, **BY_A, after=found)


# ---------------------------------------------------------------- what others have written


def test_an_object_without_a_fence_is_taken_over(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Somebody wrote it without a guard: its fence is not known, and whoever comes is the first."""
    s3.put_object(Bucket=bucket, Key="report", Body=b"by hand", Metadata={"by": "hand"})
    found = s3_guard.get("report", 10, **BY_A)
    assert found is not None
    assert (found.body, found.fence, found.metadata) == (b"by hand", None, {"by": "hand"})
    s3_guard.put("report", b"A", 10, **BY_A, after=found)
    assert stored(s3, bucket)[1]["leasehold-fence"] == "10"


@pytest.mark.parametrize(
    "metadata",
    [
        {"leasehold-fence": "ten"},
        {"leasehold-fence": "0"},
        {"leasehold-fence": str(2**63)},
        {"leasehold-owner": "00"},
        {"leasehold-fence": "9", "leasehold-owner": "not hex"},
        {"leasehold-fence": "9", "leasehold-past": "abc"},
    ],
)
def test_metadata_that_no_guard_wrote(s3: Any, bucket: str, s3_guard: FenceGuard, metadata: dict[str, str]) -> None:
    """The fence cannot be known: nothing is read or written until somebody has looked at it."""
    s3.put_object(Bucket=bucket, Key="report", Body=b"odd", Metadata=metadata)
    steps: list[Callable[[], object]] = [
        lambda: s3_guard.put("report", b"A", 10, **BY_A),
        lambda: s3_guard.get("report", 10, **BY_A),
        lambda: s3_guard.delete("report", 10, **BY_A),
    ]
    for step in steps:
        with pytest.raises(StoreUnavailable, match="not written by a guard"):
            step()
    assert stored(s3, bucket) == (b"odd", metadata)


def test_two_resources_on_one_key(s3: Any, bucket: str, s3_guard: FenceGuard) -> None:
    """Fences of two resources cannot be compared: a mistake, whichever is the higher."""
    s3_guard.put("report", b"A", 10, **BY_A)
    for fence in (9, 11):
        with pytest.raises(InvalidRequest, match="another resource"):
            s3_guard.put("report", b"B", fence, resource="other:42", owner=B)
    with pytest.raises(InvalidRequest, match="another resource"):
        s3_guard.get("report", 11, resource="other:42", owner=B)
    assert stored(s3, bucket)[0] == b"A"


def test_one_resource_guards_several_keys_each_on_its_own(s3_guard: FenceGuard) -> None:
    """The fence lies with each object: an older owner is refused where the newer one has been, and not elsewhere."""
    s3_guard.put("one", b"B", 11, **BY_B)
    with pytest.raises(StaleOwner):
        s3_guard.put("one", b"A", 10, **BY_A)
    s3_guard.put("two", b"A", 10, **BY_A)


def test_keys_and_resources_of_every_kind(s3_guard: FenceGuard) -> None:
    """Spaces, percent signs, letters of the world, and the longest names that there are."""
    for number, name in enumerate(["a b", "a%20b", "jöb/ß", "x" * 512, "ß" * 256, "..", "a//b:%3A"], 1):
        s3_guard.put(f"key {name}"[:300], f"{number}", number, resource=name, owner=A)
        found = s3_guard.get(f"key {name}"[:300], number, resource=name, owner=A)
        assert found is not None and found.body == f"{number}".encode()
        s3_guard.check(number, resource=name, owner=A)
        with pytest.raises(StaleOwner):
            s3_guard.check(number, resource=name, owner=B)
