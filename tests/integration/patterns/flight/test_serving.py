"""What a caller gets: a fresh value, a stale one, an error, or a rebuild of its own; the same on every store."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from leasehold import InvalidRequest
from leasehold.patterns import RemoteError, ResultNotKept
from leasehold.patterns.results import MemoryResultStore
from tests.support.patterns.flight.sides import Counted, Side

HASTY = 0.001  # seconds: whoever finds a value older than that old need not wait for it to age


def test_a_fresh_value_is_not_rebuilt(side: Side, counted: Counted) -> None:
    """One rebuild for each name, and everybody on the store gets its value."""
    page = side.flown(counted.function())
    there = side.flown(counted.function(), hold=side.other())
    assert [page("a"), page("a"), there("a"), there("b"), page("b")] == [1, 1, 1, 2, 2]


def test_an_old_value_is_rebuilt(side: Side, counted: Counted) -> None:
    """Past fresh, and without stale, the caller waits for a new one."""
    page, hasty = side.flown(counted.function()), side.flown(counted.function(), fresh=HASTY)
    assert page("a") == 1
    side.advance(0.01)
    assert [hasty("a"), page.forget("a"), page("a")] == [2, None, 3]


def test_the_times_of_a_value(memory: Side, counted: Counted) -> None:
    """Fresh for fresh, then served for stale more, and then gone."""
    page = memory.flown(counted.function(), fresh="1m", stale="10m")
    assert page("a") == 1
    memory.advance(59.9)
    assert page("a") == 1 and counted.calls == 1
    memory.advance(600)
    assert page("a") == 1
    memory.settle(lambda: counted.calls == 2, "one rebuilds")
    memory.settle(lambda: page("a") == 2, "and that is served")
    memory.advance(660)
    assert page("a") == 3


def test_the_times_of_an_error(memory: Side, counted: Counted) -> None:
    """Served for errors, in place of a rebuild, and not a moment longer."""
    counted.error = KeyError("no such page")
    page = memory.flown(counted.function(), errors="10s")
    with pytest.raises(KeyError):
        page("a")
    memory.advance(9.9)
    with pytest.raises(RemoteError):
        page("a")
    memory.advance(0.2)
    with pytest.raises(KeyError):
        page("a")
    assert counted.calls == 2


def test_errors_do_not_prolong_a_value(memory: Side, counted: Counted) -> None:
    """A value that stands beside an error goes when its own time is over."""
    page = memory.flown(counted.function(), fresh="1m", stale="1m", errors="1h")
    assert page("a") == 1
    memory.advance(61)
    counted.error = ValueError("down")
    assert page("a") == 1
    memory.settle(lambda: "down" in text_at(memory, "page:a"), "the rebuild fails, and says so")
    memory.advance(58)
    assert page("a") == 1
    memory.advance(2)
    with pytest.raises(RemoteError, match="down"):
        page("a")
    assert counted.calls == 2


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, "ünï\0", {"a": [1.5, None]}], ids=repr)
def test_every_value_counts(memory: Side, counted: Counted, value: object) -> None:
    """None and other falsy ones are values, and are cached."""
    counted.gives = lambda: value
    page = memory.flown(counted.function())
    assert [page("a"), page("a")] == [value, value]
    assert counted.calls == 1


def test_stale_is_served_while_one_rebuilds(side: Side, counted: Counted) -> None:
    """Past fresh and within stale nobody waits: the old value comes at once, and a new one soon."""
    page, hasty = side.flown(counted.function()), side.flown(counted.function(), fresh=HASTY, stale=60)
    assert page("a") == 1
    side.advance(0.01)
    assert hasty("a") == 1
    side.settle(lambda: page("a") == 2, "it is rebuilt in the background")


def test_an_error_is_raised_and_not_kept(side: Side, counted: Counted) -> None:
    """At home it is the error itself; the next caller tries again."""
    counted.error = KeyError("no such page")
    page = side.flown(counted.function())
    with pytest.raises(KeyError, match="no such page"):
        page("a")
    counted.error = None
    assert page("a") == 2


def test_errors_are_kept_for_a_while(side: Side, counted: Counted) -> None:
    """With errors= it is served in place of a rebuild, as what can be told of it."""
    counted.error = KeyError("no such page")
    page = side.flown(counted.function(), errors=60)
    with pytest.raises(KeyError):
        page("a")
    there = side.flown(counted.function(), errors=60, hold=side.other())
    with pytest.raises(RemoteError, match="no such page") as caught:
        there("a")
    assert caught.value.kind == "builtins.KeyError"
    assert caught.value.was(LookupError) and not caught.value.was(ValueError)
    assert counted.calls == 1
    counted.error = None
    assert side.flown(counted.function())("a") == 2  # who asks without errors= tries again


def test_an_error_leaves_a_stale_value(side: Side, counted: Counted) -> None:
    """While a value may be served, an error does not take its place, and nobody tries again before its time."""
    page = side.flown(counted.function())
    hasty = side.flown(counted.function(), fresh=HASTY, stale=60, errors=60)
    assert page("a") == 1
    counted.error = ValueError("down")
    side.advance(0.01)
    assert hasty("a") == 1
    side.settle(lambda: "down" in text_at(side, "page:a"), "the rebuild fails, and says so")
    assert [hasty("a"), hasty("a"), page("a")] == [1, 1, 1]
    assert counted.calls == 2
    with pytest.raises(RemoteError, match="down"):
        side.flown(counted.function(), fresh=HASTY, errors=60)("a")  # who takes nothing stale


def test_forget(side: Side, counted: Counted) -> None:
    """What was cached is gone for everybody."""
    page, there = side.flown(counted.function()), side.flown(counted.function(), hold=side.other())
    assert page("a") == 1
    there.forget("a")
    assert [page("a"), there("a")] == [2, 2]
    page.forget(key="nothing is there")


def test_refresh(side: Side, counted: Counted) -> None:
    """It is rebuilt now, fresh or not; an error is the caller's, and the value stays."""
    page = side.flown(counted.function())
    assert [page("a"), page.refresh("a"), page("a")] == [1, 2, 2]
    counted.error = ValueError("down")
    with pytest.raises(ValueError, match="down"):
        page.refresh("a")
    assert page("a") == 2


def test_what_cannot_be_serialized(side: Side, counted: Counted) -> None:
    """Who made it gets it, others are told its type for as long as it would be fresh, and the lease is given back."""
    counted.gives = object
    page, other = side.flown(counted.function(), wait=0), side.flown(counted.function(), hold=side.other(), wait=0)
    assert type(page("a")) is object
    assert '"value"' not in text_at(side, "page:a")
    for ask in (page, other):
        with pytest.raises(ResultNotKept, match=r"page was rebuilt, and its value of type object could not be kept"):
            ask("a")
    assert counted.calls == 1
    counted.gives = lambda: "text"
    assert [page.refresh("a"), other("a")] == ["text", "text"]


def test_everybody_gets_the_same(side: Side, counted: Counted) -> None:
    """Who rebuilds gets the value as all others do: written and read again."""
    counted.gives = lambda: (1, {2: "two"})
    plain, text = side.flown(counted.function()), side.flown(counted.function(), "text", "{key}", serializer=json)
    assert [plain("a"), plain("a")] == [(1, {2: "two"})] * 2
    assert [text("a"), text("a")] == [[1, {"2": "two"}]] * 2


def test_pickle_keeps_types(side: Side, counted: Counted) -> None:
    """Another serializer takes what json cannot; its bytes are kept."""
    counted.gives = lambda: (1, {2: b"two"})
    page = side.flown(counted.function(), serializer=pickle)
    assert [page("a"), page("a")] == [(1, {2: b"two"})] * 2


def test_values_are_ones_own(memory: Side, counted: Counted) -> None:
    """Who changes what it was given changes nobody else's."""
    counted.gives = list
    page = memory.flown(counted.function())
    page("a").append("mine")
    page("a").append("mine")
    assert page("a") == []


def test_what_another_version_wrote_is_made_anew(side: Side, counted: Counted) -> None:
    """A value that cannot be read is as good as none."""
    old = side.flown(counted.function(), serializer=pickle)
    new = side.flown(counted.function())
    assert [old("a"), new("a"), new("a"), old("a")] == [1, 2, 2, 3]


def test_an_error_beside_what_cannot_be_read(side: Side, counted: Counted) -> None:
    """A value of another version is no value for us: the error that came in its place is served for a while."""
    side.flown(counted.function(), serializer=pickle, stale=60)("a")
    counted.error = ValueError("no")
    page = side.flown(counted.function(), errors=60)
    with pytest.raises(ValueError, match="no"):
        page("a")
    with pytest.raises(RemoteError):
        page("a")
    assert counted.calls == 2
    assert side.flown(counted.function(), serializer=pickle, stale=60)("a") == 1  # who can read it still has it


def test_a_name_that_another_pattern_uses(memory: Side, counted: Counted) -> None:
    """It is refused, and what is there stays."""
    results = memory.hold._results
    page = memory.flown(counted.function())
    with memory_lease(memory) as lease:
        results.write(lease, '{"leasehold":"once/1"}', 60)
    for call in (page, page.refresh, page.forget):
        with pytest.raises(InvalidRequest, match="name is used twice: once/1 has written there"):
            call("a")
    assert results.read("page:a").text == '{"leasehold":"once/1"}'
    assert counted.calls == 0


def test_the_call_form(side: Side, counted: Counted) -> None:
    """A function is called without being decorated: the ids say what it is for."""
    flight = side.hold.single_flight("page", 7)
    function = side.fit(counted.function())
    assert [side.run(flight.call(function, "a")), side.run(flight.call(function, key="a"))] == [1, 1]
    assert side.run(flight.refresh(function, "a")) == 2
    side.run(flight.forget())
    assert side.run(side.hold.single_flight("page", 7).call(function, "a")) == 3


def test_a_result_store_of_ones_own(side: Side, counted: Counted) -> None:
    """What is cached may stand elsewhere than the leases."""
    results = MemoryResultStore()
    page = side.flown(counted.function(), cache=results)
    assert [page("a"), page("a")] == [1, 1]
    entry = results.read("page:a")
    assert entry is not None and json.loads(entry.text) == {"leasehold": "flight/1", "value": {"json": 1}}


def test_the_function_gets_its_lease(memory: Side) -> None:
    """lease_as names the parameter, and callers do not see it."""

    def page(key: str, *, lease: Any) -> Any:
        return [key, lease.resource, lease.state]

    flown = memory.flown(page, lease_as="lease")
    assert flown("a") == ["a", "page:a", "held"]
    assert flown.refresh("a") == ["a", "page:a", "held"]


def test_methods(memory: Side) -> None:
    """A method is decorated as any function; forget takes its self, too."""
    made: list[str] = []

    class Site:
        name = "nl"

        @memory.hold.single_flight("page", "{self.name}", "{key}")  # type: ignore[untyped-decorator] # of either flavour
        @memory.fit
        def page(self, key: str) -> str:
            made.append(key)
            return self.name + key

    site = Site()
    assert [memory.run(site.page("a")), memory.run(site.page("a"))] == ["nla", "nla"]
    memory.run(Site.page.forget(site, "a"))
    assert memory.run(site.page("a")) == "nla" and made == ["a", "a"]


def memory_lease(side: Side) -> Any:
    """Of the name that page("a") has."""
    lease = side.run(side.hold.lock("page", "a").acquire())
    return Given(side, lease)


class Given:
    """A lease of either flavour, given back at the end."""

    def __init__(self, side: Side, lease: Any) -> None:
        self._side, self._lease = side, lease

    def __enter__(self) -> Any:
        return self._lease

    def __exit__(self, *error: object) -> None:
        self._side.run(self._lease.release())


def text_at(side: Side, resource: str) -> str:
    """What stands on the results."""
    found = side.run(side.hold._results.read(resource))
    return "" if found is None else str(found.text)
