"""A store that cannot be reached: StoreUnavailable, or the function all the same with on_down="call"."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from leasehold import InvalidRequest, Leasehold, StoreUnavailable
from leasehold.guards.fence import Fenced
from leasehold.patterns.results import Entry, MemoryResultStore
from leasehold.testing import outage
from tests.support.patterns.flight.sides import Counted, Side


class Away(MemoryResultStore):
    """A result store that cannot be reached, for some calls."""

    def __init__(self, *calls: str) -> None:
        super().__init__()
        self.calls = calls

    def read(self, resource: str) -> Entry | None:
        """Or not."""
        self._fail("read")
        return super().read(resource)

    def open(self, lease: Fenced) -> Entry | None:
        """Or not."""
        self._fail("open")
        return super().open(lease)

    def write(self, lease: Fenced, text: str | None, keep: Any) -> None:
        """Or not."""
        self._fail("write")
        super().write(lease, text, keep)

    def _fail(self, call: str) -> None:
        if call in self.calls:
            raise StoreUnavailable("the test cut the wire")


@pytest.mark.parametrize("call", ["read", "open"])
def test_nothing_is_called_by_default(memory: Side, counted: Counted, call: str) -> None:
    """Before the function is called, a result store that is away is an error."""
    page = memory.flown(counted.function(), cache=Away(call))
    with pytest.raises(StoreUnavailable, match="cut the wire"):
        page("a")
    assert counted.calls == 0


@pytest.mark.parametrize("call", ["read", "open"])
def test_called_all_the_same(memory: Side, counted: Counted, call: str) -> None:
    """With on_down="call" the function is called once by each caller, and nothing is cached."""
    page = memory.flown(counted.function(), cache=Away(call), on_down="call")
    assert [page("a"), page("a")] == [1, 2]
    counted.gives = lambda: OrderedDict(a=1)
    assert type(page("a")) is dict  # as it would come from the cache
    counted.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        page("a")


def test_leases_are_away(memory: Side, counted: Counted) -> None:
    """The same when it is the store of the leases that cannot be reached."""
    strict, page = memory.flown(counted.function()), memory.flown(counted.function(), on_down="call")
    with outage(memory.hold):
        with pytest.raises(StoreUnavailable):
            strict("a")
        assert page("a") == 1
    assert strict("a") == 2


def test_a_value_that_cannot_be_kept(memory: Side, counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    """Once it is made it is the caller's; that it was not cached is told."""
    page = memory.flown(counted.function(), cache=Away("write"))
    assert [page("a"), page("a")] == [1, 2]
    assert "could not keep the outcome" in caplog.text


def test_an_error_that_cannot_be_kept(memory: Side, counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    """It is the function's error that its caller gets."""
    counted.error = KeyError("mine")
    page = memory.flown(counted.function(), cache=Away("write"))
    with pytest.raises(KeyError, match="mine"):
        page("a")
    assert "could not keep the outcome" in caplog.text


def test_closed(hold: Leasehold, counted: Counted) -> None:
    """A closed coordinator calls nobody, also with on_down="call"; and serves nothing."""
    page = hold.single_flight("page", "{key}", on_down="call")(counted.function())
    assert page("a") == 1
    hold.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        page("a")
    with pytest.raises(StoreUnavailable, match="closed"):
        page.forget("a")
    assert counted.calls == 1


@pytest.mark.parametrize("call", ["read", "open"])
def test_asking_for_oneself_while_it_is_away(memory: Side, call: str) -> None:
    """Also then whoever asks for the value that it is to make is refused, and does not wait for itself."""
    flown: Any = memory.hold.single_flight("page", "{key}", cache=Away(call), on_down="call", wait=5)

    async def awaited(key: str) -> Any:
        return await page(key)

    def plain(key: str) -> Any:
        return page(key)

    page: Any = flown(awaited if memory.asynchronous else plain)
    with pytest.raises(InvalidRequest, match="would wait for itself"):
        memory.run(page("a"))
