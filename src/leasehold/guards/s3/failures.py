"""What S3 and the network answer when they do not answer, in words and as one of our errors."""

from __future__ import annotations

from typing import Any, Literal

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported

# race: the condition did not hold. no: nothing was written. unknown: it may have been, or may still be.
Verdict = Literal["race", "no", "unknown"]

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
    """There is no such object. A HEAD has no body, and can say no more than 404."""
    return _status(error) == 404 and _code(error) in {"404", "NoSuchKey", "NotFound"}


def verdict(error: BaseException) -> Verdict:
    """What became of a put on a condition that ended with this error."""
    if _status(error) in {409, 412} or is_missing(error):
        return "race"
    if _never_sent(error):
        return "no"
    # Of a client that tries again only the last answer is seen: a no then says nothing about the tries before it.
    definite = 300 <= _status(error) < 500 or _status(error) in {501, 503}
    return "no" if definite and not retried(error) else "unknown"


def retried(error: BaseException) -> bool:
    """Did the client send it more than once?"""
    return bool(_response(error).get("ResponseMetadata", {}).get("RetryAttempts", 0))


def refusal(where: str, error: BaseException) -> LeaseholdError:
    """An error after which nothing was written, as one of ours."""
    code = _code(error)
    if type(error).__name__ == "ParamValidationError":
        return InvalidRequest("boto3 does not take one of the arguments; the cause says which one, and why")
    if code == "NotImplemented" or _status(error) == 501:
        return Unsupported(f"{where} does not know conditional writes (If-Match, If-None-Match): it cannot be guarded")
    if code in MISTAKES:
        return InvalidRequest(f"{where} does not take this request: {_said(error)}")
    why = WHY.get(code)
    if why is None and _status(error) == 0:
        # Not its text: that holds the URL, and with it the key, which is made of ids. This may end up in a log.
        return StoreUnavailable(f"{where} cannot be reached ({type(error).__name__}); the cause says more")
    return StoreUnavailable(f"{where} {why or 'answered ' + _said(error)}. Nothing was written")


def unanswered(where: str, resource: str, fence: int) -> OutcomeUnknown:
    """It was sent, and nobody knows what became of it."""
    return OutcomeUnknown(
        f"{where} did not say what became of the write: it may have happened, or happen yet. Read the object to find "
        "out; what does not depend on an earlier read may simply be repeated",
        resource=resource,
        fence=fence,
    )


def _never_sent(error: BaseException) -> bool:
    """Not a refused connection: the client may have sent it before, in vain, and tried again."""
    return not BEFORE_SENDING.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _response(error: BaseException) -> dict[str, Any]:
    found = getattr(error, "response", None)
    return found if isinstance(found, dict) else {}


def _status(error: BaseException) -> int:
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status if isinstance(status, int) else 0


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def _said(error: BaseException) -> str:
    return f"{_code(error)}: {_response(error).get('Error', {}).get('Message', '')}"[:200]
