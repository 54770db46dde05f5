"""A look at who watches."""

from __future__ import annotations

from leasehold._core.types import Watcher
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy


def watchers(spy: Spy) -> tuple[Watcher, ...]:
    """Those whom the store would tell of a change."""
    assert isinstance(spy.inner, MemoryStore)
    state = spy.inner._states.get("job")
    return () if state is None else state.watchers
