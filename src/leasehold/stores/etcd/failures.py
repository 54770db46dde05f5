"""Errors of etcd and of the network, as errors of ours.

A request that was not sent, or that etcd refused before it was decided, has changed nothing. After a lost connection, a
timeout or a change of the leader nobody knows. Neither does anybody after "database space exceeded": etcd carries out
the transaction that exceeds its quota, and says so in the same words as when it refuses the next one.
"""

from __future__ import annotations

import json

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd.http import Reply

# Codes of gRPC.
INVALID, NOT_FOUND, FORBIDDEN, EXHAUSTED, PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED = 3, 5, 7, 8, 9, 11, 12
UNAVAILABLE, UNAUTHENTICATED = 14, 16
UNKNOWN = 2
REFUSALS = (INVALID, NOT_FOUND, FORBIDDEN, PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED)
NO_SPACE = "etcdserver: mvcc: database space exceeded"
TOO_MANY = "etcdserver: too many requests"
BAD_TOKENS = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")
NO_AUTH = "etcdserver: authentication is not enabled"

# What the message of etcd means for the operator.
TEXTS = {
    NO_SPACE: "has no space left in its database: compact and defragment it, then `etcdctl alarm disarm`",
    TOO_MANY: "has too many requests to do: try again later",
    "etcdserver: permission denied": "does not allow this user what a lease needs: grant its role readwrite on the "
    "prefix",
    "etcdserver: user name is empty": "requires a user: write etcd://user:password@host",
    "etcdserver: authentication failed, invalid user ID or password": "does not accept this user and password",
    "etcdserver: request is too large": "refuses a request of this size (--max-request-bytes)",
    "etcdserver: too many operations in txn request": "refuses so many operations in one transaction (--max-txn-ops)",
    "etcdserver: no leader": "has no leader: too few of its members are up and connected",
    "etcdserver: leader changed": "has just changed its leader",
}
NO_GATEWAY = "has no JSON gateway there: start it without --enable-grpc-gateway=false, and name the port for clients"
NO_TLS = "requires TLS: write etcds://"


class Refused(Exception):
    """etcd answered with an error. ``definite``: nothing was done."""

    def __init__(self, code: int, message: str, definite: bool) -> None:
        super().__init__(message)
        self.code = code
        self.definite = definite

    @property
    def bad_token(self) -> bool:
        """Is it worth logging in again?"""
        return str(self) in BAD_TOKENS

    @property
    def elsewhere(self) -> bool:
        """Is it worth trying another member?"""
        return self.code not in REFUSALS and str(self) != NO_SPACE


def refusal(reply: Reply) -> Refused:
    """What a reply says whose status is not 200."""
    try:
        error = json.loads(reply.body)
        message, code = str(error["error"]), int(error.get("code", UNKNOWN))
    except (ValueError, KeyError, TypeError, AttributeError):  # it is no JSON: no gateway has seen the request
        if b"HTTPS" in reply.body:
            return Refused(UNIMPLEMENTED, NO_TLS, definite=True)
        if reply.status == 404:
            return Refused(UNIMPLEMENTED, NO_GATEWAY, definite=True)
        text = " ".join(reply.body.decode("utf-8", "replace").split())
        return Refused(UNKNOWN, f"HTTP status {reply.status} {text[:100]}".strip(), definite=False)
    return Refused(code, message, code in REFUSALS or message == TOO_MANY)


def refused(server: str, error: Refused) -> StoreUnavailable:
    """Nothing was done."""
    return StoreUnavailable(_sentence(server, error))


def undecided(server: str, error: Refused) -> OutcomeUnknown:
    """It may have been done, or may be yet."""
    return OutcomeUnknown(_sentence(server, error))


def _sentence(server: str, error: Refused) -> str:
    message = str(error)
    if message in (NO_GATEWAY, NO_TLS):
        return f"{server} {message}"
    text = TEXTS.get(message)
    if text is None:
        return f"{server} reports an error (code {error.code}): {message[:200]}"
    return f"{server} {text} ({message})"


def unanswered(server: str, error: BaseException) -> OutcomeUnknown:
    """It was sent, and may or may not have been done."""
    return OutcomeUnknown(f"{server} did not answer: {error}")


def unreachable(server: str, error: BaseException) -> StoreUnavailable:
    """Nothing was done."""
    return StoreUnavailable(f"{server} cannot be reached: {error}")
