"""What the stand-in for S3 is like, and what the guard makes of a store that is no better than it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from leasehold.errors import Unsupported
from leasehold.guards.s3 import FenceGuard
from tests.support.servers.s3 import S3Server

pytestmark = pytest.mark.slow
RACERS = 8


def winners(client: Any, request: Callable[[int], dict[str, str]], rounds: int) -> list[int]:
    """How many of eight puts at once, on one condition, were accepted in each round."""
    return [_race(client, request(number)) for number in range(rounds)]


def _race(client: Any, request: dict[str, str]) -> int:
    accepted: list[int] = []
    together = threading.Barrier(RACERS)

    def put(racer: int) -> None:
        together.wait(60)
        try:
            client.put_object(Body=f"racer {racer}", **request)
        except ClientError:  # 412; without the lock also 500 now and then, from two threads in one object
            return
        accepted.append(racer)

    threads = [threading.Thread(target=put, args=(racer,)) for racer in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return len(accepted)


def creating(bucket: str) -> Callable[[int], dict[str, str]]:
    """A key that nobody has used, each time."""
    return lambda number: {"Bucket": bucket, "Key": f"new-{number}", "IfNoneMatch": "*"}


def replacing(client: Any, bucket: str) -> Callable[[int], dict[str, str]]:
    """An object that has just been written, each time."""

    def request(number: int) -> dict[str, str]:
        etag = client.put_object(Bucket=bucket, Key="same", Body=f"base {number}")["ETag"]
        return {"Bucket": bucket, "Key": "same", "IfMatch": etag}

    return request


def test_behind_a_lock_one_of_many_wins(s3: Any, bucket: str) -> None:
    """The stand-in as the tests use it: hundreds of puts on one condition, and one winner in each race."""
    assert winners(s3, creating(bucket), 20) == [1] * 20
    assert winners(s3, replacing(s3, bucket), 20) == [1] * 20


def test_as_it_comes_several_win() -> None:
    """moto knows both conditions, but looks and writes in two steps: who is between them overwrites the other."""
    with S3Server("pause") as server:
        client, bucket = server.client(), server.bucket()
        assert max(winners(client, creating(bucket), 2)) > 1
        assert max(winners(client, replacing(client, bucket), 2)) > 1


def test_a_lock_makes_it_one_step() -> None:
    """The same pause behind the lock: one winner."""
    with S3Server("pause", "lock") as server:
        client, bucket = server.client(), server.bucket()
        assert winners(client, creating(bucket), 2) == [1, 1]
        assert winners(client, replacing(client, bucket), 2) == [1, 1]


def test_an_etag_is_made_of_the_bytes_alone(s3: Any, bucket: str) -> None:
    """Here, as at Amazon without KMS: other metadata, same ETag. So the guard must not let bytes come back."""
    one = s3.put_object(Bucket=bucket, Key="report", Body=b"same", Metadata={"fence": "10"})
    two = s3.put_object(Bucket=bucket, Key="report", Body=b"same", Metadata={"fence": "11"})
    assert one["ETag"] == two["ETag"]


def test_a_store_that_ignores_conditions_is_refused() -> None:
    """By the first write, before anything is written; and by verify()."""
    with S3Server("deaf") as server:
        client, bucket = server.client(), server.bucket()
        guard = FenceGuard(client, bucket)
        with pytest.raises(Unsupported, match="If-None-Match"):
            guard.put("report", b"body", 10, resource="report:42")
        with pytest.raises(Unsupported, match="cannot keep a stale owner out"):
            guard.verify()
        with pytest.raises(Unsupported):
            guard.check(10, resource="report:42")
        assert [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]] == [".leasehold/probe"]


def test_a_store_that_knows_half_is_refused(s3: Any, bucket: str) -> None:
    """If-None-Match came to S3 before If-Match did; one without the other cannot guard what exists."""
    s3.meta.events.register("before-sign.s3.PutObject", _forget_if_match)
    with pytest.raises(Unsupported, match="If-Match"):
        FenceGuard(s3, bucket).put("report", b"body", 10, resource="report:42")


def _forget_if_match(request: Any, **_: object) -> None:
    if "If-Match" in request.headers:
        del request.headers["If-Match"]
