"""The values of ``durability=``."""

from __future__ import annotations

import pytest

from leasehold._core.durability import Copies, checked_durability, copies
from leasehold.errors import InvalidRequest
from tests.support.tables import each


def test_what_it_may_be() -> None:
    """Nothing, a number of replicas, or the disk."""
    assert checked_durability(None) == ""
    assert copies(checked_durability("replicas:1")) == Copies(replicas=1)
    assert copies(checked_durability("replicas:100")) == Copies(replicas=100)
    assert copies(checked_durability("fsync")) == Copies(fsync=True)


@each(
    "wrong",
    ["", "replicas", "replicas:", "replicas:0", "replicas:01", "replicas:101", "replicas:1000", "replicas:-1",
     "replicas: 1", "replicas:²", "1", 1, True, "FSYNC", "fsync ", b"fsync", ["fsync"]],
)  # fmt: skip
def test_what_it_may_not_be(wrong: object) -> None:
    """The error says what to write."""
    with pytest.raises(InvalidRequest, match=r'"replicas:N".*"fsync"'):
        checked_durability(wrong)
