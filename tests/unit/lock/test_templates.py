"""What is the same in all claims of a lock is kept: found again by the next lock like it, and by no other."""

from __future__ import annotations

import pytest

from leasehold import Leasehold
from leasehold.primitives import base_lock
from leasehold.primitives.base_lock import BaseLock


def test_locks_that_are_alike_share_it(hold: Leasehold) -> None:
    """Made anew with the same words, over the same connection."""

    def template(lock: BaseLock, address: str = "@me", wait: float | None = None) -> object:
        return lock._template(wait, address)

    first = template(hold.lock("job", 1, ttl=20))
    assert template(hold.lock("job", 1, ttl=20)) is first
    others = [
        template(hold.lock("job", 2, ttl=20)),
        template(hold.lock("job", 1, ttl=21)),
        template(hold.lock("job", 1, ttl=20), "@another"),
        template(hold.lock("job", 1, ttl=20), wait=0),
        template(hold.rwlock("job", 1).read(ttl=20)),
        template(hold.semaphore("job", 1, ttl=20, limit=2)),
        template(hold.semaphore("job", 1, ttl=20, limit=3)),
        template(hold.semaphore("job", 1, ttl=20, limit=3, permits=2)),
    ]
    assert len({id(one) for one in [first, *others]}) == len(others) + 1


def test_they_do_not_grow_without_end(hold: Leasehold, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many locks a program uses."""
    monkeypatch.setattr(base_lock, "_templates", {})
    for number in range(base_lock.MOST_TEMPLATES * 2):
        hold.lock("job", number)._template(None, "@me")
    assert 0 < len(base_lock._templates) <= base_lock.MOST_TEMPLATES
