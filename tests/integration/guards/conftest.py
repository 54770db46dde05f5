"""The fixtures for guards."""

from tests.support.guards.fixtures import (
    begin,
    bucket,
    cluster,
    data,
    desk,
    guard,
    make_guard,
    old_server,
    path,
    place,
    requests,
    s3,
    s3_guard,
    s3_put_guard,
    s3_server,
    valkey_server,
)

__all__ = [
    "begin", "bucket", "cluster", "data", "desk", "guard", "make_guard", "old_server", "path", "place", "requests",
    "s3", "s3_guard", "s3_put_guard", "s3_server", "valkey_server",
]  # fmt: skip
