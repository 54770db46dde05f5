"""FenceGuard for S3: what is refused before anything is sent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.errors import InvalidRequest, Unsupported
from leasehold.guards.s3 import FenceGuard, Found
from tests.support.guards.s3_fixtures import counted
from tests.support.servers.s3 import client

RESOURCE = "report:42"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def nobody() -> Iterator[Any]:
    """A client of nobody: whatever it sends is an error, and is counted."""
    made = client(NOWHERE)
    yield made
    made.close()


@pytest.fixture
def guard(nobody: Any) -> FenceGuard:
    """A guard that nothing may be sent by."""
    return FenceGuard(nobody, "bucket")


def refuse(call: Callable[[], object], words: str | None = None) -> None:
    """A mistake of the caller."""
    with pytest.raises(InvalidRequest, match=words):
        call()


@pytest.mark.parametrize("bucket", ["", None, 42, b"bucket"])
def test_no_bucket(nobody: Any, bucket: Any) -> None:
    """Its name is text."""
    refuse(lambda: FenceGuard(nobody, bucket), "bucket")


@pytest.mark.parametrize("attempts", [0, -1, True, 2.5, "3", 10**6, None])
def test_no_number_of_attempts(nobody: Any, attempts: Any) -> None:
    """At least one, and an end."""
    refuse(lambda: FenceGuard(nobody, "bucket", attempts=attempts), "attempts")


@pytest.mark.parametrize("prefix", ["", "/", "leasehold", None, "x" * 300 + "/", "\ud800/"])
def test_no_prefix(nobody: Any, prefix: Any) -> None:
    """A folder that is the guard's alone."""
    refuse(lambda: FenceGuard(nobody, "bucket", prefix=prefix), "prefix")


@pytest.mark.parametrize("made", [None, "s3", object(), SimpleNamespace(meta=None)])
def test_no_client(made: Any) -> None:
    """What boto3.client("s3") gives, and nothing else."""
    refuse(lambda: FenceGuard(made, "bucket"), "boto3.client")


def test_a_resource_or_another_service_is_no_client() -> None:
    """boto3.resource("s3") has a client inside; a client of another service cannot put objects."""
    import boto3

    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    refuse(lambda: FenceGuard(session.resource("s3"), "bucket"), "meta.client")
    refuse(lambda: FenceGuard(session.client("sqs"), "bucket"), "boto3.client")


def test_a_client_for_asyncio_is_refused(nobody: Any) -> None:
    """Its calls would never be awaited."""

    async def put_object(**_: object) -> None: ...

    later = SimpleNamespace(meta=nobody.meta, head_object=put_object, get_object=put_object, put_object=put_object)
    refuse(lambda: FenceGuard(later, "bucket"), "to_thread")


def test_a_boto3_without_conditions_is_refused(nobody: Any) -> None:
    """It would refuse the argument only when the first write is made. One of 2023 knew neither."""
    shape = SimpleNamespace(members={"Bucket": 1, "Key": 1, "IfNoneMatch": 1})
    model = SimpleNamespace(operation_model=lambda _: SimpleNamespace(input_shape=shape))
    old = SimpleNamespace(
        meta=SimpleNamespace(service_model=model),
        head_object=nobody.head_object,
        get_object=nobody.get_object,
        put_object=nobody.put_object,
    )
    with pytest.raises(Unsupported, match="boto3>="):
        FenceGuard(old, "bucket")


@pytest.mark.parametrize("key", ["", None, 42, b"key", "x" * 1025, "ß" * 600, "a\0b", "\ud800", ".leasehold/mine"])
def test_no_key(nobody: Any, guard: FenceGuard, key: Any) -> None:
    """Text that S3 takes, outside the guard's own folder; nothing is sent."""
    sent = counted(nobody)
    refuse(lambda: guard.put(key, b"body", 10, resource=RESOURCE), "key")
    refuse(lambda: guard.get(key, 10, resource=RESOURCE), "key")
    refuse(lambda: guard.delete(key, 10, resource=RESOURCE), "key")
    assert sent == []


@pytest.mark.parametrize("body", [None, 42, ["a"], {"a": 1}, "\ud800", lambda unique: 42, lambda unique: b"without it"])
def test_no_body(nobody: Any, guard: FenceGuard, body: Any) -> None:
    """Bytes or text, or a function that puts what it is given into them; a file is to be read first."""
    sent = counted(nobody)
    refuse(lambda: guard.put("key", body, 10, resource=RESOURCE), "body")
    assert sent == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"IfMatch": "*"}, "guard's to set"),
        ({"IfNoneMatch": "*"}, "guard's to set"),
        ({"Bucket": "other"}, "guard's to set"),
        ({"Metadata": {"Leasehold-Fence": "1"}}, "guard's own"),
        ({"Metadata": {"a": 1}}, "text to text"),
        ({"Metadata": "a=1"}, "text to text"),
        ({"Metadata": {"a": "1\nb"}}, "line breaks"),
        ({"Metadata": {"a": "é"}}, "ASCII"),
        ({"ContentType": "text/csv\r\nx: y"}, "line breaks"),
        ({"WriteOffsetBytes": 0}, "guard's to set"),
        ({"after": "etag"}, "after"),
        ({"after": Found("other", b"", '"1"', 1, {})}, "another key"),
        ({"repeat": 1}, "repeat"),
    ],
)
def test_arguments_that_are_the_guards(nobody: Any, guard: FenceGuard, more: dict[str, Any], words: str) -> None:
    """What decides whether it is written is not the caller's; and what was found elsewhere says nothing here."""
    sent = counted(nobody)
    refuse(lambda: guard.put("key", b"body", 10, resource=RESOURCE, **more), words)
    refuse(lambda: guard.get("key", 10, resource=RESOURCE, VersionId="1"), "VersionId")
    assert sent == []


def test_who_may_only_read_does_not_write(nobody: Any, guard: FenceGuard) -> None:
    """A read lease, a permit without its slot, an unfenced lease: a mistake, for each method that writes."""
    sent = counted(nobody)
    reading = SimpleNamespace(resource=RESOURCE, fence=10, owner="a:1:b", shared=True)
    permit = SimpleNamespace(resource="pool", fence=10, owner="a:1:b", slot_resource="pool:0")
    unfenced = SimpleNamespace(resource=RESOURCE, fence=None, owner="a:1:b")
    for lease in (reading, permit, unfenced):
        refuse(lambda lease=lease: guard.put("key", b"body", lease))  # type: ignore[misc]  # a lambda's default
        refuse(lambda lease=lease: guard.delete("key", lease))  # type: ignore[misc]  # a lambda's default
        refuse(lambda lease=lease: guard.get("key", lease))  # type: ignore[misc]  # a lambda's default
    assert sent == []


@pytest.mark.slow
def test_the_module_loads_without_boto3() -> None:
    """The driver is the user's: whoever brings no client needs none."""
    program = "import leasehold.guards.s3, sys; sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
