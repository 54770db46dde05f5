"""What a store on PostgreSQL says about a server or a table that it cannot work with; without a server."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold import InvalidRequest, LeaseholdError, StoreUnavailable, Unsupported
from leasehold.stores.postgresql.schema import MARK, RIGHTS, VERSION, Found, check, ddl, grants, question
from tests.support.tables import each

FINE: dict[str, Any] = {
    **dict.fromkeys(Found._fields),
    "version": 150000,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "read_only": False,
    "mark": f"{MARK}{VERSION}",
    "kind": "p",
    "synchronous": "on",
    "missing": "",
}


@each("change", [{}, {"mark": None, "kind": None}, {"server_encoding": "SQL_ASCII"}, {"version": 120000}])
def test_nothing_is_wrong(change: dict[str, Any]) -> None:
    """A table of ours, or none."""
    check(Found(**{**FINE, **change}), "PostgreSQL at host:5432", "leases")


@each(
    "change, kind, message",
    [
        ({"version": 110022}, Unsupported, "PostgreSQL at host:5432 is older than PostgreSQL 12"),
        ({"server_encoding": "LATIN1"}, Unsupported, "the database has the encoding LATIN1"),
        ({"client_encoding": "LATIN1"}, InvalidRequest, "set client_encoding to UTF8"),
        ({"read_only": True}, StoreUnavailable, "is read-only: a standby, or a database that allows no writes"),
        ({"mark": ""}, InvalidRequest, "the table leases was not made by Leasehold: name another one with ?table="),
        ({"mark": "customers"}, InvalidRequest, "was not made by Leasehold"),
        ({"mark": f"{MARK}2"}, Unsupported, "has version '2', and this Leasehold knows version 1"),
        ({"missing": "INSERT, DELETE"}, StoreUnavailable, "lacks INSERT, DELETE on the table leases"),
    ],
)
def test_one_sentence(change: dict[str, Any], kind: type[LeaseholdError], message: str) -> None:
    """It says what is wrong, and what to do about it."""
    with pytest.raises(kind) as refused:
        check(Found(**{**FINE, **change}), "PostgreSQL at host:5432", "leases")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_rights_are_asked_for_and_granted_alike() -> None:
    """What is granted is what is looked for."""
    asked = question("ops.leases").decode()
    assert all(f"has_table_privilege(oid, '{right}')" in asked for right in RIGHTS)
    assert grants("ops.leases", "app") == [
        'GRANT USAGE ON SCHEMA "ops" TO "app"',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON "ops"."leases" TO "app"',
    ]
    assert ddl("ops.leases", unlogged=True)[0].startswith('CREATE UNLOGGED TABLE "ops"."leases" (')
