"""What a request is told that cannot be served: ``application/problem+json``, as the guards say it.

type                                         status
urn:leasehold:idempotency-key-missing        400      this needs an Idempotency-Key, and the request brought none
urn:leasehold:idempotency-key-malformed      400      a header that is no key
urn:leasehold:caller-unknown                 400      there is a key, and nobody can say whose it is
urn:leasehold:idempotency-key-in-use         409      the same request is being served right now
urn:leasehold:response-not-kept              410      it was served, and its response was too large to keep
urn:leasehold:body-too-large                 413      more than is read for a fingerprint
urn:leasehold:idempotency-key-reused         422      the same key came with another request before
urn:leasehold:keys-unavailable               503      nobody could say whether it was served before
urn:leasehold:interrupted                    503      the service lost its lease while it served this request
"""

from __future__ import annotations

from leasehold.guards.http.problems import BAD_REQUEST, CONFLICT, NOTHING_DONE, RETRY_AFTER, UNABLE, Problem

HEADER = "Idempotency-Key"
GONE, TOO_LARGE, UNPROCESSABLE = 410, 413, 422
AGAIN = f"Repeat the request with the same {HEADER}"


def headers(problem: Problem) -> list[tuple[str, str]]:
    """In flight is a matter of time, too."""
    more = [("Retry-After", str(RETRY_AFTER))] if problem.status == CONFLICT else []
    return [*problem.headers, *more]


MISSING = Problem(
    "idempotency-key-missing",
    BAD_REQUEST,
    f"{HEADER} is missing",
    f"This request needs an {HEADER}. {NOTHING_DONE} Send one that is new for each thing you want done, such as a "
    "random UUID, and the same one when you repeat the request.",
)
MALFORMED = Problem(
    "idempotency-key-malformed",
    BAD_REQUEST,
    f"{HEADER} cannot be understood",
    f"{NOTHING_DONE} Send {HEADER} once, with 1 to 255 visible ASCII characters, with or without double quotes "
    "around them.",
)
NOBODY = Problem(
    "caller-unknown",
    BAD_REQUEST,
    "It is not known who asks",
    f"This request brought an {HEADER} and nothing that says whose it is. {NOTHING_DONE} Repeat it with the "
    "credentials that the service asks for.",
)
IN_USE = Problem(
    "idempotency-key-in-use",
    CONFLICT,
    "The same request is being served",
    f"A request with this {HEADER} has not ended yet. {AGAIN} later, and you get its response.",
)
NOT_KEPT = Problem(
    "response-not-kept",
    GONE,
    "The response was not kept",
    "This request was served before, and is not served again. Its response was too large to keep: look up what it did.",
)
LARGE = Problem(
    "body-too-large",
    TOO_LARGE,
    "The body is too large",
    f"A request with an {HEADER} is read as a whole before it is served, and this one is too large for that. "
    f"{NOTHING_DONE}",
)
REUSED = Problem(
    "idempotency-key-reused",
    UNPROCESSABLE,
    f"{HEADER} was used for another request",
    f"This {HEADER} came with another method, path, query or body before. {NOTHING_DONE} Use a new key for a new "
    "request, and repeat an old one as it was.",
)
UNAVAILABLE = Problem(
    "keys-unavailable",
    UNABLE,
    "The service cannot look up its keys",
    f"The service cannot say whether this request was served before. {NOTHING_DONE} {AGAIN}.",
)
INTERRUPTED = Problem(
    "interrupted",
    UNABLE,
    "The request was interrupted",
    f"The service lost its hold on this key while it served the request, which may have been done, or be done by "
    f"another server now. {AGAIN}, and you get the response that counts.",
)
