"""What cannot be taken together is refused before anything is sent, with what to do."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, Leasehold, NotHeld
from leasehold.primitives.arguments import MOST_PARTS
from tests.support.lock import Spy, sync_scene
from tests.support.tables import each


class Sides:
    """What looks like a read-write lock, which is no lock itself."""

    def read(self) -> None:
        """One side."""

    def write(self) -> None:
        """And the other."""


WRONG: dict[str, tuple[Callable[[Leasehold], Any], str]] = {
    "nothing": (lambda hold: hold.all(), "takes 1 to"),
    "too many": (lambda hold: hold.all(*[hold.lock("job", n) for n in range(MOST_PARTS + 1)]), "takes 1 to"),
    "the same twice": (lambda hold: hold.all(hold.lock("job", 1), hold.lock("job", "1")), "given twice"),
    "again as an rlock": (lambda hold: hold.all(hold.lock("job"), hold.rlock("job")), "given twice"),
    "a list": (lambda hold: hold.all([hold.lock("job")]), "hold.all(*locks)"),  # type: ignore[call-overload]  # wrong
    "an iterator": (lambda hold: hold.all(iter([hold.lock("job")])), "hold.all(*locks)"),  # type: ignore[call-overload]  # wrong
    "an all": (lambda hold: hold.all(hold.all(hold.lock("job"))), "locks of both"),  # type: ignore[call-overload]  # wrong
    "both sides": (lambda hold: hold.all(Sides()), "read() or its write()"),  # type: ignore[call-overload]  # wrong
    "a name": (lambda hold: hold.all("job"), "hold.lock('order', 42), not str"),  # type: ignore[call-overload]  # wrong
    "None": (lambda hold: hold.all(None), "not NoneType"),  # type: ignore[call-overload]  # wrong
    "a lease": (lambda hold: hold.all(hold.lock("x").acquire()), "not Lease"),  # type: ignore[arg-type]  # wrong
    "a negative wait": (lambda hold: hold.all(hold.lock("job"), wait=-1), "wait"),
    "no wait": (lambda hold: hold.all(hold.lock("job"), wait="soon"), "soon"),
    "a late wait": (lambda hold: hold.all(hold.lock("job")).acquire(wait=True), "wait"),
}


@each(("wrong", "says"), WRONG.values(), ids=WRONG)
def test_what_is_no_part(wrong: Callable[[Leasehold], Any], says: str) -> None:
    """It is said at once what to give instead, and nothing of the job reaches the store."""
    spy, hold = sync_scene()
    with hold, pytest.raises(InvalidRequest) as info:
        wrong(hold)
    assert says in str(info.value)
    assert not [op for op in spy.ops if op.resource.startswith("job")]


def test_locks_of_another_coordinator() -> None:
    """Also of one on the same store: what it holds is looked after by another watchdog."""
    one, two = leasehold.connect("memory://shared"), leasehold.connect("memory://shared")
    with pytest.raises(InvalidRequest, match="another coordinator: make all of them from the one") as info:
        one.all(one.lock("a"), two.lock("b"))
    assert info.value.resource == "b"


def test_locks_of_another_store() -> None:
    """Two stores cannot decide in one step; it is said what can be done."""
    one, two = leasehold.connect("memory://one"), leasehold.connect("memory://two")
    with pytest.raises(InvalidRequest, match=r"two stores .* one lock inside the other"):
        one.all(one.lock("a"), two.lock("b"))


def test_the_flavours_do_not_mix() -> None:
    """A lock for threads is no part of an all for asyncio, nor the other way round."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://") as loop:
            with leasehold.connect("memory://") as hold:
                with pytest.raises(InvalidRequest, match=r"of leasehold\.connect\(\)"):
                    loop.all(hold.lock("a"))  # type: ignore[call-overload]  # that is what is wrong
                with pytest.raises(InvalidRequest, match=r"of leasehold\.aio\.connect\(\)"):
                    hold.all(loop.lock("a"))  # type: ignore[call-overload]  # that is what is wrong

    asyncio.run(main())


def test_release_without_holding() -> None:
    """Who holds none of them cannot give them back; who left no body cannot leave it."""
    with leasehold.connect("memory://") as hold:
        both = hold.all(hold.lock("a"), hold.lock("b"))
        with pytest.raises(NotHeld, match=r"leases\.release\(\)"):
            both.release()
        with pytest.raises(NotHeld):
            both.__exit__(None, None, None)
        assert not both.owned() and not both.locked()


def test_they_stay_in_their_process() -> None:
    """Neither the all nor its leases can be pickled, and both say what to send."""
    with leasehold.connect("memory://") as hold:
        both = hold.all(hold.lock("a"), hold.lock("b"))
        with pytest.raises(TypeError, match="kinds and ids"):
            pickle.dumps(both)
        leases = both.acquire()
        assert leases is not None
        with pytest.raises(TypeError, match="fences"):
            pickle.dumps(leases)
        assert leases.release()


def test_nothing_secret_is_shown() -> None:
    """Neither an id nor an owner's token is in what they look like."""
    with leasehold.connect("memory://") as hold:
        both = hold.all(hold.lock("a", "secret-7"), hold.lock("b"))
        with both as leases:
            shown = f"{both!r} {leases!r} {leases.log_context()}"
            assert "secret-7" not in shown and not [one for one in leases if one.owner in shown]
            assert [one["kind"] for one in leases.log_context()["leases"]] == ["a", "b"]
        assert both.resources == ("a:secret-7", "b")


def test_a_callback_that_is_none() -> None:
    """on_lost takes a function."""
    with leasehold.connect("memory://") as hold:
        leases = hold.all(hold.lock("a")).acquire()
        assert leases is not None
        with pytest.raises(InvalidRequest, match="takes a function"):
            leases.on_lost(None)  # type: ignore[arg-type]  # that is what is wrong


def test_the_wait_of_the_coordinator() -> None:
    """The default is the coordinator's, whatever the locks say."""
    spy = Spy(sync_scene()[0].inner)
    with leasehold.connect(spy, wait=0) as hold, leasehold.connect(spy) as other:
        theirs = other.lock("b").acquire()
        assert theirs is not None
        assert hold.all(hold.lock("a", wait=None), hold.lock("b", wait=None)).acquire() is None
        assert theirs.release()


def test_the_order_is_that_of_bytes() -> None:
    """Names are compared as UTF-8, not by the rules of a language or of Python's own text."""
    names = ["b", "a:10", "a:9", "ä", "Z", "a%2Fb", "\U0001f512", "\uff5e", "n/a"]
    with leasehold.connect("memory://") as hold:
        both = hold.all(*[hold.lock(name) for name in names])
        ordered = [part.resource.encode() for part in both._ordered]
    assert ordered == sorted(ordered) and len(ordered) == len(names)
