"""How many examples a random test takes: all of them in `make test`, a fifth in `make quick`."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # of a test that does not say how many; hypothesis' own default
QUICK = USUAL // 5


def examples(usual: int) -> int:
    """So many, where a test that says nothing takes a hundred; fewer where that one takes fewer."""
    profile = settings.default
    assert profile is not None
    return max(1, usual * profile.max_examples // USUAL)
