"""One server of Redis or Valkey: its version, its scripts, connections and rights; ``redis_data`` is about its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leasehold.doctor import rights
from leasehold.doctor.clocks import Reading, compare
from leasehold.doctor.members import Away, fix, login_refused, together
from leasehold.doctor.nodes import INFO_HIDDEN, SETTINGS_HIDDEN, Facts, Server, clock_of, facts
from leasehold.doctor.redis_data import check_eviction, check_persistence, check_replicas, replica_targets
from leasehold.doctor.report import Finding, length, note, ok, problem, unseen, warning
from leasehold.stores.redis import protocol
from leasehold.stores.redis.handshake import OLDEST
from leasehold.stores.redis.target import Target

FULL = 0.9  # of maxclients
SLOW_SCRIPT = 0.1  # seconds: all other clients wait meanwhile
READING_ALONE = (7,)  # the first version whose ACLs can allow keys to be read, and not written
NO_PUSHES = "Nothing is pushed: the first waiter polls every 30 ms, and a holder learns late that it was evicted"
BUSY_AFTER = 5000  # ms, Redis's own default
PROMOTED = (
    "A replica that is promoted mints fences by its own clock: if it is behind by more than the outage lasted, guards "
    "refuse the new holders until it has caught up"
)


def examine(target: Target, resource: str) -> list[Finding]:
    """A store on one server. ``resource``: that of the trial, as the keys have it."""
    try:
        found = facts(target, resource)
    except Away as error:
        return [away(str(target), error)]
    server = Server(found, False, rights.redis_line())
    return [*check(server), *check_clocks([server])]


def away(place: str, error: Away, what: str = "the server") -> Finding:
    how = "refuses the login" if login_refused(error) else "cannot be reached"
    return problem(
        "reachable",
        f"{what} {how}: {error}",
        "No lease can be taken, renewed or given back there",
        fix(error, "Start it, or correct the address in the URL"),
    ).at(place)


def check(server: Server) -> list[Finding]:
    """All but the clocks, which are compared with those of others."""
    return [finding.at(server.facts.place) for one in CHECKS for finding in one(server)]


def check_clocks(servers: Sequence[Server]) -> list[Finding]:
    """Those of the servers, and of their replicas where these can be reached from here."""
    readings: dict[str, Reading] = {}
    hidden = []
    for server in servers:
        if server.facts.clock is not None:
            readings[server.facts.place] = server.facts.clock
        else:
            hidden.append(server.facts.place)
    replicas = [target for server in servers for target in replica_targets(server.facts)]
    for target, reading in zip(replicas, together(replicas, clock_of), strict=True):
        if isinstance(reading, Reading):
            readings[str(target)] = reading
        else:
            hidden.append(str(target))
    found = compare(readings, PROMOTED)
    if hidden:
        found.append(
            unseen(
                "clock",
                f"the clock of {', '.join(hidden)}",
                "It cannot be reached from here with this login, or TIME is refused to it: allow +time",
            )
        )
    return found


# ---------------------------------------------------------------- version, role


def _version(server: Server) -> list[Finding]:
    info = server.facts.info
    if info is None or "redis_version" not in info:
        return [unseen("version", "the version", INFO_HIDDEN, server.rights)]
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    if version_of(info) < OLDEST:
        return [problem("version", f"it is {name} {version}", "Leases need 6.2 or newer", "Upgrade it")]
    return [ok("version", f"{name} {version}, up for {length(server.facts.number('uptime_in_seconds') or 0)}")]


def version_of(info: Mapping[str, str]) -> tuple[int, ...]:
    """The first two numbers, as Redis counts; as new as can be where it is hidden."""
    if "redis_version" not in info:
        return (99,)
    return tuple(int(part) for part in info["redis_version"].split(".")[:2] if part.isdigit())


def _role(server: Server) -> list[Finding]:
    info = server.facts.info or {}
    if info.get("role") != "slave":
        return []
    return [
        problem(
            "role",
            f"it is a replica of {info.get('master_host')}:{info.get('master_port')}",
            "A replica takes no writes, so no lease can be taken there",
            "Connect to the primary, or name the Sentinels (redis+sentinel://) so that it is found after each failover",
        )
    ]


# ---------------------------------------------------------------- scripts, connections, rights


def _scripts(server: Server) -> list[Finding]:
    found = server.facts
    return [*_slow(found), *_threshold(found.setting("busy-reply-threshold", "lua-time-limit"))]


def _slow(found: Facts) -> list[Finding]:
    if found.slow is None:
        return [unseen("scripts", "slow scripts", "SLOWLOG is refused to this user")]
    runs = [entry for entry in found.slow if _is_script(entry)]
    if not runs:
        return [ok("scripts", "no slow script is in the slow log")]
    longest = max(int(entry[2]) for entry in runs) / 1e6
    ours = sum(_is_ours(entry) for entry in runs)
    text = (
        f"{len(runs)} slow scripts are in the slow log, the slowest took {longest * 1000:.0f} ms; {ours} of Leasehold"
    )
    if longest < SLOW_SCRIPT:
        return [note("scripts", text)]
    return [
        warning(
            "scripts",
            text,
            "Nothing else is answered while a script runs, and renewals come late",
            "SLOWLOG GET shows them: shorten the scripts, or keep leases on another server",
        )
    ]


def _is_script(entry: Any) -> bool:
    words = entry[3]
    return bool(words) and bytes(words[0]).upper() in (b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO", b"FCALL")


OURS = frozenset(script.sha.encode() for script in protocol.ONE_BY_ONE)


def _is_ours(entry: Any) -> bool:
    return len(entry[3]) > 1 and bytes(entry[3][1]) in OURS


def _threshold(text: str | None) -> list[Finding]:
    if text is None:
        return [unseen("busy-reply-threshold", "busy-reply-threshold", SETTINGS_HIDDEN)]
    if 0 < int(text) <= BUSY_AFTER:
        return [ok("busy-reply-threshold", f"busy-reply-threshold is {text} ms")]
    after = "never" if int(text) <= 0 else f"only after {int(text) / 1000:g} s"
    return [
        warning(
            "busy-reply-threshold",
            f"busy-reply-threshold is {text}: {after} does it answer BUSY",
            "A script that runs for ever blocks every lease, and SCRIPT KILL is refused until then",
            f"CONFIG SET busy-reply-threshold {BUSY_AFTER}",
        )
    ]


def _clients(server: Server) -> list[Finding]:
    found = server.facts
    most = found.number("maxclients") or int(found.setting("maxclients") or 0)
    now = found.number("connected_clients")
    if not most or now is None:
        return [unseen("connections", "how many connections are left", INFO_HIDDEN)]
    if now <= FULL * most:
        return [ok("connections", f"{now} of {most} connections are open")]
    return [
        warning(
            "connections",
            f"{now} of {most} connections are open",
            "Each thread at work and each event loop needs one",
            "Raise maxclients, or find who keeps so many",
        )
    ]


def _permissions(server: Server) -> list[Finding]:
    found, line = server.facts, server.rights
    if found.scripts_refused:
        return [
            problem(
                "permissions",
                f"this user may not run scripts ({found.scripts_refused})",
                "Every step of a lease is a script: nothing can be leased",
                line,
            )
        ]
    if found.refused is None:
        older = "This server cannot tell without trying (redis.acl_check_cmd came with 7.0)"
        return [unseen("permissions", "the rights of this user", older, line)]
    return _lacking(found.refused, line) or [_enough(found.user, line)]


def _lacking(refused: list[str], line: str) -> list[Finding]:
    found = []
    needed = [one for one in refused if one not in (*rights.OPTIONAL, *rights.PUSHES)]
    if needed:
        found.append(
            problem(
                "permissions",
                f"this user may not use {', '.join(needed)} on the keys of leases",
                "Claims, renewals or releases fail",
                line,
            )
        )
    if any(one in rights.PUSHES for one in refused):
        found.append(
            warning(
                "channels",
                "this user may not use the channels lock:v1:push:*",
                NO_PUSHES,
                line,
            )
        )
    optional = [one for one in refused if one in rights.OPTIONAL]
    if optional:
        found.append(
            note(
                "permissions",
                f"this user may not use {', '.join(optional)}",
                "A program that takes leases can do without; `ls`, `leaks` and `clear` cannot",
                line,
            )
        )
    return found


def _protocol(server: Server) -> list[Finding]:
    """Only RESP3 has pushes."""
    if server.facts.resp3:
        return []
    text = "the connection speaks RESP2, which has no pushes"
    if server.facts.target.resp != 3:
        return [note("channels", text, NO_PUSHES, "Leave protocol=2 out of the URL")]
    why = "Is it a proxy that does not know HELLO 3? Connect to the server itself"
    return [warning("channels", text, NO_PUSHES, why)]


def _enough(user: str | None, line: str) -> Finding:
    if user == "default":
        return note(
            "permissions",
            "the user default is used",
            "It usually may do everything. The fewest rights are enough",
            line,
        )
    return ok("permissions", f"the user {user or 'of this login'} may use scripts and channels", "", line)


def _operators(server: Server) -> list[Finding]:
    """What only some commands of operators need. The rights of a program are enough for the others."""
    found = server.facts
    line = rights.operator_line(old=version_of(found.info or {}) < READING_ALONE)
    if found.scripts_refused:
        return []  # that is told as a problem
    if found.operator_refused is None:
        why = "This server cannot tell without trying"
        return [unseen("operators", "whether this user may use `leaks` and `cron --history`", why, line)]
    lacking = sorted({rights.COMMANDS[one] for one in found.operator_refused})
    if not lacking:
        return [ok("operators", "this user may use `leaks` and `cron --history` as well", "", line)]
    named = " and ".join(f"`leasehold {one}`" for one in lacking)
    return [note("operators", f"this user may not use {named}", "Programs and the other commands can do without", line)]


CHECKS: tuple[Callable[[Server], list[Finding]], ...] = (
    _version,
    _role,
    check_eviction,
    check_persistence,
    check_replicas,
    _scripts,
    _clients,
    _permissions,
    _protocol,
    _operators,
)
