"""A resource's state as text and back."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core import ledger
from leasehold._core.rules import RULES
from leasehold._core.types import AuditNote, Door, Grant, State, Tombstone, Waiter, Watcher
from leasehold.stores import state_text
from tests.support.tables import each

numbers = st.integers(min_value=0, max_value=2**53)
texts = st.text(st.characters(), max_size=8)  # lone surrogates, NUL and quotes too
rules = st.sampled_from(sorted(RULES))
slots = st.lists(numbers, max_size=3).map(tuple)
KINDS: dict[object, st.SearchStrategy[object]] = {bool: st.booleans(), int: numbers, str: texts, tuple[int, ...]: slots}


def every_field(kind: type) -> st.SearchStrategy[Any]:
    """Values of a tuple of the ledger, no field left at its default."""
    hints = get_type_hints(kind).items()
    return st.builds(kind, **{name: rules if name == "rule" else KINDS[hint] for name, hint in hints})


states = st.builds(
    State,
    st.lists(every_field(Grant), max_size=3).map(tuple),
    st.lists(every_field(Waiter), max_size=3).map(tuple),
    numbers,
    numbers,
    numbers,
    st.lists(every_field(Tombstone), max_size=3).map(tuple),
    st.lists(every_field(AuditNote), max_size=3).map(tuple),
    st.lists(every_field(Door), max_size=3).map(tuple),
    numbers,
    numbers,
    st.lists(every_field(Watcher), max_size=3).map(tuple),
    numbers,
)


@given(states)
def test_what_is_written_is_read(state: State) -> None:
    """Every state survives the text, with every type it had, and the text is plain ASCII JSON."""
    text = state_text.encode(state)
    read = state_text.decode(text)
    assert read == state
    assert repr(read) == repr(state)  # names the types, which == on tuples does not look at
    assert text.isascii()
    json.loads(text)


def test_the_format_is_frozen() -> None:
    """Format 1, as files of earlier versions hold it."""
    state = State((Grant("o", 7, 10, 20),), (Waiter("w", 10, 1, 5),), 7, 9, 0, (Tombstone("e", 6, "released", 8),))
    assert state_text.encode(state) == (
        '[[["o",7,10,20,"mutex",[0],0,"","",0,"",0,0,0,false]],'
        '[["w",10,1,5,"",0,"mutex",1,1,0,"","",0,false]],7,9,0,[["e",6,"released",8,""]]]'
    )


def test_notes_stand_at_the_end() -> None:
    """Only where there are some: all other rows are what an earlier version can read."""
    state = State(notes=(AuditNote(5, "evicted", "host:1", 7, "why"),))
    assert state_text.encode(state) == '[[],[],0,0,0,[],[[5,"evicted","host:1",7,"why"]]]'
    assert state_text.decode(state_text.encode(state)) == state


def test_a_field_that_an_old_row_lacks_has_its_default() -> None:
    """Fields are added at the end, with a default."""
    assert state_text.decode('[[["o",7,10,20,"mutex",[0]]],[["w",10,1,5]],[],0,0,[["e",6,"released",8]]]') == State(
        (Grant("o", 7, 10, 20),), (Waiter("w", 10, 1, 5),), 0, 0, 0, (Tombstone("e", 6, "released", 8),)
    )


GRANT = '["o",7,10,20,"mutex",[0],0,"","",0,"",0,0,0]'
WAITER = '["w",10,1,5,"",0,"mutex",1,1,0,"","",0]'


@each(
    ("holders", "queue", "rest"),
    [
        (GRANT.replace("7", '"7"'), "", "7,9,0,[]"),
        (GRANT.replace("7", "7.0"), "", "7,9,0,[]"),
        (GRANT.replace("7", "NaN"), "", "7,9,0,[]"),
        (GRANT.replace("7", "true"), "", "7,9,0,[]"),
        (GRANT.replace("7", "9" * 400), "", "7,9,0,[]"),
        (GRANT.replace("[0]", '["0"]'), "", "7,9,0,[]"),
        (GRANT.replace("[0]", "0"), "", "7,9,0,[]"),
        (GRANT.replace("mutex", "nothing"), "", "7,9,0,[]"),
        (GRANT.replace('"o"', "[1]"), "", "7,9,0,[]"),
        (GRANT.replace("]", ',"more"]', 1), "", "7,9,0,[]"),
        ("", WAITER.replace("5", "null"), "7,9,0,[]"),
        ("", WAITER.replace("mutex", "nothing"), "7,9,0,[]"),
        ("", "", '"7",9,0,[]'),
        ("", "", "7,9,1e99,[]"),
        ("", "", '7,9,0,[["e",6,"released","8",""]]'),
        ("", "", '7,9,0,[],[[5,"evicted","host:1","7","why"]]'),
        ("", "", '7,9,0,[],[],[["mutex",["0"],5]]'),
        ("", "", '7,9,0,[],[],[],"3"'),
        ("", "", '7,9,0,[],[],[],0,0,[["w","address","5"]]'),
        ("", "[" * 100_000, "7,9,0,[]"),
    ],
)
def test_a_field_of_another_type_is_recognised(holders: str, queue: str, rest: str) -> None:
    """Not only the shape is looked at: the ledger would meet it later, in the middle of a turn."""
    with pytest.raises(state_text.UNREADABLE):
        state_text.decode(f"[[{holders}],[{queue}],{rest}]")


@each("text", ["", "[]", "{}", "nonsense", "[1,2,3,4,5,6]", "[[[]],[],[],0,0,[]]", "null"])
def test_other_text_is_recognised(text: str) -> None:
    """A damaged row raises one of the errors that the store knows."""
    with pytest.raises(state_text.UNREADABLE):
        state_text.decode(text)


def test_nothing_is_short() -> None:
    """The empty state is a few bytes."""
    assert state_text.encode(ledger.EMPTY) == "[[],[],0,0,0,[]]"


@each("after", ["]", " ", "[]", "x"])
def test_a_text_with_something_after_it_is_no_state(after: str) -> None:
    """A row that was damaged at its end is not taken for whole."""
    with pytest.raises(ValueError, match="more than one"):
        state_text.decode(state_text.encode(State()) + after)
