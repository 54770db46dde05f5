"""The requests of a guard: look, read and write on a condition, through the client of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from leasehold.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.guards.fence import Presented
from leasehold.guards.s3.failures import is_missing, refusal, retried, unanswered, verdict
from leasehold.guards.s3.record import Seen, parse, yours

CONDITIONS = ("IfMatch", "IfNoneMatch")
# What a request to look needs as much as one to write; it is given once, to put().
BOTH = ("ExpectedBucketOwner", "RequestPayer", "SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5")

More = Mapping[str, Any]


class Client(Protocol):
    """What a guard uses of ``boto3.client("s3")``."""

    @property
    def meta(self) -> Any: ...
    def head_object(self, **request: Any) -> Any: ...
    def get_object(self, **request: Any) -> Any: ...
    def put_object(self, **request: Any) -> Any: ...


class Lost(Exception):
    """It was not written, as far as one can tell from the answer. Never leaves the guard.

    ``doubt``: an earlier try of the client may have written it. ``silent``: no answer at all, and it may happen yet."""

    def __init__(self, doubt: bool, silent: bool = False) -> None:
        super().__init__(doubt, silent)
        self.doubt = doubt
        self.silent = silent


class Bucket:
    """A bucket, and somebody's client to it, which is neither opened nor closed here."""

    __slots__ = ("_client", "name")

    def __init__(self, client: Client, name: object) -> None:
        self._client = _checked(client)
        if not isinstance(name, str) or not name:
            raise InvalidRequest("bucket is the name of a bucket, as text")
        self.name = str.__str__(name)

    @property
    def where(self) -> str:
        """For messages."""
        return f"S3 (bucket {self.name[:100]})"

    def look(self, key: str, more: More) -> Seen:
        """What there is, without its bytes."""
        return self._seen(lambda: self._client.head_object(Bucket=self.name, Key=key, **_both(more)))

    def read(self, key: str, more: More) -> Seen:
        """What there is."""

        def whole() -> Any:
            response = self._client.get_object(Bucket=self.name, Key=key, **_both(more))
            with response["Body"] as stream:
                return {**response, "Body": stream.read()}

        return self._seen(whole)

    def _seen(self, ask: Callable[[], Any]) -> Seen:
        try:
            response = ask()
        except Exception as error:  # whatever the client raises, or a checksum, a parser, a stream
            if is_missing(error):
                return Seen()
            raise refusal(self.where, error) from error
        etag, metadata = response.get("ETag"), response.get("Metadata", {})
        if not etag:
            raise StoreUnavailable(f"{self.where} gave no ETag, without which nothing can be written on a condition")
        return Seen(etag, parse(metadata), yours(metadata), response.get("Body") or b"")

    def write(self, key: str, body: bytes, before: Seen, more: More) -> str:
        """Write if there is still what was seen before; the new ETag. Raises Lost, or why nothing was written."""
        still: dict[str, str] = {"IfNoneMatch": "*"} if before.etag is None else {"IfMatch": before.etag}
        try:
            response = self._client.put_object(Bucket=self.name, Key=key, Body=body, **still, **more)
        except Exception as error:
            what = verdict(error)
            if what == "no":
                raise refusal(self.where, error) from error
            raise Lost(doubt=what == "unknown" or retried(error), silent=what == "unknown") from error
        return str(response.get("ETag") or "")

    def accepts(self, key: str, body: bytes, **still: str) -> bool:
        """Is something written in spite of this condition?"""
        try:
            self._client.put_object(Bucket=self.name, Key=key, Body=body, **still)
        except Exception as error:
            if verdict(error) == "race":
                return False
            raise refusal(self.where, error) from error
        return True

    def unanswered(self, attempt: Presented) -> OutcomeUnknown:
        """Nobody knows what became of a write."""
        return unanswered(self.where, attempt.resource, attempt.fence)


def _both(more: More) -> dict[str, Any]:
    return {name: more[name] for name in BOTH if name in more}


def _checked(client: Client) -> Client:
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if model is None or not all(callable(getattr(client, name, None)) for name in _CALLS):
        raise InvalidRequest(
            f'client is what boto3.client("s3") gives, not {type(client).__name__}; a resource has it as .meta.client'
        )
    if inspect.iscoroutinefunction(client.put_object):
        raise InvalidRequest(
            "client is one for asyncio. The guard takes a blocking one, boto3.client: await "
            "asyncio.to_thread(guard.put, ...)"
        )
    known = model.operation_model("PutObject").input_shape.members
    if not all(name in known for name in CONDITIONS):
        raise Unsupported("this boto3 does not know conditional writes: pip install 'boto3>=1.36'")
    return client


_CALLS = ("head_object", "get_object", "put_object")
