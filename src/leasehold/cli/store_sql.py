"""``leasehold store sql``: the DDL of a store on a database, and the rights that a role needs there."""

from __future__ import annotations

import json

import click

from leasehold._sql.names import column, plain_table
from leasehold.errors import InvalidRequest, Unsupported
from leasehold.patterns.results.statements import ddl as result_tables
from leasehold.stores.postgresql import schema

EXAMPLE = "app"


def ddl(dialect: str, table: str | None, unlogged: bool, results: bool, role: str | None, as_json: bool) -> None:
    """Print it, as SQL or as JSON with the statements in lists. The SQL is one transaction: a table of that name that
    exists already keeps its comment, and so does not become ours."""
    try:
        name = plain_table(schema.TABLE if table is None else table)
        who = EXAMPLE if role is None else column(role, "role")
        beside = schema.results_table(name) if results else None
    except (InvalidRequest, Unsupported) as mistake:
        raise click.UsageError(str(mistake)) from mistake
    statements, grants = schema.ddl(name, unlogged), schema.grants(name, who)
    if beside is not None:
        statements += [one.strip().rstrip(";") for one in result_tables(dialect, beside).split(";\n")]
        grants += schema.grants(beside, who)[-1:]
    if as_json:
        print(json.dumps({"dialect": dialect, "statements": statements, "grants": grants}))
        return
    text = ["BEGIN;", *[f"{one};" for one in statements]]
    if role is None:
        text += ["COMMIT;", f"-- What a role needs, here {EXAMPLE}:", *[f"-- {one};" for one in grants]]
    else:
        text += [*[f"{one};" for one in grants], "COMMIT;"]
    print("\n".join(text))
