"""A ticket is a short text that says which lease waits for its adopter, and holds no more power than that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.tickets import MARK, Ticket, read
from leasehold.errors import InvalidRequest
from tests.support.tables import each

NONCE = "00112233445566778899aabbccddeeff"
TICKET = Ticket("acme/report:42", 1794768018952706, 30_000, NONCE)
FROZEN = "lh1.nnpBgAARIjNEVWZ3iJmqu8zd7v8ABmBU_jlSAgAAdTBhY21lL3JlcG9ydDo0Mg"


def test_the_text_never_changes() -> None:
    """A ticket may be read by another version: its form is frozen."""
    assert TICKET.text() == FROZEN
    assert read(FROZEN) == TICKET


@given(
    resource=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100),
    fence=st.integers(1, 2**53),
    ttl_ms=st.integers(50, 86_400_000),
    nonce=st.binary(min_size=16, max_size=16),
)
def test_what_is_written_is_read(resource: str, fence: int, ttl_ms: int, nonce: bytes) -> None:
    """Any resource, any fence; and a blank at its end, as messages have, does not matter."""
    ticket = Ticket(resource, fence, ttl_ms, nonce.hex())
    assert read(ticket.text()) == ticket == read(ticket.text() + "\n")
    assert ticket.text().replace(".", "").replace("-", "").replace("_", "").isalnum()


@each("place", range(len(MARK), len(FROZEN)))
def test_a_damaged_one_is_refused(place: int) -> None:
    """One letter changed, or the end cut off: nothing is sent for it."""
    other = "A" if FROZEN[place] != "A" else "B"
    for text in (FROZEN[:place] + other + FROZEN[place + 1 :], FROZEN[:place]):
        with pytest.raises(InvalidRequest, match="no ticket"):
            read(text)


@each("wrong", ["", "lh1.", "lh2." + FROZEN[4:], None, 42, FROZEN.encode(), "lh1.é", "lh1.====", [FROZEN]])
def test_what_is_none_is_refused(wrong: object) -> None:
    """Whatever else is handed over: InvalidRequest, which does not repeat it."""
    with pytest.raises(InvalidRequest) as caught:
        read(wrong)
    assert FROZEN[8:] not in str(caught.value)
