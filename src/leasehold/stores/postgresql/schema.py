"""The table of the store: its DDL, its version, and the check that it is ours."""

from __future__ import annotations

from leasehold._core.light_typing import NamedTuple
from leasehold.errors import InvalidRequest, StoreUnavailable, Unsupported

TABLE = "leasehold_leases"
VERSION = 1
MARK = "leasehold leases, version "
OLDEST = 120000  # of the server; older ones are out of support

# Half of each page is left free, so that a new version of a row fits beside the old one and no index changes (HOT);
# hence no index but the key. In the collation C names are in the order of their bytes, as cursors of listings are.
COLUMNS = """
    name text COLLATE "C" PRIMARY KEY,
    fence bigint NOT NULL,
    owner text,
    expires bigint,
    ttl bigint,
    since bigint,
    details text,
    state text,
    listener bigint
"""


class Found(NamedTuple):
    """What the first session finds out."""

    version: int  # of the server
    server_encoding: str
    client_encoding: str
    read_only: bool
    mark: str | None  # the comment of the table; None where there is no table
    kind: str | None  # p: logged; u: unlogged
    synchronous: str  # synchronous_commit


def quoted(table: str) -> str:
    """A checked name, with or without that of a schema."""
    return ".".join([f'"{part}"' for part in table.split(".")])


def ddl(table: str, unlogged: bool = False) -> list[str]:
    """The statements that make the table."""
    kind = "UNLOGGED TABLE" if unlogged else "TABLE"
    return [
        f"CREATE {kind} IF NOT EXISTS {quoted(table)} ({COLUMNS}) WITH (fillfactor = 50)",
        f"COMMENT ON TABLE {quoted(table)} IS '{MARK}{VERSION}'",
    ]


def creation(table: str, unlogged: bool) -> str:
    """The same as one statement, safe beside another process that executes it."""
    lock = f"pg_advisory_xact_lock(hashtext('leasehold {table}'))"
    return f"DO $leasehold$ BEGIN PERFORM {lock}; {'; '.join(ddl(table, unlogged))}; END $leasehold$"


def question(table: str) -> bytes:
    """Read by ``found``."""
    return (
        "SELECT current_setting('server_version_num'), current_setting('server_encoding'), "  # noqa: S608 - a checked name
        "current_setting('client_encoding'), pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on', "
        "CASE WHEN oid IS NOT NULL THEN coalesce(obj_description(oid, 'pg_class'), '') END, relpersistence, "
        "current_setting('synchronous_commit') "
        f"FROM (SELECT 1) AS one LEFT JOIN pg_class ON oid = to_regclass('{quoted(table)}')"
    ).encode()


def found(row: tuple[str | None, ...]) -> Found:
    version, server_encoding, client_encoding, read_only, mark, kind, synchronous = row
    return Found(
        int(version or 0),
        server_encoding or "",
        client_encoding or "",
        read_only == "t",
        mark,
        kind,
        synchronous or "",
    )


def check(found: Found, server: str, table: str) -> None:
    """Raise what keeps the store from working here. Nothing was written yet."""
    if found.version < OLDEST:
        raise Unsupported(f"{server} is older than PostgreSQL 12")
    if found.server_encoding not in ("UTF8", "SQL_ASCII"):
        raise Unsupported(f"{server}: the database has the encoding {found.server_encoding}, and a lease needs UTF8")
    if found.client_encoding != "UTF8":
        raise InvalidRequest(f"connections have the encoding {found.client_encoding}: set client_encoding to UTF8")
    if found.read_only:
        raise StoreUnavailable(
            f"{server} is read-only: a standby, or a database that allows no writes. Connect to the primary "
            "(target_session_attrs=read-write)"
        )
    if found.mark is None:
        return
    if not found.mark.startswith(MARK):
        raise InvalidRequest(f"the table {table} was not made by Leasehold: name another one with ?table=")
    if found.mark != f"{MARK}{VERSION}":
        raise Unsupported(
            f"the table {table} has version {found.mark.removeprefix(MARK)[:20]!r}, and this Leasehold knows version "
            f"{VERSION}: use one Leasehold everywhere, or name another table with ?table="
        )
