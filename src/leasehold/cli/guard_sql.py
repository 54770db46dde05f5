"""``leasehold guard sql``: the DDL of the SQL guard, printed for a migration."""

from __future__ import annotations

import json

import click

from leasehold.errors import InvalidRequest
from leasehold.guards.sql import FENCE_COLUMN, OWNER_COLUMN, FenceGuard


def ddl(
    dialect: str,
    table: str | None,
    column: str | None,
    fence_column: str | None,
    owner_column: str | None,
    as_json: bool,
) -> None:
    """Print it, as SQL or as JSON with the statements in a list."""
    if column is None and (fence_column or owner_column):
        raise click.UsageError("--fence-column and --owner-column belong to --column TABLE")
    if column is not None and table is not None:
        raise click.UsageError("--table is the guard's own, --column names a table of yours: say one of them")
    guard = FenceGuard() if table is None else _guard(table)
    try:
        if column is None:
            text = guard.ddl(dialect)
        else:
            text = guard.ddl_of_columns(dialect, column, fence_column or FENCE_COLUMN, owner_column or OWNER_COLUMN)
    except InvalidRequest as mistake:
        raise click.UsageError(str(mistake)) from mistake
    statements = [one.strip() for one in text.split(";\n") if one.strip()]
    print(json.dumps({"dialect": dialect, "statements": [one.rstrip(";") for one in statements]}) if as_json else text)


def _guard(table: str) -> FenceGuard:
    try:
        return FenceGuard(table)
    except InvalidRequest as mistake:
        raise click.UsageError(str(mistake)) from mistake
