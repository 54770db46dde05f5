"""Requests as transactions in JSON, and which of them are sent together."""

from __future__ import annotations

import base64
import json
from typing import Any

from leasehold.stores.etcd.keys import Keys, decoded, encoded
from leasehold.stores.etcd.transactions import MOST_NESTED, MOST_OPS, MOST_PARTS, Transactions, together
from leasehold.stores.record.requests import Change, Join, List, Look, Part, Place, Record, Request, Tell
from tests.support.tables import each

LEASE = 77
transactions = Transactions(Keys("app"))


def written(*requests: Request) -> Any:
    """The JSON, with keys and values in clear."""

    def clear(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: clear(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [clear(one) for one in value]
        return base64.b64decode(value).decode() if name in ("key", "range_end", "value") else value

    return clear(json.loads(transactions.write(requests, LEASE)))


def test_a_claim() -> None:
    """It is one transaction: the revision, nobody waits, and the record."""
    read = [
        {"request_range": {"key": "app/r/a"}},
        {
            "request_range": {
                "key": "app/w/a//",
                "range_end": "app/w/a/0",
                "sort_order": "ASCEND",
                "sort_target": "CREATE",
                "keys_only": True,
            }
        },
    ]
    assert written(Change((Part("a", 5, "text", nobody_waits=True),))) == {
        "compare": [
            {"key": "app/r/a", "target": "MOD", "mod_revision": "5"},
            {"key": "app/w/a//", "range_end": "app/w/a/0"},
        ],
        "success": [{"request_put": {"key": "app/r/a", "value": "text"}}],
        "failure": read,
    }


@each("nobody_waits", [True, False])
def test_a_change_that_reads_nothing(nobody_waits: bool) -> None:
    """It is the same, but for what is read when it is refused."""
    part = Part("a", 5, "text", nobody_waits)
    usual = json.loads(transactions.write((Change((part,)),), LEASE))
    assert usual.pop("failure") and json.loads(transactions.put(part)) == usual


def test_a_take() -> None:
    """The place is there and no other was made before it; it is removed."""
    place = Place("me", 9, "app/w/a//me", True)
    found = written(Change((Part("a", 5, "text", first=place),)))
    assert found["compare"][1:] == [
        {"key": "app/w/a//me", "target": "CREATE", "create_revision": "9"},
        {"key": "app/w/a//", "range_end": "app/w/a/0", "target": "CREATE", "result": "GREATER", "create_revision": "8"},
    ]
    assert found["success"][1] == {"request_delete_range": {"key": "app/w/a//me"}}


def test_a_join() -> None:
    """There is no place of this owner yet; it is made with our lease, and all are read."""
    found = written(Change((Part("space/a", 5, join=Join("me", "hello")),)))
    assert found["compare"][1:] == [{"key": "app/w/space/a//me"}, {"key": "app/g/space/a//me"}]
    assert found["success"][0] == {"request_put": {"key": "app/w/space/a//me", "value": "hello", "lease": "77"}}
    assert found["success"][1:] == found["failure"]


def test_a_hint() -> None:
    """It is written where somebody listens, and stays with the lease of that one."""
    assert written(Tell("me", "hello")) == {
        "compare": [{"key": "app/n/me", "target": "CREATE", "result": "GREATER", "create_revision": "0"}],
        "success": [{"request_put": {"key": "app/n/me", "value": "hello", "ignore_lease": True}}],
    }


def test_zero_and_false_are_absent() -> None:
    """A refusal without a record has neither ``succeeded`` nor ``kvs``."""
    answer = {"header": {"revision": "3"}, "responses": [{"response_range": {"header": {}}}] * 2}
    [outcome] = transactions.read([Change((Part("a", 1, "x"),))], answer, LEASE)
    assert not outcome.done and outcome.records == (Record("a"),)


@each("lease, ours", [("77", True), ("78", False), (None, False)])
def test_whose_a_place_is(lease: str | None, ours: bool) -> None:
    """It goes by the lease that made it, never by its name."""
    row = {"key": encoded("app/w/a//me"), "create_revision": "4", **({"lease": lease} if lease else {})}
    answer = {
        "header": {"revision": "9"},
        "succeeded": True,
        "responses": [{"response_range": {}}, {"response_range": {"kvs": [row]}}],
    }
    [sight] = transactions.read([Look(("a",))], answer, LEASE)
    assert sight.records[0].places == (Place("me", 4, "app/w/a//me", ours),)
    [sight] = transactions.read([Look(("a",))], answer, 0)  # without a lease nothing is ours
    assert not sight.records[0].places[0].ours


def depth(transaction: dict[str, Any]) -> int:
    """How many operations etcd counts."""
    widest = max(len(transaction.get(part, ())) for part in ("compare", "success", "failure"))
    nested = [
        depth(op["request_txn"])
        for part in ("success", "failure")
        for op in transaction.get(part, ())
        if "request_txn" in op
    ]
    return widest + max(nested, default=0)


def test_no_transaction_is_too_wide() -> None:
    """etcd counts the operations of a transaction together with those of the widest one within."""
    place = Place("me", 9, "app/w/a//me", True)
    changes = [Change((Part(f"k:{number}", 0, "x", nobody_waits=True, first=place),)) for number in range(200)]
    pairs = [Change(tuple(Part(f"p:{number}:{one}", 0, "x") for one in range(15))) for number in range(20)]
    wide = Change(tuple(Part(f"w:{number}", 0, "x", nobody_waits=True) for number in range(MOST_PARTS)))
    looks = [Look(tuple(f"l:{number}:{one}" for one in range(number))) for number in range(1, 60)]
    requests: list[Request] = [*changes, *pairs, wide, *looks, List("", 5), Tell("x", "y")]
    groups = together(requests)
    assert [number for group in groups for number in group] == list(range(len(requests)))
    for group in groups:
        assert len(group) <= MOST_NESTED
        assert depth(json.loads(transactions.write([requests[number] for number in group], LEASE))) <= MOST_OPS


def test_no_transaction_is_too_long() -> None:
    """etcd refuses what takes more than 1.5 MB."""
    requests = [Change((Part(f"k:{number}", 0, "x" * 100_000),)) for number in range(50)]
    for group in together(requests):
        assert len(transactions.write([requests[number] for number in group], LEASE)) < 1_500_000


def test_keys_are_text() -> None:
    """What is no UTF-8 is shown as well as it can be."""
    assert decoded(encoded("é ☃")) == "é ☃"
    assert decoded("/w==") == "\ufffd"
