"""Servers that tests of promises need beside those of every test."""

from tests.support.guards.s3_fixtures import bucket, s3, s3_guard, s3_server

__all__ = ["bucket", "s3", "s3_guard", "s3_server"]
