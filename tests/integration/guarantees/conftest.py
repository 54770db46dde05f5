"""The tests of a store that ``connect`` does not open yet wait for it: they are collected when it is in the list."""

from leasehold._core.guarantee_table import STORES
from leasehold._core.schemes import OPENED
from tests.support.guards.s3_fixtures import bucket, s3, s3_guard, s3_server

__all__ = ["bucket", "s3", "s3_guard", "s3_server"]

collect_ignore = [f"test_{store}.py" for store in STORES if store not in OPENED]
