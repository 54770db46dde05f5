"""Errors that look like ours, and are the function's own; those of ours that are no outcome; and a forked child."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold.errors import LeaseholdError, LeaseLost, NotAcquired, OutcomeUnknown, StaleOwner
from leasehold.patterns import OnceKey, RemoteError
from tests.support.patterns.once.stage import Stage

NAME = ("payment", "{request_id}")
OTHERS = [kind("of another", resource="other:1", fence=7) for kind in (LeaseLost, StaleOwner, NotAcquired)]


def raising(error: Exception, calls: list[str]) -> Callable[[str], Any]:
    """Work that fails when it is called for the first time."""

    def work(request_id: str) -> str:
        calls.append(request_id)
        if len(calls) == 1:
            raise error
        return "paid"

    return work


@pytest.mark.parametrize("errors", [(), True], ids=["frees", "kept"])
@pytest.mark.parametrize("error", [*OTHERS, OutcomeUnknown("of another")], ids=lambda one: type(one).__name__)
def test_an_error_about_another_lease(near: Stage, error: LeaseholdError, errors: Any) -> None:
    """It is an error of the work as every other: raised as it is, and kept where errors are."""
    calls: list[str] = []
    pay = near.decorated(raising(error, calls), *NAME, errors=errors)
    with pytest.raises(type(error)) as caught:
        pay("r-1")
    assert caught.value is error
    if errors:
        with pytest.raises(RemoteError, match="of another"):
            pay("r-1")
    else:
        assert pay("r-1") == "paid"
    assert len(calls) == 2 - bool(errors)


@pytest.mark.parametrize("errors", [(), True], ids=["frees", "kept"])
def test_the_end_of_an_iterator(hold: leasehold.Leasehold, errors: Any) -> None:
    """``next()`` of nothing in a plain function: StopIteration, and not what coroutines make of it."""
    error, calls = StopIteration("no more"), list[str]()
    once = hold.once(*NAME, errors=errors)
    with pytest.raises(StopIteration) as caught:
        once.call(raising(error, calls), "r-1")
    assert caught.value is error
    if errors:
        with pytest.raises(RemoteError, match="no more"):
            once.call(raising(error, calls), "r-1")
    else:
        assert once.call(raising(error, calls), "r-1") == "paid"
    with pytest.raises(StopIteration), once.begin(request_id="r-2"):
        raise error


@pytest.mark.parametrize("kind", [LeaseLost, StaleOwner])
def test_a_loss_that_the_work_has_noticed(near: Stage, kind: type[LeaseholdError]) -> None:
    """``lease.check()``, or a guard, told it that this lease is gone: that is no outcome, whatever ``errors`` says, and
    the next one knows that somebody began."""

    def work(request_id: str, *, lease: Any) -> None:
        raise kind("it is gone", resource=lease.resource, fence=lease.fence)

    with pytest.raises(kind, match="it is gone"):
        near.decorated(work, *NAME, errors=True, lease_as="lease")("r-1")
    with near.rival.once(*NAME, store=near.rival_results, wait=0).begin(request_id="r-1") as key:
        assert not key.done and key.interrupted


def test_the_result_after_an_error_that_was_kept(hold: leasehold.Leasehold) -> None:
    """``begin`` says the same as it will say to everybody else: there is an outcome, and it is that error."""
    key = hold.once("payment", "r-1", errors=KeyError).begin()
    with pytest.raises(KeyError), key:
        raise KeyError("no such account")
    assert key.done
    with pytest.raises(RemoteError, match="no such account") as caught:
        _ = key.result
    assert caught.value.was(KeyError) and key.lease is not None and caught.value.fence == key.lease.fence


@pytest.mark.parametrize("leaves", ["with a result", "with an error"])
def test_a_child_stores_nothing(tmp_path: Path, leaves: str) -> None:
    """Somebody forks in the middle: the work is the parent's, and the child, who has the same fence, neither stores a
    result nor frees the key (trap 32)."""
    with leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold, hold.once("payment", "r-1").begin() as key:
        child = os.fork()
        if child == 0:
            _leave(key, leaves)
        _, status = os.waitpid(child, 0)
        found: Any = hold._results.read("payment:r-1")
        assert found is not None and '"running"' in found.text
        key.complete("of the parent")
    assert os.waitstatus_to_exitcode(status) == (LOST if leaves == "with a result" else LEFT)
    assert key.result == "of the parent"


LOST, LEFT = 10, 11


def _leave(key: OnceKey, how: str) -> None:
    """In the child, which ends here."""
    try:
        if how == "with a result":
            key.complete("of the child")
        else:
            key.__exit__(KeyError, KeyError("of the child"), None)
            os._exit(LEFT)
    except LeaseLost:
        os._exit(LOST)
    finally:
        os._exit(1)
