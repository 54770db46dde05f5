"""Values and errors of users as text: what comes back, and what is refused."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest

from leasehold.errors import InvalidRequest
from leasehold.patterns import RemoteError
from leasehold.patterns.errors import error_record, remote_error
from leasehold.patterns.serialization import MARK, check_serializer, document, dump_value, load_value, read_document
from leasehold.patterns.values import Codec
from tests.support.tables import each


class Wire:
    """A serializer of bytes."""

    dumps = staticmethod(lambda value: bytearray(json.dumps(value).encode()))
    loads = staticmethod(json.loads)


@each("serializer", [Codec(), json, pickle, Wire(), Wire], ids=["codec", "json", "pickle", "an object", "a class"])
@each("value", [None, 0, 'ü€\0\n"', [1, {"a": None}], 1.5, "x" * 10_000], ids=lambda one: str(one)[:9])
def test_values_come_back(serializer: Any, value: object) -> None:
    """Whatever the serializer makes of it stands in a sheet of JSON, and comes back."""
    text = document("test/1", {"more": 1}, dump_value(check_serializer(serializer), value, "it")[0])
    fields = read_document("test/1", text, "page:a")
    assert fields["more"] == 1 and "\0" not in text
    assert load_value(serializer, fields["value"]) == value


def test_how_it_looks() -> None:
    """JSON of ours stands there as it is, text as text and bytes as base64."""
    assert (
        document("test/1", {}, dump_value(Codec(), {"ü": 1}, "it")[0])
        == '{"leasehold":"test/1","value":{"json":{"ü":1}}}'
    )
    assert dump_value(Codec(), (1, '"$":'), "it")[0] == '{"tagged":{"$":["tuple",[1,"\\"$\\":"]]}}'
    assert dump_value(Codec(), [1, '"$":'], "it")[0] == '{"json":[1,"\\"$\\":"]}'
    assert dump_value(json, (1,), "it") == ('{"text":"[1]"}', [1])
    written = json.loads(dump_value(pickle, 1, "it")[0])
    assert base64.b64decode(written["base64"]) == pickle.dumps(1)


def test_with_another_serializer() -> None:
    """What another one wrote is refused, in place of a guess."""
    for one, other in ((Codec(), pickle), (pickle, Codec()), (pickle, json), (pickle, Wire())):
        with pytest.raises(InvalidRequest, match=r"another serializer or annotation, or by another version"):
            load_value(other, json.loads(dump_value(one, [1], "it")[0]))


def test_errors_do_not_show_values() -> None:
    """A value that cannot be written may be a secret: its type is named, and no more."""

    class Talks:
        def dumps(self, value: Any) -> str:
            raise ValueError(f"cannot write {value}")

        loads = dumps

    with pytest.raises(InvalidRequest) as caught:
        dump_value(Talks(), "secret", "the result of page()")
    assert "secret" not in str(caught.value)
    assert "the result of page() is of type str and cannot be serialized with Talks (ValueError)" in str(caught.value)


@each("text", ["", "{}", "[]", "7", "no json", '{"leasehold":"once/1"}', '{"leasehold":{}}', "[" * 5000])
def test_what_others_wrote(text: str) -> None:
    """A sheet of another pattern, or of nobody, is refused with the name of the resource."""
    with pytest.raises(InvalidRequest, match="name is used twice") as caught:
        read_document("flight/1", text, "page:a")
    assert caught.value.resource == "page:a"
    assert str(caught.value).endswith("(this one is page)")
    assert MARK == "leasehold"


class OddError(OSError):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError


def test_errors_that_are_told() -> None:
    """Class, message and family come through; nothing is pickled, and nothing in them can break the telling."""
    error = remote_error(json.loads(json.dumps(error_record(KeyError("gone")))), "page:a", 7)
    assert (error.kind, error.message, error.resource, error.fence) == ("builtins.KeyError", "'gone'", "page:a", 7)
    assert str(error) == "builtins.KeyError: 'gone'"
    assert error.was(KeyError) and error.was(LookupError) and error.was(Exception) and not error.was(OSError)
    odd = remote_error(error_record(OddError()))
    assert odd.was(OSError) and odd.message == "(its message cannot be read)"
    assert len(error_record(ValueError("x" * 100_000))["message"]) == 10_000
    assert error_record(ValueError("\ud800"))["message"].encode() == b"\\ud800"
    assert error_record(error) == error_record(KeyError("gone"))  # passed on as what it was
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert isinstance(again, RemoteError) and again.kinds == error.kinds and str(again) == str(error)
