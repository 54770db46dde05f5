"""Counters in object storage: a guard that looks, and writes on the condition that nothing has changed since."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import Any

from leasehold.guards.fence import Fenced
from leasehold.guards.s3 import FenceGuard, Found
from tests.model.stale_owner.documents import DocumentTarget
from tests.model.stale_owner.targets import nothing
from tests.support.servers.s3 import client


class S3Target(DocumentTarget):
    """An object for each resource. Midway the guard has looked, and is about to write."""

    optimistic = True

    def __init__(self, url: str, bucket: str) -> None:
        super().__init__()
        self.client = client(url)
        self.bucket = bucket
        self.guard = FenceGuard(self.client, bucket)
        self.found: dict[str, Found | None] = {}
        self.midway: Callable[[], None] = nothing
        self.client.meta.events.register("before-parameter-build.s3.PutObject", self._putting)

    def _putting(self, params: dict[str, Any], **_: object) -> None:
        if not params["Key"].startswith(self.guard.prefix):  # where the guard has its own
            self.midway()

    def load(self, lease: Fenced) -> str:
        """Read; who is refused here has found nothing, and would overwrite whatever is there."""
        self.found.pop(lease.resource, None)
        found = self.found[lease.resource] = self.guard.get(lease.resource, lease)
        return found.body.decode() if found else ""

    def store(self, lease: Fenced, text: str, midway: Callable[[], None]) -> None:
        """Write after what was read."""
        after: Found | EllipsisType | None = self.found.get(lease.resource, ...)
        self.midway = midway
        try:
            self.found[lease.resource] = self.guard.put(lease.resource, text, lease, after=after)
        finally:
            self.midway = nothing

    def document(self, resource: str) -> str:
        """The object."""
        try:
            body: bytes = self.client.get_object(Bucket=self.bucket, Key=resource)["Body"].read()
        except self.client.exceptions.NoSuchKey:
            return ""
        return body.decode()

    def close(self) -> None:
        """Leave."""
        self.client.close()
