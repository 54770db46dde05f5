"""The contract of a result store: one suite of cases for every result store, including your own.

    import pytest
    from leasehold.testing.results import CASES

    @pytest.mark.parametrize("case", CASES)
    def test_my_result_store_keeps_the_contract(case):
        CASES[case](MyResultStore())

Each case gets an empty result store. One whose calls are awaited needs a wrapper that awaits them.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

from leasehold.coordinator import connect
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.fence import accept
from leasehold.observe.events import Event, FencedOff
from leasehold.patterns.results.result_store import LONGEST_TEXT, Entry
from leasehold.stores.memory import MemoryStore
from leasehold.testing.guards import A, B, race, raises

__all__ = ["CASES", "Presenter"]

Case = Callable[[Any], None]
CASES: dict[str, Case] = {}
"""Every case under its name: a function that takes a result store, and raises AssertionError or an error of the
result store's."""

NAME = "acme/page:42"
SHORT = 0.05  # seconds
PATIENCE = 30.0  # seconds until an entry must have ended


class Presenter(NamedTuple):
    """The part of a lease that a result store needs: ``Presenter("page:42", 7)`` takes the place of one."""

    resource: str
    fence: int
    owner: str = A


def case(function: Case) -> Case:
    """Register a case of the contract under its name."""
    CASES[function.__name__] = function
    return function


def text(results: Any, name: str = NAME) -> str | None:
    """The text of the entry."""
    found: Entry | None = results.read(name)
    return None if found is None else found.text


def ended(results: Any, name: str = NAME) -> None:
    """Wait until the entry has ended."""
    until = time.monotonic() + PATIENCE
    while results.read(name) is not None:
        assert time.monotonic() < until, "the entry does not end"
        time.sleep(SHORT / 5)


# ---------------------------------------------------------------- what is kept


@case
def a_new_result_store_is_empty(results: Any) -> None:
    """There is nothing to read; ``open`` presents the fence all the same."""
    assert results.read(NAME) is None
    assert results.open(Presenter(NAME, 10)) is None
    assert results.read(NAME) is None
    raises(StaleOwner, results.open, Presenter(NAME, 9))


@case
def what_is_written_is_read(results: Any) -> None:
    """By ``read`` and by its holder's ``open``: the text, the fence of its writer, its age and the time left."""
    assert results.write(Presenter(NAME, 10), "first", "1m") is None
    for found in (results.read(NAME), results.open(Presenter(NAME, 10))):
        assert isinstance(found, Entry) and (found.text, found.fence) == ("first", 10)
        assert 0 <= found.age < PATIENCE and 60 - PATIENCE < found.left <= 60


@case
def time_goes_by(results: Any) -> None:
    """An entry grows older and has less time left; both together are as long as it is kept."""
    results.write(Presenter(NAME, 10), "text", timedelta(minutes=1))
    first = results.read(NAME)
    time.sleep(SHORT)
    later = results.read(NAME)
    assert later.age > first.age and later.left < first.left
    assert math.isclose(later.age + later.left, 60, abs_tol=0.01)


@case
def what_is_written_again_begins_anew(results: Any) -> None:
    """The text, its age and its end are those of the last write, even if it keeps the entry for less time."""
    results.write(Presenter(NAME, 10), "long", "1d")
    results.write(Presenter(NAME, 10), "short", "1m")
    found = results.read(NAME)
    assert found.text == "short" and found.left <= 60
    results.write(Presenter(NAME, 10), "long", "1d")
    assert results.read(NAME).left > 60


@case
def an_entry_ends(results: Any) -> None:
    """After ``keep`` there is no entry, and the next holder may write."""
    results.write(Presenter(NAME, 10), "brief", SHORT)
    ended(results)
    assert results.open(Presenter(NAME, 11)) is None
    results.write(Presenter(NAME, 11), "next", 60)
    assert text(results) == "next"


@case
def the_shortest_and_the_longest_keep(results: Any) -> None:
    """A tenth of a millisecond is rounded up, and ten years fit."""
    results.write(Presenter(NAME, 10), "x", 0.0001)
    ended(results)
    results.write(Presenter(NAME, 10), "x", "3650d")
    assert 3649 < results.read(NAME).left / 86400 <= 3650


@case
def none_removes_the_entry(results: Any) -> None:
    """``None`` removes the entry, if there is one; the fence is remembered."""
    for fence in (10, 11):
        results.write(Presenter(NAME, fence), None, 60)
        assert results.read(NAME) is None and results.open(Presenter(NAME, fence)) is None
        results.write(Presenter(NAME, fence), "back", 60)
        assert text(results) == "back"
    results.write(Presenter(NAME, 12), None, 60)
    raises(StaleOwner, results.write, Presenter(NAME, 11), "late", 60)
    assert results.read(NAME) is None


TEXTS = {
    "empty": "",
    "a space": " ",
    "spaces at the ends": "  x \n",
    "numbers": "1 2 3 4",
    "quotes": """it's "quoted" `here` \\ and {there}""",
    "marks": "%s %(x)s ? :p1 $1 ::bigint -- ;",
    "JSON": '{"leasehold":"once/1","value":null}',
    "other letters": "Grüße, Ελλάδα, 日本語, עברית",
    "beyond the first plane": "\U0001f409 \U0001d11e a\N{COMBINING ACUTE ACCENT} á",
    "control characters": "\x01\x1f\r\n\t\x7f\x85\u2028\ufeff\uffff",
}


@case
def a_text_comes_back_as_it_was(results: Any) -> None:
    """Every character of it."""
    for name, written in TEXTS.items():
        results.write(Presenter(NAME, 10), written, 60)
        assert (text(results), results.open(Presenter(NAME, 10)).text) == (written, written), name


@case
def a_long_text(results: Any) -> None:
    """More than a megabyte, of characters that are several bytes each."""
    written = "€" * 400_000 + "end"
    results.write(Presenter(NAME, 10), written, 60)
    assert text(results) == written


# ---------------------------------------------------------------- who may write


@case
def an_older_fence_is_refused(results: Any) -> None:
    """By ``open`` and ``write``; the error names both fences, the resource and the owner, and nothing has changed."""
    results.write(Presenter(NAME, 10, A), "new", 60)
    before = results.read(NAME)
    stale = Presenter(NAME, 9, B)
    for call in ((results.open, stale), (results.write, stale, "old", 3600), (results.write, stale, None, 3600)):
        error = raises(StaleOwner, *call)
        assert (error.fence, error.seen, error.resource, error.owner) == (9, 10, NAME, "host-2:22")
        assert "5ec2e7" not in f"{error}{error.__dict__}"
    after = results.read(NAME)
    assert after[:2] == before[:2] and after.left <= before.left


@case
def an_older_fence_is_refused_when_nothing_is_left(results: Any) -> None:
    """The fence is remembered for longer than the entry stays."""
    results.write(Presenter(NAME, 10), "brief", SHORT)
    ended(results)
    for call in ((results.open, Presenter(NAME, 9)), (results.write, Presenter(NAME, 9), "late", 60)):
        assert raises(StaleOwner, *call).seen == 10
    assert results.read(NAME) is None


@case
def to_open_is_enough(results: Any) -> None:
    """Once the newer holder has read, the older one cannot write any more (trap 46)."""
    results.write(Presenter(NAME, 10, A), "old", 60)
    assert results.open(Presenter(NAME, 11, B)).text == "old"
    assert raises(StaleOwner, results.write, Presenter(NAME, 10, A), "late", 60).seen == 11
    assert text(results) == "old"


@case
def an_entry_keeps_the_fence_of_its_writer(results: Any) -> None:
    """A later holder that opens the entry changes neither its fence nor its end."""
    results.write(Presenter(NAME, 10, A), "text", 60)
    for found in (results.open(Presenter(NAME, 11, B)), results.read(NAME), results.open(Presenter(NAME, 12, A))):
        assert (found.text, found.fence) == ("text", 10) and found.left <= 60
    results.write(Presenter(NAME, 12, A), "next", 60)
    assert results.read(NAME).fence == 12


@case
def one_holder_may_write_many_times(results: Any) -> None:
    """Its fence is accepted again, so that a call without a reply can be repeated."""
    for number in range(3):
        results.open(Presenter(NAME, 10))
        results.write(Presenter(NAME, 10), f"text {number}", 60)
        results.write(Presenter(NAME, 10), f"text {number}", 60)
        assert text(results) == f"text {number}"


@case
def an_equal_fence_of_another_is_refused(results: Any) -> None:
    """Two owners with one fence: the second is refused."""
    results.write(Presenter(NAME, 10, A), "first", 60)
    for call in ((results.open, Presenter(NAME, 10, B)), (results.write, Presenter(NAME, 10, B), "second", 60)):
        error = raises(StaleOwner, *call)
        assert error.seen == error.fence == 10
    assert text(results) == "first"


@case
def to_read_presents_nothing(results: Any) -> None:
    """``read`` does not keep a holder from writing."""
    results.write(Presenter(NAME, 10), "text", 60)
    for _ in range(3):
        results.read(NAME)
    results.write(Presenter(NAME, 10), "more", 60)
    assert text(results) == "more"


@case
def every_digit_counts(results: Any) -> None:
    """Fences above 2**53, where a double begins to round, and the highest that there is (trap 17)."""
    for fence in (1794768018952706, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1):
        results.write(Presenter(NAME, fence), str(fence), 60)
        error = raises(StaleOwner, results.open, Presenter(NAME, fence - 1))
        assert (error.fence, error.seen) == (fence - 1, fence)
        assert results.read(NAME)[:2] == results.open(Presenter(NAME, fence))[:2] == (str(fence), fence)


@case
def resources_are_apart(results: Any) -> None:
    """Names that look alike are different: other case, spaces, braces, other forms of one letter, long ones."""
    accent = "job:a\N{COMBINING ACUTE ACCENT}"
    names = [
        "job:a",
        "job:A",
        "job:a ",
        " job:a",
        accent,
        "job:á",
        "job:%7B",
        "job:{",
        "job:{}",
        "job:}:value",
        "jöb:ß",
    ]
    names += ["jöb:ss", "x" * 512, "job:a:value", "job:a:fence", "job:\N{DRAGON}"]
    for fence, name in enumerate(reversed(names), 1):
        results.write(Presenter(name, fence), name, 60)
    for fence, name in enumerate(reversed(names), 1):
        assert results.read(name)[:2] == (name, fence)


@case
def any_history_is_judged_by_the_rule(results: Any) -> None:
    """Sixty random steps: each is accepted or refused as the rule says, and the entry is what was written last."""
    chance = random.Random(5)  # the same history for every result store
    last: dict[str, tuple[int | None, str]] = {}
    entries: dict[str, tuple[str, int] | None] = {}
    for step in range(60):
        holder = Presenter(f"job:{chance.randrange(2)}", chance.randrange(1, 12), chance.choice([A, B]))
        what = chance.choice(["open", "write", "remove"])
        before, whose = last.get(holder.resource, (None, ""))
        expected = accept(before, whose, holder.fence, holder.owner)
        assert _accepted(results, what, holder, f"step {step}") is expected, f"step {step}"
        if expected:
            last[holder.resource] = (holder.fence, holder.owner)
            if what != "open":
                entries[holder.resource] = (f"step {step}", holder.fence) if what == "write" else None
        found = results.read(holder.resource)
        assert (found and found[:2]) == entries.get(holder.resource), f"step {step}"


def _accepted(results: Any, what: str, holder: Presenter, written: str) -> bool:
    try:
        if what == "open":
            results.open(holder)
        else:
            results.write(holder, written if what == "write" else None, 60)
    except StaleOwner:
        return False
    return True


@case
def threads_at_once(results: Any) -> None:
    """Eight threads write in a race: the fence of the entry only grows, and the highest wins."""

    def write(fences: list[int]) -> None:
        seen = 0
        for fence in fences:
            with suppress(StaleOwner):
                results.write(Presenter(NAME, fence), str(fence), 60)
            found = results.read(NAME)
            assert found.text == str(found.fence) and found.fence >= seen, f"{found.fence} after {seen}"
            seen = found.fence

    race(write, 48)
    assert results.read(NAME)[:2] == ("48", 48)


# ---------------------------------------------------------------- leases


@case
def a_lease_is_presented_as_it_is(results: Any) -> None:
    """A lease is all that a result store needs. Afterwards it is marked as guarded."""
    with connect(MemoryStore()) as hold, hold.lock("page", 42) as lease:
        assert results.open(lease) is None
        assert lease.guarded
        results.write(lease, "text", 60)
        assert results.read(lease.resource)[:2] == ("text", lease.fence)


@case
def a_refusal_is_reported_and_raises_the_floor(results: Any) -> None:
    """Observers of the coordinator get one event, and its next lease has a higher fence than the one seen."""
    events: list[Event] = []
    with connect(MemoryStore(), observers=[events.append]) as hold:
        stale = hold.lock("page", 42).acquire(wait=0)
        assert stale is not None
        newer = stale.fence + 60_000_000
        results.write(Presenter(stale.resource, newer), "newer", 60)
        error = raises(StaleOwner, results.write, stale, "late", 60)
        assert (error.fence, error.seen) == (stale.fence, newer)
        (event,) = [one for one in events if isinstance(one, FencedOff)]
        assert (event.lease.kind, event.lease.fence, event.seen) == ("page", stale.fence, newer)
        stale.release()
        with hold.lock("page", 42) as lease:
            assert lease.fence > newer
            results.write(lease, "next", 60)
    assert text(results, "page:42") == "next"


@case
def who_may_not_write(results: Any) -> None:
    """A lease without a fence, a shared one, and a permit that is one of several: a mistake, and nothing was sent."""
    reading = SimpleNamespace(resource=NAME, fence=10, owner=A, shared=True)
    permit = SimpleNamespace(resource=NAME, fence=10, owner=A, slot=0, slot_resource=f"{NAME}:0")
    unfenced = SimpleNamespace(resource=NAME, fence=None, owner=A)
    for lease in (reading, permit, unfenced, None, 10, "lease"):
        raises(InvalidRequest, results.open, lease)
        raises(InvalidRequest, results.write, lease, "text", 60)
    results.write(Presenter(NAME, 1), "text", 60)


# ---------------------------------------------------------------- mistakes


@case
def what_is_no_keep(results: Any) -> None:
    """Zero, negative, endless, too long, or no time at all: a mistake, and nothing has changed."""
    mistakes: list[Any] = [
        0,
        -1,
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
        "0s",
        "soon",
        "",
        "11y",
        3651 * 86400,
        None,
        True,
        b"1m",
    ]
    for mistake in [*mistakes, timedelta(0), timedelta(days=-1), [1]]:
        raises(InvalidRequest, results.write, Presenter(NAME, 10), "text", mistake)
        raises(InvalidRequest, results.write, Presenter(NAME, 10), None, mistake)
    assert results.read(NAME) is None
    results.write(Presenter(NAME, 9), "text", 60)


@case
def what_is_no_text(results: Any) -> None:
    """NUL, a lone surrogate, bytes, anything else, or too long: a mistake, and nothing has changed."""
    mistakes: list[Any] = ["a\0b", "\ud800", b"text", 42, 4.2, True, ["text"], {"a": 1}, "x" * (LONGEST_TEXT + 1)]
    for mistake in mistakes:
        raises(InvalidRequest, results.write, Presenter(NAME, 10), mistake, 60)
    assert results.read(NAME) is None
    results.write(Presenter(NAME, 9), "text", 60)


@case
def what_is_no_resource(results: Any) -> None:
    """Anything but text without NUL and surrogates, of a size that fits."""
    mistakes: list[Any] = [None, "", "x" * 513, "a\0b", "\ud800", 42, b"page"]
    for mistake in mistakes:
        raises(InvalidRequest, results.read, mistake)
        raises(InvalidRequest, results.open, Presenter(mistake, 10))
        raises(InvalidRequest, results.write, Presenter(mistake, 10), "text", 60)
