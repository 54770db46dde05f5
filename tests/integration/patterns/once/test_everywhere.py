"""What once promises, at every place where results can be kept, for threads and for asyncio."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.errors import LeaseLost, NotAcquired, StaleOwner
from leasehold.patterns import KeyReused, RemoteError, ResultNotKept
from tests.support.patterns.once.stage import Stage

NAME = ("payment", "{request_id}")


class Declined(Exception):
    """An error that is an answer."""


class Till:
    """Work with an effect, which is counted."""

    def __init__(self, *errors: Exception) -> None:
        self.paid: list[Any] = []
        self.errors = list(errors)

    def pay(self, request_id: str, body: Any = None) -> Any:
        """Fails as often as it has errors; then it pays."""
        if self.errors:
            raise self.errors.pop(0)
        self.paid.append(body)
        return {"paid": body, "number": len(self.paid)}


def test_it_runs_once_and_the_result_is_kept(stage: Stage) -> None:
    """Whoever asks again, here or elsewhere, gets what the first one got; another key runs by itself."""
    till = Till()
    pay = stage.decorated(till.pay, *NAME, fingerprint="{body}")
    rival = stage.rivals(till.pay, *NAME, fingerprint="{body}")
    body = {"amount": 5, "to": "Zoë", "\n": [1.5, None, True]}
    first = pay("r-1", body)
    assert first == {"paid": body, "number": 1}
    assert pay("r-1", body) == first == rival("r-1", dict(reversed(body.items())))
    assert till.paid == [body]
    assert rival("r-2", body)["number"] == 2 and pay("r-2", body)["number"] == 2


def test_the_same_key_with_another_body(stage: Stage) -> None:
    """It is an error that shows neither body nor key; nothing runs, and the first result stays."""
    till = Till()
    pay = stage.decorated(till.pay, *NAME, fingerprint="{body}")
    first = pay("r-secret", {"amount": 5})
    with pytest.raises(KeyReused) as caught:
        pay("r-secret", {"amount": 500_417})
    assert "500" not in str(caught.value) and "secret" not in str(caught.value)
    assert caught.value.resource == "payment:r-secret"
    assert till.paid == [{"amount": 5}] and pay("r-secret", {"amount": 5}) == first


def test_an_error_frees_the_key(stage: Stage) -> None:
    """The next call runs again, also with another body; nothing is left on the result store meanwhile."""
    till = Till(Declined("no"), Declined("no again"))
    pay = stage.decorated(till.pay, *NAME, fingerprint="{body}")
    for body in (1, 2):
        with pytest.raises(Declined, match="no"):
            pay("r-1", body)
        assert stage.stored("payment:r-1") is None
    assert pay("r-1", 3) == pay("r-1", 3) == {"paid": 3, "number": 1}


def test_an_error_that_is_an_outcome(stage: Stage) -> None:
    """The one in whose call it happened gets it itself; the others one that says what it was. It does not run again."""
    till = Till(Declined("no money"), KeyError("lost"))
    pay = stage.decorated(till.pay, *NAME, errors=(Declined,))
    with pytest.raises(Declined, match="no money"):
        pay("r-1")
    for ask in (pay, stage.rivals(till.pay, *NAME)):
        with pytest.raises(RemoteError, match="no money") as caught:
            ask("r-1")
        assert caught.value.was(Declined) and caught.value.was(Exception) and not caught.value.was(KeyError)
        assert caught.value.resource == "payment:r-1"
    with pytest.raises(KeyError):
        pay("r-2")
    assert pay("r-2")["number"] == 1 and till.errors == []


def test_a_result_that_cannot_be_kept(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """It has happened: its caller gets it, it does not happen again, and whoever asks again is told so."""
    ran: list[str] = []
    result = object()

    def work(request_id: str) -> object:
        ran.append(request_id)
        return result

    pay = stage.decorated(work, *NAME)
    assert pay("r-1") is result
    assert "type object and cannot be serialized" in caplog.text
    for ask in (pay, stage.rivals(Till().pay, *NAME)):
        with pytest.raises(ResultNotKept, match=r"payment ran.*type object could not be kept\. It does not"):
            ask("r-1")
    assert ran == ["r-1"]


def test_somebody_else_is_at_it(stage: Stage) -> None:
    """One who does not wait is told when to come back; one with another body at once, however long it would wait."""
    told: list[BaseException] = []

    def meddle(request_id: str, body: str) -> str:
        for other, wait in ((body, 0), ("another", None)):
            ask = stage.rivals(Till().pay, *NAME, fingerprint="{body}", wait=wait)
            with pytest.raises((NotAcquired, KeyReused)) as caught:
                ask(request_id, other)
            told.append(caught.value)
        return "paid"

    pay = stage.decorated(meddle, *NAME, fingerprint="{body}")
    assert pay("r-1", "a body") == "paid"
    busy, reused = told
    assert isinstance(busy, NotAcquired) and busy.retry_in is not None and busy.retry_in > 0
    assert isinstance(reused, KeyReused)


def test_a_late_one_is_refused(stage: Stage) -> None:
    """Its lease is gone and another has taken over with a higher fence: what it did is not stored, the other's is."""
    fences: list[int] = []

    def second(request_id: str, *, lease: Any) -> str:
        fences.append(lease.fence)
        return "second"

    def slow(request_id: str, *, lease: Any) -> str:
        fences.append(lease.fence)
        stage.rival.evict("payment:r-1", fence=lease.fence, reason="test", force=True, delay=0)
        assert stage.rivals(second, *NAME, lease_as="lease")(request_id) == "second"
        return "first"

    pay = stage.decorated(slow, *NAME, lease_as="lease")
    with pytest.raises((StaleOwner, LeaseLost)):
        pay("r-1")
    assert fences[1] > fences[0]
    assert pay("r-1") == "second"


def test_what_lies_on_the_result_store(stage: Stage) -> None:
    """The outcome and a digest of the body; never the body itself."""
    pay = stage.decorated(lambda request_id, body: "paid", *NAME, keep="1h", fingerprint="{body}")
    pay("r-1", "4111 1111 1111 1111")
    entry = stage.stored("payment:r-1")
    assert "4111" not in entry.text and '"value":{"json":"paid"}' in entry.text
    assert 3500 < entry.left <= 3600
