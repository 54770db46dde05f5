"""The contract of a result store: one suite of cases for every result store, yours too.

    import pytest
    from leasehold.testing.results import CASES

    @pytest.mark.parametrize("case", CASES)
    def test_my_result_store_keeps_the_contract(case):
        CASES[case](MyResultStore())

Each case gets a result store on which nothing stands yet. One whose calls are awaited needs a wrapper that awaits them.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from leasehold.coordinator import connect
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.guards.fence import accept
from leasehold.observe.events import Event, FencedOff
from leasehold.patterns.results.result_store import LONGEST_TEXT, Entry
from leasehold.stores.memory import MemoryStore

__all__ = ["CASES", "Presenter"]

Case = Callable[[Any], None]
CASES: dict[str, Case] = {}
"""Every case under its name: a function that takes a result store, and raises AssertionError or an error of the
result store's."""
E = TypeVar("E", bound=BaseException)

NAME = "acme/page:42"
A, B = "host-1:11:5ec2e75ec2e75ec2e75ec2e75ec2e7.1", "host-2:22:5ec2e75ec2e75ec2e75ec2e75ec2e7.2"
SHORT = 0.05  # seconds
PATIENCE = 30.0  # until something has ended


class Presenter(NamedTuple):
    """What a result store needs of a lease: ``Presenter("page:42", 7)`` in place of one."""

    resource: str
    fence: int
    owner: str = A


def case(function: Case) -> Case:
    """Register a case of the contract under its name."""
    CASES[function.__name__] = function
    return function


def raises(kind: type[E], call: Callable[..., object], *args: Any) -> E:
    """The error that this call raises; it must."""
    try:
        call(*args)
    except kind as error:
        return error
    raise AssertionError(f"it was accepted, in place of {kind.__name__}")


def text(results: Any, name: str = NAME) -> str | None:
    """What stands there."""
    found: Entry | None = results.read(name)
    return None if found is None else found.text


def ended(results: Any, name: str = NAME) -> None:
    """Wait until nothing stands there any more."""
    until = time.monotonic() + PATIENCE
    while results.read(name) is not None:
        assert time.monotonic() < until, "it never ends"
        time.sleep(SHORT / 5)


# ---------------------------------------------------------------- what is kept


@case
def nothing_stands_on_a_new_results(results: Any) -> None:
    """There is nothing to read; to open it presents the fence all the same."""
    assert results.read(NAME) is None
    assert results.open(Presenter(NAME, 10)) is None
    assert results.read(NAME) is None
    raises(StaleOwner, results.open, Presenter(NAME, 9))


@case
def what_is_written_is_read(results: Any) -> None:
    """By anybody, and by its holder: the text, the fence under which it was written, its age and what is left."""
    assert results.write(Presenter(NAME, 10), "first", "1m") is None
    for found in (results.read(NAME), results.open(Presenter(NAME, 10))):
        assert isinstance(found, Entry) and (found.text, found.fence) == ("first", 10)
        assert 0 <= found.age < PATIENCE and 60 - PATIENCE < found.left <= 60


@case
def time_goes_by(results: Any) -> None:
    """An entry grows older and has less left; both together are as long as it is kept."""
    results.write(Presenter(NAME, 10), "text", timedelta(minutes=1))
    first = results.read(NAME)
    time.sleep(SHORT)
    later = results.read(NAME)
    assert later.age > first.age and later.left < first.left
    assert math.isclose(later.age + later.left, 60, abs_tol=0.01)


@case
def what_is_written_again_begins_anew(results: Any) -> None:
    """The text, its age and its end are those of the last write, be it a shorter one."""
    results.write(Presenter(NAME, 10), "long", "1d")
    results.write(Presenter(NAME, 10), "short", "1m")
    found = results.read(NAME)
    assert found.text == "short" and found.left <= 60
    results.write(Presenter(NAME, 10), "long", "1d")
    assert results.read(NAME).left > 60


@case
def an_entry_ends(results: Any) -> None:
    """After ``keep`` nothing stands there, and the next may write."""
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
def none_takes_it_away(results: Any) -> None:
    """Where something stands and where nothing does; the fence is remembered."""
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
    """Every letter of it, whatever it looks like."""
    for name, said in TEXTS.items():
        results.write(Presenter(NAME, 10), said, 60)
        assert (text(results), results.open(Presenter(NAME, 10)).text) == (said, said), name


@case
def a_long_text(results: Any) -> None:
    """A megabyte and more, of letters that are several bytes each."""
    said = "€" * 400_000 + "end"
    results.write(Presenter(NAME, 10), said, 60)
    assert text(results) == said


# ---------------------------------------------------------------- who may write


@case
def an_older_fence_is_refused(results: Any) -> None:
    """To open and to write; the error says both fences, and whom it concerns, and nothing has changed."""
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
    """Whoever opens it later has another one; its end stays the same, too."""
    results.write(Presenter(NAME, 10, A), "text", 60)
    for found in (results.open(Presenter(NAME, 11, B)), results.read(NAME), results.open(Presenter(NAME, 12, A))):
        assert (found.text, found.fence) == ("text", 10) and found.left <= 60
    results.write(Presenter(NAME, 12, A), "next", 60)
    assert results.read(NAME).fence == 12


@case
def one_holder_may_write_many_times(results: Any) -> None:
    """Its fence is accepted again, so that what was not answered can be repeated."""
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
    """Whoever reads keeps nobody from writing."""
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
    """Sixty random steps: each is accepted or refused as the rule says, and what stands there is what was written."""
    chance = random.Random(5)  # the same history for everybody
    last: dict[str, tuple[int | None, str]] = {}
    stands: dict[str, tuple[str, int] | None] = {}
    for step in range(60):
        holder = Presenter(f"job:{chance.randrange(2)}", chance.randrange(1, 12), chance.choice([A, B]))
        what = chance.choice(["open", "write", "take away"])
        before, whose = last.get(holder.resource, (None, ""))
        expected = accept(before, whose, holder.fence, holder.owner)
        assert _accepted(results, what, holder, f"step {step}") is expected, f"step {step}"
        if expected:
            last[holder.resource] = (holder.fence, holder.owner)
            if what != "open":
                stands[holder.resource] = (f"step {step}", holder.fence) if what == "write" else None
        found = results.read(holder.resource)
        assert (found and found[:2]) == stands.get(holder.resource), f"step {step}"


def _accepted(results: Any, what: str, holder: Presenter, said: str) -> bool:
    try:
        if what == "open":
            results.open(holder)
        else:
            results.write(holder, said if what == "write" else None, 60)
    except StaleOwner:
        return False
    return True


@case
def threads_at_once(results: Any) -> None:
    """Eight threads write in a race: the fence of what stands there only grows, and the highest wins."""
    fences = list(range(1, 49))
    random.Random(7).shuffle(fences)  # the same order for everybody
    failures: list[BaseException] = []

    def write(lane: int) -> None:
        try:
            seen = 0
            for fence in fences[lane::8]:
                with suppress(StaleOwner):
                    results.write(Presenter(NAME, fence), str(fence), 60)
                found = results.read(NAME)
                assert found.text == str(found.fence) and found.fence >= seen, f"{found.fence} after {seen}"
                seen = found.fence
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
    assert not failures, failures
    assert results.read(NAME)[:2] == ("48", 48)


# ---------------------------------------------------------------- leases


@case
def a_lease_is_presented_as_it_is(results: Any) -> None:
    """A lease brings all that is needed, and knows afterwards that a guard has seen it."""
    with connect(MemoryStore()) as hold, hold.lock("page", 42) as lease:
        assert results.open(lease) is None
        assert lease.guarded
        results.write(lease, "text", 60)
        assert results.read(lease.resource)[:2] == ("text", lease.fence)


@case
def a_refusal_is_told_and_teaches(results: Any) -> None:
    """Whoever observes the coordinator hears of it, once, and its next lease has a higher fence than the one seen."""
    heard: list[Event] = []
    with connect(MemoryStore(), observers=[heard.append]) as hold:
        stale = hold.lock("page", 42).acquire(wait=0)
        assert stale is not None
        newer = stale.fence + 60_000_000
        results.write(Presenter(stale.resource, newer), "newer", 60)
        error = raises(StaleOwner, results.write, stale, "late", 60)
        assert (error.fence, error.seen) == (stale.fence, newer)
        (told,) = [one for one in heard if isinstance(one, FencedOff)]
        assert (told.lease.kind, told.lease.fence, told.seen) == ("page", stale.fence, newer)
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
    """Text that can be written down, of a size that fits."""
    mistakes: list[Any] = [None, "", "x" * 513, "a\0b", "\ud800", 42, b"page"]
    for mistake in mistakes:
        raises(InvalidRequest, results.read, mistake)
        raises(InvalidRequest, results.open, Presenter(mistake, 10))
        raises(InvalidRequest, results.write, Presenter(mistake, 10), "text", 60)
