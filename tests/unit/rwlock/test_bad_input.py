"""Bad input: a clear error of ours, before anything is sent, with nothing left behind."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest, LeaseholdError
from leasehold.guards.memory import FenceGuard
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy, nothing_left
from tests.support.tables import each

BAD_NAMES: dict[str, tuple[Any, ...]] = {
    "no kind": ("",),
    "a number": (42,),
    "None": (None,),
    "a list": (["doc"],),
    "a float": ("doc", 1.0),
    "a bool": ("doc", True),
    "an empty id": ("doc", ""),
    "bytes": ("doc", b"1"),
    "what cannot be hashed": ("doc", {}),
    "huge": ("doc", "x" * 600),
}
BAD_OPTIONS: dict[str, dict[str, Any]] = {
    "ttl zero": {"ttl": 0},
    "ttl negative": {"ttl": -1},
    "ttl nan": {"ttl": float("nan")},
    "ttl bool": {"ttl": True},
    "ttl text": {"ttl": "soon"},
    "ttl None": {"ttl": None},
    "ttl list": {"ttl": [30]},
    "wait negative": {"wait": -1},
    "wait text": {"wait": "soon"},
    "renew": {"renew": 1},
    "reentrant": {"reentrant": None},
    "at_least": {"at_least": -1},
    "delay": {"delay": "x"},
    "max_hold": {"max_hold": 0},
    "max_idle": {"max_idle": float("inf")},
    "protects": {"protects": "everything"},
    "meta no mapping": {"meta": ["a"]},
    "meta huge": {"meta": {"a": "x" * 5000}},
}


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture(params=["threads", "asyncio"])
def hold(request: pytest.FixtureRequest, spy: Spy) -> Any:
    """A coordinator over it; Any, because these tests pass what a type checker refuses."""
    return leasehold.connect(spy) if request.param == "threads" else leasehold.aio.connect(spy)


@pytest.fixture
def threads(spy: Spy) -> Iterator[leasehold.Leasehold]:
    """One for threads."""
    with leasehold.connect(spy) as hold:
        yield hold


@each("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_bad_name_is_refused_at_once(hold: Any, spy: Spy, name: tuple[Any, ...]) -> None:
    """By ``rwlock`` itself, as ``lock`` does, and not only by its sides."""
    with pytest.raises(InvalidRequest) as info:
        hold.rwlock(*name)
    with pytest.raises(InvalidRequest) as plain:
        hold.lock(*name)
    assert str(info.value) == str(plain.value) and not spy.ops


@each("side", ["read", "write"])
@each("options", BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_a_bad_option_is_refused_at_once(hold: Any, spy: Spy, options: dict[str, Any], side: str) -> None:
    """With the words of ``lock``, before anything is sent."""
    with pytest.raises(InvalidRequest) as info:
        getattr(hold.rwlock("doc", 1), side)(**options)
    with pytest.raises(InvalidRequest) as plain:
        hold.lock("doc", 1, **options)
    assert str(info.value) == str(plain.value) and not spy.ops


@pytest.mark.parametrize("side", ["read", "write"])
def test_what_is_no_option_is_no_option(hold: Any, side: str) -> None:
    """Neither positions nor names that ``lock`` does not have."""
    with pytest.raises(TypeError):
        getattr(hold.rwlock("doc", 1), side)(30)
    with pytest.raises(TypeError):
        getattr(hold.rwlock("doc", 1), side)(limit=3)
    with pytest.raises(TypeError):
        hold.rwlock("doc", 1, ttl=30)


@pytest.mark.parametrize("side", ["read", "write"])
def test_a_long_ttl_warns_where_it_is_asked_for(hold: Any, side: str) -> None:
    """The warning names the caller's line."""
    with pytest.warns(UserWarning, match="over 1 h") as caught:
        getattr(hold.rwlock("doc", 1), side)(ttl="2h")
    assert caught[0].filename == __file__


def test_it_is_no_context_manager_itself(hold: Any) -> None:
    """Which side was meant would be a guess."""
    both = hold.rwlock("doc", 1)
    assert not hasattr(both, "__enter__") and not hasattr(both, "__aenter__") and not hasattr(both, "acquire")


def test_it_stays_in_its_process(hold: Any) -> None:
    """Neither it nor its sides can be pickled; and no repr shows an id."""
    both = hold.rwlock("doc", "s3cret")
    for one in (both, both.read(), both.write()):
        with pytest.raises(TypeError, match="connect"):
            pickle.dumps(one)
        assert "s3cret" not in repr(one) and type(one).__name__ in repr(one)
    assert both.resource == both.read().resource == both.write().resource == "doc:s3cret"


@pytest.mark.parametrize("bad", [0, -1, "soon", True, float("nan"), None])
def test_a_bad_extension_changes_nothing(threads: leasehold.Leasehold, spy: Spy, bad: Any) -> None:
    """As with any lease."""
    with threads.rwlock("doc", 1).read() as lease:
        sent = len(spy.ops)
        with pytest.raises(InvalidRequest):
            lease.extend(bad)
        assert lease.state == "held" and len(spy.ops) == sent


def test_a_downgrade_that_is_refused_sends_nothing(threads: leasehold.Leasehold, spy: Spy) -> None:
    """Of a read lease, of one that was entered twice, of one that was downgraded, of one that is over."""
    doc = threads.rwlock("doc", "s3cret")
    errors: list[LeaseholdError] = []

    def refused(call: Callable[[], object]) -> None:
        sent = len(spy.ops)
        with pytest.raises(LeaseholdError) as info:
            call()
        errors.append(info.value)
        assert len(spy.ops) == sent and "s3cret" not in str(info.value)

    with doc.read() as reader:
        refused(reader.downgrade)
    refused(reader.downgrade)
    with doc.write() as writer, doc.write(reentrant=True):
        refused(writer.downgrade)
    with doc.write() as writer:
        writer.downgrade()
        refused(writer.downgrade)
    assert [type(one).__name__ for one in errors] == ["InvalidRequest", "NotHeld", *["InvalidRequest"] * 2]
    assert nothing_left(spy, "doc:s3cret")


def test_a_guard_wants_to_know_who_only_reads(threads: leasehold.Leasehold) -> None:
    """A read lease without shared=True, or a write lease with it, is a mistake of the caller; nothing is recorded."""
    guard, doc = FenceGuard(), threads.rwlock("doc", 1)
    with doc.read() as reader:
        with pytest.raises(InvalidRequest, match="shared=True"):
            guard.check(reader)
        with pytest.raises(InvalidRequest, match="shared is True or False"):
            guard.check(reader, shared=1)  # type: ignore[arg-type]  # that is what is refused
    with doc.write() as writer, pytest.raises(InvalidRequest, match="exclusive"):
        guard.check(writer, shared=True)
    assert guard.seen("doc:1") is None
