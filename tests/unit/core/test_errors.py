"""The tree of errors as it is drawn in the documentation, and that an error survives a process boundary."""

from __future__ import annotations

import copy
import pickle

from leasehold import errors
from leasehold.errors import (
    InvalidRequest,
    LeaseholdError,
    LeaseLost,
    NotAcquired,
    NotHeld,
    OutcomeUnknown,
    StaleOwner,
    StoreUnavailable,
    Unsupported,
)
from tests.support.tables import each

TREE: list[tuple[type[LeaseholdError], tuple[type[BaseException], ...]]] = [
    (LeaseholdError, (Exception,)),
    (NotAcquired, (LeaseholdError, TimeoutError)),
    (LeaseLost, (LeaseholdError,)),
    (StaleOwner, (LeaseholdError,)),
    (NotHeld, (LeaseholdError, RuntimeError)),
    (StoreUnavailable, (LeaseholdError, ConnectionError)),
    (OutcomeUnknown, (LeaseholdError, ConnectionError)),
    (Unsupported, (LeaseholdError,)),
    (InvalidRequest, (LeaseholdError, ValueError)),
]


FULL: list[LeaseholdError] = [
    NotAcquired("busy", holder="other:9", retry_in=1.25, resource="report:42", owner="host:7", fence=5),
    LeaseLost("gone", reason="evicted", resource="report:42", owner="host:7", fence=5),
    StaleOwner("old", seen=6, resource="report:42", owner="host:7", fence=5),
    *[kind("message", resource="report:42", owner="host:7", fence=5) for kind, _ in TREE if kind is not NotAcquired],
]


@each(("kind", "bases"), TREE)
def test_the_tree_is_as_drawn(kind: type[LeaseholdError], bases: tuple[type[BaseException], ...]) -> None:
    """Each error has exactly these bases, so that ``except TimeoutError`` and the like work."""
    assert kind.__bases__ == bases


def test_the_tree_is_complete() -> None:
    """Every public name is in it, sorted, and there are no others. Guards and patterns may have some of their own."""
    assert errors.__all__ == sorted(errors.__all__, key=str)
    assert set(errors.__all__) == {kind.__name__ for kind, _ in TREE}
    theirs = ("leasehold.guards.", "leasehold.patterns.", "leasehold._sql.")
    here = {kind for kind in LeaseholdError.__subclasses__() if not kind.__module__.startswith(theirs)}
    assert here == {kind for kind, _ in TREE[1:]}


@each("kind", [kind for kind, _ in TREE])
def test_every_error_carries_resource_owner_and_fence(kind: type[LeaseholdError]) -> None:
    """Where they are known; else None."""
    bare, full = kind("message"), kind("message", resource="report:42", owner="host:7", fence=5)
    assert (bare.resource, bare.owner, bare.fence) == (None, None, None)
    assert (full.resource, full.owner, full.fence) == ("report:42", "host:7", 5)


@each("kind", [kind for kind, _ in TREE])
def test_the_text_of_an_error_is_its_message(kind: type[LeaseholdError]) -> None:
    """Also for those that are operating system errors by birth."""
    assert str(kind("what happened, and what to do")) == "what happened, and what to do"
    assert str(kind()) == ""
    assert repr(kind("message")) == f"{kind.__name__}('message')"


def test_what_single_errors_carry() -> None:
    """The holder and when to come back; the reason; the fence that was seen."""
    busy, lost, stale = FULL[:3]
    assert isinstance(busy, NotAcquired)
    assert (busy.holder, busy.retry_in) == ("other:9", 1.25)
    assert isinstance(lost, LeaseLost)
    assert lost.reason == "evicted"
    assert isinstance(stale, StaleOwner)
    assert (stale.fence, stale.seen) == (5, 6)
    assert (NotAcquired().holder, NotAcquired().retry_in, StaleOwner().seen) == (None, None, None)


@each("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@each("error", FULL, ids=lambda error: type(error).__name__)
def test_every_error_can_be_pickled(error: LeaseholdError, protocol: int) -> None:
    """All of it arrives: type, message and every attribute."""
    same(pickle.loads(pickle.dumps(error, protocol)), error)  # noqa: S301  our own bytes


@each("error", FULL, ids=lambda error: type(error).__name__)
def test_every_error_can_be_copied(error: LeaseholdError) -> None:
    """Shallow and deep."""
    same(copy.copy(error), error)
    same(copy.deepcopy(error), error)


def test_notes_travel_with_an_error() -> None:
    """What was added on the way up is read by whoever gets it."""
    error = LeaseLost("gone", reason="expired")
    error.add_note("while exporting")
    assert copy.copy(error).__notes__ == ["while exporting"]


def test_a_subclass_of_an_error_can_be_pickled() -> None:
    """An application's own error keeps its attributes too."""
    error = Busier("busy", holder="other:9")
    error.tries = 3
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    same(twin, error)
    assert twin.tries == 3


class Busier(NotAcquired):
    """An error of somebody who builds upon ours."""

    tries: int


def same(twin: LeaseholdError, error: LeaseholdError) -> None:
    """Another object that says the same."""
    assert twin is not error
    assert type(twin) is type(error)
    assert (str(twin), twin.args) == (str(error), error.args)
    assert vars(twin) == vars(error)
