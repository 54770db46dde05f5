"""Names of resources: the frozen table, what is refused, and that no two resources share a name."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.names import MAX_NAME_BYTES, check_id_key, check_namespace, make_name
from leasehold.errors import InvalidRequest
from tests.support.tables import each

# Keys in stores, rows of guards and other people's programs depend on these: a row is added, never changed.
FROZEN: list[tuple[str, str, tuple[object, ...], str]] = [
    ("", "report", (), "report"),
    ("", "report", (42,), "report:42"),
    ("", "report", ("42",), "report:42"),
    ("", "report", (0,), "report:0"),
    ("", "report", (-7,), "report:-7"),
    ("", "report", (18446744073709551616,), "report:18446744073709551616"),
    ("", "report", (-1180591620717411303424,), "report:-1180591620717411303424"),
    ("", "report", ("a", "b"), "report:a:b"),
    ("", "report", (1, 2, 3), "report:1:2:3"),
    ("acme", "report", (42,), "acme/report:42"),
    ("acme", "report", (), "acme/report"),
    ("a/b", "report", ("c",), "a%2Fb/report:c"),
    ("a:b", "report", (), "a%3Ab/report"),
    ("ac me", "x", ("y",), "ac me/x:y"),
    ("Ünï", "x", ("y",), "Ünï/x:y"),
    ("", "report", (UUID("12345678-1234-5678-1234-567812345678"),), "report:12345678-1234-5678-1234-567812345678"),
    ("", "report", (UUID("00000000-0000-0000-0000-000000000000"),), "report:00000000-0000-0000-0000-000000000000"),
    ("", "report", (date(2026, 11, 16),), "report:2026-11-16"),
    ("", "report", (date(1, 2, 3),), "report:0001-02-03"),
    ("", "report", ("ABC",), "report:ABC"),
    ("", "Report", ("abc",), "Report:abc"),
    ("", "a:b", ("c",), "a%3Ab:c"),
    ("", "a", ("b:c",), "a:b%3Ac"),
    ("", "a/b", ("c",), "a%2Fb:c"),
    ("", "a", ("b/c",), "a:b%2Fc"),
    ("", "a", ("{b}",), "a:%7Bb%7D"),
    ("", "{a}", ("b",), "%7Ba%7D:b"),
    ("", "a", ("100%",), "a:100%25"),
    ("", "a", ("%3A",), "a:%253A"),
    ("", "a", ("%",), "a:%25"),
    ("", "a", ("%%25",), "a:%25%2525"),
    ("", "a", ("\x00",), "a:%00"),
    ("", "a", ("x\ny",), "a:x%0Ay"),
    ("", "a", ("x\r\ny",), "a:x%0D%0Ay"),
    ("", "a", ("\t",), "a:%09"),
    ("", "a", ("\x1b[31m",), "a:%1B[31m"),
    ("", "a", ("\x7f",), "a:%7F"),
    ("", "a", ("\x1f",), "a:%1F"),
    ("", "a", (" ",), "a: "),
    ("", "a", (" x ",), "a: x "),
    ("", "a", ("\x80",), "a:\x80"),
    ("", "a", ("\xa0",), "a:\xa0"),
    ("", "a", ("\u2028",), "a:\u2028"),
    ("", "a", ("é",), "a:é"),
    ("", "a", ("e\u0301",), "a:e\u0301"),
    ("", "straße", ("STRASSE",), "straße:STRASSE"),
    ("", "a", ("日本語",), "a:日本語"),
    ("", "a", ("🔒",), "a:🔒"),
    ("", "a", ("\U0001f469\u200d\U0001f4bb",), "a:\U0001f469\u200d\U0001f4bb"),
    ("", "a", ("ﬁ",), "a:ﬁ"),
    ("", "a", ("\ufeff",), "a:\ufeff"),
    ("", "a", ("\U0010ffff",), "a:\U0010ffff"),
    ("", "a", ("*?[x]",), "a:*?[x]"),
    ("", "a", ("x\\y",), "a:x\\y"),
    ("", "a", ("'\"",), "a:'\""),
    ("", "a", ("#;,=&",), "a:#;,=&"),
    ("", "a", ("../..",), "a:..%2F.."),
    ("", "a.b-c_d", ("e.f-g_h",), "a.b-c_d:e.f-g_h"),
    ("", "a", ("..",), "a:.."),
]

KEY = b"a key of tests"
HIDDEN: list[tuple[str, str, tuple[object, ...], str]] = [
    ("", "report", (), "report"),
    ("", "report", (42,), "report:3195842409e0795f10e66f17a9548c22"),
    ("", "report", ("42",), "report:3195842409e0795f10e66f17a9548c22"),
    ("", "report", ("4", "2"), "report:6946ae6d1df38c8476624326ff03554b"),
    ("acme", "report", (42,), "acme/report:f3667b3d94afebb3382343db0666290a"),
    ("", "invoice", (42,), "invoice:396d1b5dacba7f83b73ed342ba417323"),
    ("", "a", ("🔒",), "a:99fe05ed898484202f9e01eda6779826"),
]


def name(namespace: str, kind: object, *ids: object, key: bytes = b"") -> str:
    """The text form, from parts as people give them."""
    return make_name(check_namespace(namespace), kind, ids, key).text


@each(("namespace", "kind", "ids", "text"), FROZEN)
def test_the_text_of_a_name_never_changes(namespace: str, kind: str, ids: tuple[object, ...], text: str) -> None:
    """The same parts have the same key in every release."""
    assert name(namespace, kind, *ids) == text


@each(("namespace", "kind", "ids", "text"), HIDDEN)
def test_the_text_of_a_hidden_name_never_changes(namespace: str, kind: str, ids: tuple[object, ...], text: str) -> None:
    """128 bits of keyed BLAKE2b in place of the ids; namespace and kind stay readable."""
    assert name(namespace, kind, *ids, key=KEY) == text


def test_the_table_is_long_enough_to_notice() -> None:
    """At least forty rows, each of them different input."""
    assert len({repr(row[:3]) for row in FROZEN}) == len(FROZEN) >= 40


def test_another_key_hides_differently() -> None:
    """The key matters, also one of the greatest length."""
    assert name("", "report", 42, key=b"k" * 64) == "report:fe39bae593d8a6f7bb45dbafd1d0a52e"
    assert name("", "report", 42, key=KEY) != name("", "report", 42, key=b"another")


def test_a_number_and_its_digits_are_one_resource() -> None:
    """A worker that read the id from a URL and one that read it from a table lock the same thing."""
    assert name("", "report", 42) == name("", "report", "42")
    assert name("", "report", UUID(int=7)) == name("", "report", str(UUID(int=7)))
    assert name("", "report", date(2026, 11, 16), key=KEY) == name("", "report", "2026-11-16", key=KEY)


def test_members_of_enumerations_are_what_they_hold() -> None:
    """Not what their class prints."""

    class Site(enum.StrEnum):
        BERLIN = "berlin"

    class Step(enum.IntEnum):
        FIRST = 1

    assert name("", Site.BERLIN, Site.BERLIN, Step.FIRST) == "berlin:berlin:1"


def test_the_hash_for_logs() -> None:
    """Twelve hex digits, keyed where there is a key, the same for every id of that name; none without ids."""
    assert make_name("", "report", (42,)).id_hash == "2cfe7600489b"
    assert make_name("acme", "report", (42,)).id_hash == "fc3266f19a22"
    assert make_name("", "report", (42,), KEY).id_hash == "3195842409e0"
    assert make_name("", "report", ()).id_hash == ""
    assert make_name("acme", "report", ()).id_hash == ""
    assert make_name("", "report", (), KEY).id_hash == ""


@each("ids", [("report",), ("x", "report"), ("xreport",)])
def test_an_id_that_ends_like_the_kind_is_hashed_as_well(ids: tuple[str, ...]) -> None:
    """Whether there are ids is not guessed from how the text ends."""
    assert len(make_name("", "report", ids).id_hash) == 12


def test_the_kind_is_kept_for_labels() -> None:
    """Without namespace and ids."""
    assert make_name("acme", "report", (42,)).kind == "report"


# ---------------------------------------------------------------- refused


MOMENT = datetime(2026, 11, 16, tzinfo=UTC)


@each("value", [True, False, 1.0, float("nan"), None, b"42", bytearray(b"1"), (), [1], object(), MOMENT, MOMENT.time()])
def test_an_id_is_text_a_number_a_uuid_or_a_date(value: object) -> None:
    """Anything else would make two resources look alike, or one look like two."""
    with pytest.raises(InvalidRequest, match=type(value).__name__):
        make_name("", "report", (value,))


@each("value", [True, 1, 1.0, None, b"report", UUID(int=1), date(2026, 11, 16), ()])
def test_a_kind_is_text(value: object) -> None:
    """It is a label, not an id."""
    with pytest.raises(InvalidRequest, match="kind"):
        make_name("", value, ())


@each("parts", [("",), ("report", ""), ("report", "a", "")])
def test_no_part_is_empty(parts: tuple[str, ...]) -> None:
    """An empty part is a forgotten one."""
    with pytest.raises(InvalidRequest, match="empty"):
        make_name("", parts[0], parts[1:])


@each("surrogate", ["\ud800", "x\udfff", "\udc80y"])
def test_a_lone_surrogate_is_refused(surrogate: str) -> None:
    """It cannot be written as UTF-8, in any part."""
    for parts in ((surrogate,), ("report", surrogate)):
        with pytest.raises(InvalidRequest, match="surrogate"):
            make_name("", parts[0], parts[1:])
    with pytest.raises(InvalidRequest, match="surrogate"):
        check_namespace(surrogate)


@each(("letter", "size"), [("x", 1), ("é", 2), ("語", 3), ("🔒", 4), (":", 3)])
def test_a_name_takes_at_most_512_bytes(letter: str, size: int) -> None:
    """Counted as encoded and written, namespace and kind included."""
    room = MAX_NAME_BYTES - len("acme/report:")
    assert len(name("acme", "report", letter * (room // size)).encode()) <= MAX_NAME_BYTES
    with pytest.raises(InvalidRequest, match="512"):
        name("acme", "report", letter * (room // size + 1))


def test_a_long_name_is_refused_without_showing_its_id() -> None:
    """An id may be private: the error says its size."""
    with pytest.raises(InvalidRequest) as caught:
        make_name("", "report", ("secret" * 100,))
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidRequest):
        make_name("", "k" * 600, ())


@each("digits", [600, 5_000, 50_000])
def test_a_huge_number_is_refused_as_ours(digits: int) -> None:
    """Python refuses to print an int of 5000 digits: that error does not escape bare."""
    for number in (10**digits, -(10**digits)):
        with pytest.raises(InvalidRequest):
            make_name("", "report", (number,))


# ---------------------------------------------------------------- namespace and key


@pytest.mark.parametrize("value", [None, ""])
def test_no_namespace(value: object) -> None:
    """None and empty are both none."""
    assert check_namespace(value) == ""


@each("value", [1, True, False, 0, b"acme", ["acme"], 1.5])
def test_a_namespace_is_text(value: object) -> None:
    """Also a falsy one that is not text."""
    with pytest.raises(InvalidRequest):
        check_namespace(value)


@each(
    ("value", "key"),
    [
        (None, b""),
        ("k", b"k"),
        (b"k", b"k"),
        ("é", b"\xc3\xa9"),
        ("\ud800", b"\xed\xa0\x80"),
        (b"\x00" * 64, b"\x00" * 64),
        ("x" * 64, b"x" * 64),
    ],
)
def test_a_key_is_text_or_bytes(value: object, key: bytes) -> None:
    """1 to 64 bytes, or none."""
    assert check_id_key(value) == key


@each("value", ["", b"", b"x" * 65, "é" * 33, 5, True, bytearray(b"k"), 1.5, []])
def test_a_bad_key_is_refused_without_being_shown(value: Any) -> None:
    """Too short, too long, not text: and the secret is not in the message."""
    with pytest.raises(InvalidRequest) as caught:
        check_id_key(value)
    assert "xxx" not in str(caught.value)


# ---------------------------------------------------------------- no collisions

PARTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SHARP = st.text(st.sampled_from("%{}:/ab2F35\n\x00"), min_size=1, max_size=6)  # what escaping could confuse
NAMES = st.tuples(st.one_of(st.just(""), PARTS, SHARP), PARTS | SHARP, st.lists(PARTS | SHARP, max_size=3))


@given(one=NAMES, other=NAMES)
def test_trap_37_distinct_parts_never_collide(
    one: tuple[str, str, list[str]], other: tuple[str, str, list[str]]
) -> None:
    """Two names are equal when their parts are, and never otherwise."""
    assert (name(one[0], one[1], *one[2]) == name(other[0], other[1], *other[2])) == (one == other)


@given(one=NAMES)
def test_a_name_can_be_taken_apart(one: tuple[str, str, list[str]]) -> None:
    """The separators in the text are ours alone, so the parts can be counted; nothing in it breaks a line or a tag."""
    text = name(one[0], one[1], *one[2])
    assert text.count(":") == len(one[2])
    assert text.count("/") == bool(one[0])
    assert not any(letter in "{}\x7f" or letter < " " for letter in text)


@given(ids=st.lists(PARTS | SHARP, min_size=1, max_size=3), other=st.lists(PARTS | SHARP, min_size=1, max_size=3))
def test_trap_37_hidden_names_do_not_collide(ids: list[str], other: list[str]) -> None:
    """Hashing is of the encoded text, so that ("a", "b") and ("a:b",) differ as well."""
    assert (name("", "k", *ids, key=KEY) == name("", "k", *other, key=KEY)) == (ids == other)


@given(number=st.integers())
def test_numbers_have_one_spelling(number: int) -> None:
    """The decimal one."""
    assert name("", "k", number) == f"k:{number}"
