"""Errors of etcd as errors of ours: what was certainly not done, and what nobody knows."""

from __future__ import annotations

import json

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.etcd import failures
from leasehold.stores.etcd.http import Reply
from tests.support.tables import each

SERVER = "etcd at host:2379"


def reply(code: int, message: str) -> Reply:
    """As the gateway reports an error."""
    return Reply(500, json.dumps({"error": message, "message": message, "code": code}).encode())


@each(
    "code, message, definite, elsewhere",
    [
        (3, "etcdserver: too many operations in txn request", True, False),
        (3, "etcdserver: duplicate key given in txn request", True, False),
        (3, "etcdserver: user name is empty", True, False),
        (5, "etcdserver: requested lease not found", True, False),
        (7, "etcdserver: permission denied", True, False),
        (8, "etcdserver: mvcc: database space exceeded", False, False),
        (8, "etcdserver: too many requests", True, True),
        (8, "grpc: received message larger than max", False, True),
        (9, "etcdserver: lease already exists", True, False),
        (11, "etcdserver: mvcc: required revision has been compacted", True, False),
        (14, "etcdserver: request timed out", False, True),
        (14, "etcdserver: request timed out, possibly due to previous leader failure", False, True),
        (14, "etcdserver: no leader", False, True),
        (14, "etcdserver: leader changed", False, True),
        (14, "etcdserver: server stopped", False, True),
        (16, "etcdserver: invalid auth token", True, False),
        (2, "raft proposal dropped", False, True),
        (4, "context deadline exceeded", False, True),
    ],
)
def test_what_an_error_says(code: int, message: str, definite: bool, elsewhere: bool) -> None:
    """Whether nothing was done, and whether another member may do it. A change is repeated only if both are true."""
    error = failures.refusal(reply(code, message))
    assert (error.code, error.definite, error.elsewhere) == (code, definite, elsewhere)


@each(
    "message, advice",
    [
        ("etcdserver: mvcc: database space exceeded", "compact and defragment it, then `etcdctl alarm disarm`"),
        ("etcdserver: permission denied", "grant its role readwrite on the prefix"),
        ("etcdserver: user name is empty", "write etcd://user:password@host"),
        ("etcdserver: too many requests", "try again later"),
        ("etcdserver: something new", "reports an error (code 3): etcdserver: something new"),
    ],
)
def test_errors_say_what_to_do(message: str, advice: str) -> None:
    """In one sentence, which names the server."""
    error = failures.refusal(reply(3, message))
    for ours, kind in ((failures.refused, StoreUnavailable), (failures.undecided, OutcomeUnknown)):
        found = ours(SERVER, error)
        assert type(found) is kind and str(found).startswith(SERVER) and advice in str(found)


@each(
    "status, body, definite, text",
    [
        (404, b"404 page not found\n", True, "has no JSON gateway there"),
        (400, b"Client sent an HTTP request to an HTTPS server.\n", True, "requires TLS"),
        (502, b"<html>Bad Gateway</html>", False, "HTTP status 502"),
        (500, b"[]", False, "HTTP status 500"),
        (500, b'{"error": "x", "code": null}', False, "HTTP status 500"),
    ],
)
def test_errors_that_are_not_of_etcd(status: int, body: bytes, definite: bool, text: str) -> None:
    """Something stands between us and etcd: only what its own listener says is certain."""
    error = failures.refusal(Reply(status, body))
    assert error.definite is definite
    assert text in str(failures.undecided(SERVER, error))
