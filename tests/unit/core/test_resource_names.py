"""A resource can be named by its text form: what somebody types leads to the same name as kind and ids do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.names import make_name, parse_name, resource_names
from leasehold.errors import InvalidRequest
from tests.support.tables import each

PART = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    namespace=PART | st.just(""),
    kind=PART,
    ids=st.lists(PART | st.integers(), max_size=3),
    key=st.sampled_from([b"", b"k"]),
)
def test_every_name_can_be_typed(namespace: str, kind: str, ids: list[str | int], key: bytes) -> None:
    """The text form of any resource names that resource, in its own namespace or spelled out."""
    space = make_name("", namespace, ()).text if namespace else ""
    plain = make_name(space, kind, tuple(ids))
    wanted = make_name(space, kind, tuple(ids), key)
    typed = plain.text.removeprefix(f"{space}/") if space else plain.text
    for found in resource_names(space, typed, key), resource_names("other", plain.text, key) if space else [wanted]:
        assert (found[0].text, found[0].kind, found[0].hidden) == (wanted.text, wanted.kind, wanted.hidden)


def test_what_a_scan_shows_is_not_hidden_twice() -> None:
    """With hide_ids a scan shows hashes: such a name can be typed as well."""
    hidden = make_name("acme", "report", (42,), b"key")
    assert resource_names("acme", hidden.text, b"key")[1].text == hidden.text
    assert resource_names("", hidden.text, b"key")[1].text == hidden.text
    assert len(resource_names("acme", hidden.text)) == len(resource_names("acme", "report:42", b"key")) == 1


def test_a_name_in_the_store_is_taken_as_it_is() -> None:
    """Kind and hash are read from it; hidden ids are not hashed again for the log."""
    assert (parse_name("acme/report:42").kind, parse_name("report").kind) == ("report", "report")
    assert parse_name("acme/report:42").id_hash == make_name("acme", "report", (42,)).id_hash
    hidden = make_name("acme", "report", (42,), b"key")
    assert parse_name(hidden.text, b"key").id_hash == hidden.id_hash == hidden.text.rpartition(":")[2][:12]


@each("name", ["report:alice@example.com", "acme/report:42", "report:0123456789abcdef", "report:" + "0" * 32 + ":1"])
def test_the_beginning_of_an_id_is_no_hash(name: str) -> None:
    """A program without the key stored it as it is: with the key its log has the hash that the others have."""
    assert parse_name(name, b"key").id_hash == parse_name(name).id_hash != name.rpartition(":")[2][:12]


@each(
    "wrong", ["", ":", "report:", ":42", "/report", "acme/", "a/b/c", "report:%zz", "report:%41", "report:{42}",
              "a\x00b", "report:%", "\ud800", None, 42, b"report:42", "x" * 600],
)  # fmt: skip
def test_what_is_no_name_is_refused(wrong: object) -> None:
    """Bad input gets a clear error before anything is sent."""
    with pytest.raises(InvalidRequest):
        resource_names("", wrong)
