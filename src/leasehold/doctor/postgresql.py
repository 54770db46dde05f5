"""A database of PostgreSQL: what a crash or a failover would lose, connections, rights, and the state of the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

from leasehold.doctor.clocks import Reading, compare, read_clock
from leasehold.doctor.members import fix
from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.errors import LeaseholdError
from leasehold.stores.postgresql import schema, sessions
from leasehold.stores.postgresql.session import Broken, Refused, Request, Session

SECONDS = 5.0
FULL = 0.9  # of max_connections
DEAD_ROWS, DEAD_SHARE = 2000, 5  # dead rows: so many, and so many times the live ones
OLD_TRANSACTION = 300.0  # seconds
STANDBY_SILENT = 15.0  # seconds: a standby gives a sign of life every 10
LOST_BY_CRASH = "The last grants may be gone after a crash, and are given again while their holders work"


class Facts(NamedTuple):
    settings: dict[str, str]
    found: schema.Found
    table: str
    user: str
    superuser: bool
    connections: int
    standbys: list[tuple[str, str, str, float]]  # name, state, sync_state, seconds by which its clock seems ahead
    sees_standbys: bool
    live: int
    dead: int
    size: int
    oldest: float  # seconds of the oldest transaction that is seen
    pooled: bool
    clock: Reading


def examine(store: Any) -> list[Finding]:
    target = store._target
    give_up = time.monotonic() + SECONDS
    try:
        with closing(target.source.connect(give_up)) as session:
            facts = _facts(session, target.table, give_up)
        listening = _listening(target.listen, give_up)
    except (LeaseholdError, Refused, Broken) as error:
        return [
            problem(
                "reachable",
                f"the server cannot be examined: {error}",
                "No lease can be taken or renewed",
                fix(error, "Start it, or correct the address and the login in the URL"),
            ).at(target.source.server)
        ]
    found = [finding for one in CHECKS for finding in one(facts)]
    return [one.at(target.source.server) for one in (*found, listening, *_clocks(facts))]


# ---------------------------------------------------------------- questions


def _rows(session: Session, text: str, give_up: float) -> list[tuple[str | None, ...]]:
    (found,) = session.perform(Request((text.encode(), ())), give_up)
    return found.rows


def _facts(session: Session, table: str, give_up: float) -> Facts:
    def rows(text: str) -> list[tuple[str | None, ...]]:
        return _rows(session, text, give_up)

    settings = {str(name): value or "" for name, value in rows("SELECT name, setting FROM pg_settings")}
    (row,) = rows(schema.question(table).decode())
    ((user, superuser, sees),) = rows(
        "SELECT current_user, current_setting('is_superuser'), pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
    )
    ((connections, oldest),) = rows(
        "SELECT count(*) FILTER (WHERE backend_type = 'client backend' OR backend_type IS NULL), "
        "coalesce(extract(epoch FROM max(clock_timestamp() - xact_start) FILTER (WHERE pid <> pg_backend_pid())), 0) "
        "FROM pg_stat_activity"
    )
    standbys = rows(
        "SELECT coalesce(application_name, ''), coalesce(state, ''), coalesce(sync_state, ''), "
        "coalesce(extract(epoch FROM reply_time - clock_timestamp()), 0) FROM pg_stat_replication"
    )
    live, dead, size = _table(rows, table)
    found = schema.found(row)
    return Facts(
        settings,
        found,
        table,
        user or "",
        superuser == "on",
        int(connections or 0),
        [(name or "", state or "", sync or "", float(ahead or 0)) for name, state, sync, ahead in standbys],
        sees == "t",
        live,
        dead,
        size,
        float(oldest or 0),
        found.process != session.process,
        read_clock(lambda: float(rows("SELECT extract(epoch FROM clock_timestamp())")[0][0] or 0)),
    )


def _table(rows: Callable[[str], list[tuple[str | None, ...]]], table: str) -> tuple[int, int, int]:
    found = rows(
        "SELECT n_live_tup, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_all_tables "  # noqa: S608 - a checked name
        f"WHERE relid = to_regclass('{schema.quoted(table)}')"
    )
    live, dead, size = found[0] if found else ("0", "0", "0")
    return int(live or 0), int(dead or 0), int(size or 0)


def _listening(source: Any, give_up: float) -> Finding:
    """Whether what is notified reaches a session that listens."""
    polls = "The first waiter polls every few milliseconds; holders learn late that they were evicted"
    if source is None:
        return note("channels", "listen=no: nothing is pushed", polls, "Leave listen=no out, or name the server itself")
    with closing(source.connect(give_up)) as session:
        ((process,),) = _rows(session, "SELECT pg_backend_pid()", give_up)
        if process != str(session.process):
            return warning(
                "channels",
                "a pooler shares its sessions, so that LISTEN receives nothing",
                polls,
                "Add ?listen= with the (percent-encoded) URL of the server itself",
            )
        try:
            session.perform(Request((b"LISTEN leasehold_doctor", ())), give_up)
            session.perform(Request((b"SELECT pg_notify('leasehold_doctor', '')", ())), give_up)
        except Refused as error:  # as a standby does
            return warning("channels", f"LISTEN or NOTIFY is refused: {error}", polls, "Connect to the primary")
        heard = session.received()
    if heard:
        return ok("channels", "a notification reaches the session that listens")
    return warning("channels", "a notification does not reach the session that listens", polls, "Is it a pooler?")


# ---------------------------------------------------------------- checks


def _version(facts: Facts) -> list[Finding]:
    version = facts.settings.get("server_version", "")
    if facts.found.version < schema.OLDEST:
        return [problem("version", f"it is PostgreSQL {version}", "Leases need 12 or newer", "Upgrade it")]
    pooled = [note("pooler", "a pooler stands between", "Statements are not prepared there")] if facts.pooled else []
    return [ok("version", f"PostgreSQL {version}"), *pooled]


def _role(facts: Facts) -> list[Finding]:
    if not facts.found.read_only:
        return []
    return [
        problem(
            "role",
            "it is read-only: a standby, or a database that allows no writes",
            "No lease can be taken",
            "Name all hosts in the URL, with target_session_attrs=read-write",
        )
    ]


def _durability(facts: Facts) -> list[Finding]:
    settings, found = facts.settings, []
    if settings.get("fsync") == "off":
        found.append(
            problem(
                "persistence",
                "fsync is off",
                "A power cut can damage the whole database",
                "Set fsync = on",
            )
        )
    if settings.get("full_page_writes") == "off":
        found.append(
            warning(
                "persistence",
                "full_page_writes is off",
                "A power cut can leave pages half written",
                "Set full_page_writes = on, unless the file system writes whole pages",
            )
        )
    if facts.found.kind == schema.UNLOGGED:
        found.append(
            warning(
                "persistence",
                "the table is unlogged: a crash empties it, and no standby has it",
                LOST_BY_CRASH,
                f"ALTER TABLE {facts.table} SET LOGGED",
            )
        )
    return [*found, _commits(facts)]


def _commits(facts: Facts) -> Finding:
    how = facts.settings.get("synchronous_commit", "")
    if how == "off":
        return warning(
            "persistence",
            "synchronous_commit is off: a kill -9 of the server loses up to about 0.6 s",
            LOST_BY_CRASH,
            "Set synchronous_commit = on for this role: ALTER ROLE ... SET",
        )
    return ok("persistence", f"synchronous_commit is {how}: a kill -9 of the server loses nothing that was answered")


def _standbys(facts: Facts) -> list[Finding]:
    if not facts.standbys:
        why = "" if facts.sees_standbys or facts.superuser else " (their details need the role pg_monitor)"
        return [note("replicas", f"no standby is connected{why}", "Nothing can be leased while the server is down")]
    found = [
        _standby(*one[:3])
        if one[1]
        else unseen(
            "replicas",
            f"the state of standby {one[0]}",
            "Its details need the role pg_monitor",
            f"GRANT pg_monitor TO {facts.user}",
        )
        for one in facts.standbys
    ]
    names = facts.settings.get("synchronous_standby_names", "")
    if not names or facts.settings.get("synchronous_commit") in schema.NOT_WAITING:
        found.append(
            warning(
                "replicas",
                "no commit waits for a standby",
                "A standby that is promoted may lack the last grants, and they are given again",
                "Set synchronous_standby_names, and synchronous_commit = on",
            )
        )
    return found


def _standby(name: str, state: str, sync: str) -> Finding:
    text = f"standby {name} is {state}, {sync}"
    if state == "streaming":
        return ok("replicas", text)
    return warning("replicas", text, "If it is promoted now, it lacks the last grants", "Look into its log")


def _connections(facts: Facts) -> list[Finding]:
    most = int(facts.settings.get("max_connections", 0)) - int(facts.settings.get("superuser_reserved_connections", 0))
    text = f"{facts.connections} of {most} connections are open (max_connections)"
    if facts.connections <= FULL * most:
        return [ok("connections", f"{text}; a process uses up to {sessions.MOST} and one to listen")]
    return [
        warning(
            "connections",
            text,
            f"A process uses up to {sessions.MOST}, and one to listen; when none is left, claims and renewals fail",
            "Raise max_connections, lower ?max_connections= of the URL, or use a pooler with ?listen=",
        )
    ]


def _bloat(facts: Facts) -> list[Finding]:
    if facts.found.mark is None:
        return [note("bloat", "the table is not there yet: the first lease makes it")]
    found = []
    text = f"the table has {facts.live} rows, {facts.dead} dead ones and {facts.size >> 10} KiB"
    if facts.dead > DEAD_ROWS and facts.dead > DEAD_SHARE * facts.live:
        found.append(
            warning(
                "bloat",
                text,
                "Every claim reads past them",
                f"VACUUM {facts.table}; and end what keeps them: old transactions, replication slots",
            )
        )
    else:
        found.append(ok("bloat", text))
    if facts.settings.get("autovacuum") == "off":
        found.append(
            warning("bloat", "autovacuum is off", "Dead rows of leases are never removed", "Set autovacuum = on")
        )
    if facts.oldest > OLD_TRANSACTION:
        found.append(
            warning(
                "bloat",
                f"a transaction has been open for {facts.oldest:.0f} s",
                "Dead rows are kept as long as it may see them",
                "End it: pg_stat_activity shows it",
            )
        )
    return found


def _isolation(facts: Facts) -> list[Finding]:
    level = facts.settings.get("default_transaction_isolation", "read committed")
    if level == "read committed":
        return []
    return [note("isolation", f"default_transaction_isolation is {level}", "Contended claims are repeated more often")]


def _permissions(facts: Facts) -> list[Finding]:
    lines = "; ".join([*schema.ddl(facts.table), *schema.grants(facts.table, "app")])
    grants = "; ".join(schema.grants(facts.table, facts.user))
    if facts.found.missing:
        return [
            problem(
                "permissions",
                f"the role {facts.user} lacks {facts.found.missing} on {facts.table}",
                "Claims, renewals or releases fail",
                grants,
            )
        ]
    if facts.superuser:
        return [
            note(
                "permissions",
                f"{facts.user} is a superuser",
                "The fewest rights are enough: somebody else makes "
                "the table once, and the role app uses it with ?create=no",
                _one_line(lines),
            )
        ]
    return [ok("permissions", f"the role {facts.user} has the rights that it needs", "", grants)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _clocks(facts: Facts) -> list[Finding]:
    found = compare({"the server": facts.clock}, "")
    for name, _, _, ahead in facts.standbys:
        if ahead > 1 or ahead < -STANDBY_SILENT:
            way = "ahead" if ahead > 0 else "behind, or it is silent"
            found.append(
                warning(
                    "clock",
                    f"the clock of standby {name} is {abs(ahead):.0f} s {way}",
                    "After a promotion fences go on by its clock, and guards refuse lower ones",
                    "Run chrony or ntpd on every host, and never step a clock",
                )
            )
    return found


CHECKS = (_version, _role, _durability, _standbys, _connections, _bloat, _isolation, _permissions)
