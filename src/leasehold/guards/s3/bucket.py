"""The requests of a guard to S3: head, read and conditional write, through the user's client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.guards.fence import Presented
from leasehold.guards.s3.record import ObjectState, parse, user_metadata

# ---------------------------------------------------------------- failures
#
# What an error of the client means, and which of our errors it becomes.


# changed: the condition did not hold. refused: nothing was written. unknown: it may have been, or may still be.
WriteFailure = Literal["changed", "refused", "unknown"]

RIGHTS = (
    "does not allow what a guard needs: s3:GetObject and s3:PutObject on the objects, and s3:ListBucket on the bucket "
    "(without it S3 says 'forbidden' of an object that is not there)"
)
WHY = {
    "NoSuchBucket": "has no bucket of this name: create it, or name another",
    "AccessDenied": RIGHTS,
    "403": RIGHTS,
    "SlowDown": "asks for fewer requests: try again later",
    "ServiceUnavailable": "is not available now: try again later",
    "PermanentRedirect": "keeps this bucket in another region: make the client with its region_name",
    "301": "keeps this bucket in another region: make the client with its region_name",
}
BEFORE_SENDING = {
    "CredentialRetrievalError",
    "NoCredentialsError",
    "NoRegionError",
    "ParamValidationError",
    "PartialCredentialsError",
    "TokenRetrievalError",
}
MISTAKES = {
    "EntityTooLarge",
    "InvalidArgument",
    "InvalidBucketName",
    "InvalidDigest",
    "InvalidRequest",
    "InvalidStorageClass",
    "InvalidTag",
    "KeyTooLongError",
    "MetadataTooLarge",
}


def is_missing(error: BaseException) -> bool:
    """There is no such object. The response to a HEAD has no body, so 404 may be all there is."""
    return _status(error) == 404 and _code(error) in {"404", "NoSuchKey", "NotFound"}


def classify(error: BaseException) -> WriteFailure:
    """What an error of a conditional put means."""
    if _status(error) in {409, 412} or is_missing(error):
        return "changed"
    if _never_sent(error):
        return "refused"
    # A client that tries again shows only the last response: a refusal says nothing about the tries before it.
    definite = 300 <= _status(error) < 500 or _status(error) in {501, 503}
    return "refused" if definite and not retried(error) else "unknown"


def retried(error: BaseException) -> bool:
    """Did the client send the request more than once?"""
    return bool(_response(error).get("ResponseMetadata", {}).get("RetryAttempts", 0))


def refusal(where: str, error: BaseException) -> LeaseholdError:
    """The error to raise after one with which nothing was written."""
    code = _code(error)
    if type(error).__name__ == "ParamValidationError":
        return InvalidRequest("boto3 does not take one of the arguments; the cause says which one, and why")
    if code == "NotImplemented" or _status(error) == 501:
        return Unsupported(f"{where} does not know conditional writes (If-Match, If-None-Match): it cannot be guarded")
    if code in MISTAKES:
        return InvalidRequest(f"{where} does not take this request: {_description(error)}")
    why = WHY.get(code)
    if why is None and _status(error) == 0:
        # Without its text: that has the URL, and with it the key, which is made of ids. This may be logged.
        return StoreUnavailable(f"{where} cannot be reached ({type(error).__name__}); the cause says more")
    return StoreUnavailable(f"{where} {why or 'answered ' + _description(error)}. Nothing was written")


def unanswered(where: str, resource: str, fence: int) -> OutcomeUnknown:
    """The write was sent, and its outcome is not known."""
    return OutcomeUnknown(
        f"{where} did not say what became of the write: it may have happened, or happen yet. Read the object to find "
        "out; what does not depend on an earlier read may simply be repeated",
        resource=resource,
        fence=fence,
    )


def _never_sent(error: BaseException) -> bool:
    """A refused connection does not count: the client may have sent the request before, and tried again."""
    return not BEFORE_SENDING.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def _status(error: BaseException) -> int:
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status if isinstance(status, int) else 0


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def _description(error: BaseException) -> str:
    return f"{_code(error)}: {_response(error).get('Error', {}).get('Message', '')}"[:200]


# ---------------------------------------------------------------- bucket


CONDITIONS = ("IfMatch", "IfNoneMatch")
# Options of put() that the reading requests need as well.
READ_OPTIONS = ("ExpectedBucketOwner", "RequestPayer", "SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5")

More = Mapping[str, Any]


class Client(Protocol):
    """What a guard uses of ``boto3.client("s3")``."""

    @property
    def meta(self) -> Any: ...
    def head_object(self, **request: Any) -> Any: ...
    def get_object(self, **request: Any) -> Any: ...
    def put_object(self, **request: Any) -> Any: ...


class NotWritten(Exception):
    """The last response says that nothing was written, or there was no response. Never leaves the guard.

    ``maybe_written``: an earlier try of the client may have written it. ``unanswered``: there was no response at all,
    and the write may still happen."""

    def __init__(self, maybe_written: bool, unanswered: bool = False) -> None:
        super().__init__(maybe_written, unanswered)
        self.maybe_written = maybe_written
        self.unanswered = unanswered


class Bucket:
    """A bucket, and the user's client to it, which is neither opened nor closed here."""

    __slots__ = ("_client", "name")

    def __init__(self, client: Client, name: object) -> None:
        self._client = _checked(client)
        if not isinstance(name, str) or not name:
            raise InvalidRequest("bucket is the name of a bucket, as text")
        self.name = str.__str__(name)

    @property
    def where(self) -> str:
        """The bucket as messages name it."""
        return f"S3 (bucket {self.name[:100]})"

    def head(self, key: str, more: More) -> ObjectState:
        """The state of an object, without its bytes."""
        return self._state(lambda: self._client.head_object(Bucket=self.name, Key=key, **_read_options(more)))

    def read(self, key: str, more: More) -> ObjectState:
        """The state of an object, with its bytes."""

        def whole() -> Any:
            response = self._client.get_object(Bucket=self.name, Key=key, **_read_options(more))
            with response["Body"] as stream:
                return {**response, "Body": stream.read()}

        return self._state(whole)

    def _state(self, request: Callable[[], Any]) -> ObjectState:
        try:
            response = request()
        except Exception as error:  # of the client, a checksum, a parser, a stream
            if is_missing(error):
                return ObjectState()
            raise refusal(self.where, error) from error
        etag, metadata = response.get("ETag"), response.get("Metadata", {})
        if not etag:
            raise StoreUnavailable(f"{self.where} gave no ETag, without which nothing can be written on a condition")
        return ObjectState(etag, parse(metadata), user_metadata(metadata), response.get("Body") or b"")

    def write(self, key: str, body: bytes, before: ObjectState, more: More) -> str:
        """Write if the object is still as it was ``before``; returns the new ETag. Raises NotWritten, or the reason why
        nothing was written."""
        condition: dict[str, str] = {"IfNoneMatch": "*"} if before.etag is None else {"IfMatch": before.etag}
        try:
            response = self._client.put_object(Bucket=self.name, Key=key, Body=body, **condition, **more)
        except Exception as error:
            failure = classify(error)
            if failure == "refused":
                raise refusal(self.where, error) from error
            unknown = failure == "unknown"
            raise NotWritten(maybe_written=unknown or retried(error), unanswered=unknown) from error
        return str(response.get("ETag") or "")

    def accepts(self, key: str, body: bytes, **condition: str) -> bool:
        """Does the bucket write under this condition?"""
        try:
            self._client.put_object(Bucket=self.name, Key=key, Body=body, **condition)
        except Exception as error:
            if classify(error) == "changed":
                return False
            raise refusal(self.where, error) from error
        return True

    def unanswered(self, attempt: Presented) -> OutcomeUnknown:
        """The error for a write whose outcome is not known."""
        return unanswered(self.where, attempt.resource, attempt.fence)


def _read_options(more: More) -> dict[str, Any]:
    return {name: more[name] for name in READ_OPTIONS if name in more}


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
