"""The data of one Redis or Valkey: what it would evict, what a kill -9 would lose, and who has a copy."""

from __future__ import annotations

import re
import time

from leasehold.doctor.nodes import INFO_HIDDEN, SETTINGS_HIDDEN, Facts, Server
from leasehold.doctor.report import Finding, length, note, ok, problem, unseen, warning
from leasehold.stores.redis.target import Target

LAGS = 2  # seconds since a replica's last sign of life: replicas give one each second
FULL = 0.9  # of maxmemory
LOST = (
    "Leases, queues and limits are gone then: another claim is granted while the old holder still works, until its "
    "next renewal (a third of its ttl). Fences go on growing, because the server's clock is their floor"
)

# ---------------------------------------------------------------- memory and disk


def check_eviction(server: Server) -> list[Finding]:
    info = server.facts.info or {}
    policy = info.get("maxmemory_policy") or server.facts.setting("maxmemory-policy")
    if policy is None:
        return [unseen("eviction", "the eviction policy", INFO_HIDDEN)]
    most, used = server.facts.number("maxmemory") or 0, server.facts.number("used_memory") or 0
    if policy != "noeviction":
        return [_evicts(policy, most)]
    if most and used > FULL * most:
        return [
            warning(
                "memory",
                f"{used * 100 // most} % of maxmemory is used",
                "When it is full, new claims fail; holders still renew and release",
                "Free memory, or raise maxmemory",
            )
        ]
    return [ok("eviction", "maxmemory-policy is noeviction: no lease is evicted")]


def _evicts(policy: str, most: int) -> Finding:
    fix = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; or keep leases on a server of their own"
    if most:
        why = (
            "When memory is short it deletes leases that are held, and each of their keys has a TTL: two can then hold"
        )
        return problem("eviction", f"maxmemory-policy is {policy}, with a maxmemory", why, fix)
    why = "Without a maxmemory nothing is evicted; as soon as one is set, leases that are held can be"
    return warning("eviction", f"maxmemory-policy is {policy}, without a maxmemory", why, fix)


def check_persistence(server: Server) -> list[Finding]:
    found = server.facts
    info = found.info
    if info is None or "aof_enabled" not in info:
        return [unseen("persistence", "what a kill -9 would lose", INFO_HIDDEN)]
    failing = [
        _failing(field)
        for field in ("aof_last_write_status", "rdb_last_bgsave_status")
        if info.get(field, "ok") != "ok"
    ]
    if info["aof_enabled"] == "1":
        fsync = found.setting("appendfsync")
        return [*failing, _append_only(fsync), *_early_confirmation(info, fsync)]
    return [*failing, _snapshots(found)]


def _failing(field: str) -> Finding:
    return problem(
        "persistence",
        f"the last write to disk failed ({field})",
        "With stop-writes-on-bgsave-error it refuses all claims (MISCONF), and a restart loses what was not written",
        "Look into its log: the disk may be full, or the folder not writable",
    )


def _append_only(fsync: str | None) -> Finding:
    if fsync == "always":
        return ok("persistence", "appendonly with appendfsync always: a kill -9 and a power cut lose nothing answered")
    if fsync == "no":
        return warning(
            "persistence",
            "appendonly with appendfsync no: a kill -9 loses hardly anything, a power cut up to half a minute",
            LOST,
            "CONFIG SET appendfsync everysec, or always",
        )
    if fsync is None:
        return note(
            "persistence",
            "appendonly, and appendfsync cannot be seen: a kill -9 loses hardly anything, a power cut about a second "
            "with the default (everysec), up to half a minute with no",
            SETTINGS_HIDDEN,
            "An administrator sees it with CONFIG GET appendfsync",
        )
    return ok(
        "persistence",
        "appendonly with appendfsync everysec: a kill -9 loses hardly anything, a power cut about a second",
        "A command is written before it is answered, and reaches the disk within a second. Where that is too much: "
        "appendfsync always, or a store with consensus",
    )


def _early_confirmation(info: dict[str, str], fsync: str | None) -> list[Finding]:
    """Of every Valkey: it was seen with 9.1.2, and no version is known in which it was repaired, as it was in Redis
    (redis/redis pull request 13793)."""
    if "valkey_version" not in info or fsync != "everysec":
        return []
    return [
        warning(
            "waitaof",
            f"Valkey {info['valkey_version']} with appendfsync everysec may confirm WAITAOF before the disk has the "
            "write",
            "A lease with durability='fsync' is believed up to a second too early, and a power cut in that second "
            "loses it: another claim can then be granted. Valkey 9.1.2 was seen to do so",
            "CONFIG SET appendfsync always, and the same in valkey.conf. Nothing is to be done if no program asks for "
            "durability='fsync'",
        )
    ]


def _snapshots(found: Facts) -> Finding:
    fix = "CONFIG SET appendonly yes (and in redis.conf), with appendfsync everysec or always"
    save = found.setting("save")
    if save == "":
        return warning("persistence", "nothing is written to disk: a kill -9 or a restart loses every lease", LOST, fix)
    changes, saved = found.number("rdb_changes_since_last_save"), found.number("rdb_last_save_time")
    if save is None:  # rdb_last_save_time is no sign of a snapshot: it is the start of a server that writes none
        return warning(
            "persistence",
            f"appendonly is off, and whether snapshots are written cannot be seen: a kill -9 loses at least the last "
            f"{changes} changes, and every lease if there is no snapshot",
            f"{SETTINGS_HIDDEN}. {LOST}",
            f"An administrator sees it with CONFIG GET save. {fix}",
        )
    ago = "" if saved is None else f", from {length(max(time.time() - saved, 0))} ago"
    return warning(
        "persistence",
        f"only snapshots are written: a kill -9 loses all since the last one ({changes} changes{ago})",
        LOST,
        fix,
    )


# ---------------------------------------------------------------- replicas


REPLICA = re.compile(r"slave\d+")


def replicas(found: Facts) -> list[dict[str, str]]:
    """As INFO lists them: ip, port, state, offset, lag."""
    info = found.info or {}
    lines = [value for field, value in info.items() if REPLICA.fullmatch(field)]
    return [dict(part.split("=", 1) for part in line.split(",") if "=" in part) for line in lines]


def replica_targets(found: Facts) -> list[Target]:
    """Where they are for the primary, which may be elsewhere for us."""
    return [
        found.target._replace(host=one["ip"], port=int(one["port"]), path="", db=0)
        for one in replicas(found)
        if one.get("ip") and one.get("port", "").isdigit()
    ]


def check_replicas(server: Server) -> list[Finding]:
    found = server.facts
    if found.info is None or "role" not in found.info:
        return [unseen("replicas", "replicas", INFO_HIDDEN)]
    known = replicas(found)
    if found.info["role"] != "master":
        return []
    return [*_each_replica(server, known), *_confirmed(server, len(known))]


def _each_replica(server: Server, known: list[dict[str, str]]) -> list[Finding]:
    if not known and server.fails_over:
        return [
            warning("replicas", "it has no replica", "Nothing can take over when it is gone", "Start a replica of it")
        ]
    if not known:
        return [
            note(
                "replicas",
                "it has no replica",
                "Nothing can be leased while it is down, and its disk is the only copy",
                "Nothing is to be done if that may be. Else start replicas of it with Sentinel or Cluster, which "
                "promote one, or use a store with consensus",
            )
        ]
    here = server.facts.number("master_repl_offset") or 0
    return [_one_replica(one, here) for one in known]


def _one_replica(one: dict[str, str], here: int) -> Finding:
    name = f"replica {one.get('ip')}:{one.get('port')}"
    behind = max(here - int(one.get("offset", 0)), 0)
    lag = int(one.get("lag", 0))
    why = "If it is promoted now, it lacks the last grants, and they are given again. Fences go on growing by its clock"
    if one.get("state") != "online":
        return warning("replicas", f"{name} is not in step yet ({one.get('state')})", why, "Wait, or look into its log")
    if lag >= LAGS:
        return warning(
            "replicas",
            f"{name} lags: silent for {lag} s, {behind} bytes behind",
            why,
            "Look at its network and its load; min-replicas-max-lag bounds what a cut-off primary may grant",
        )
    return ok("replicas", f"{name} is in step: silent for {lag} s, {behind} bytes behind")


def _confirmed(server: Server, count: int) -> list[Finding]:
    """min-replicas-to-write."""
    least = server.facts.setting("min-replicas-to-write", "min-slaves-to-write")
    if least is None:
        hidden = unseen("min-replicas", "min-replicas-to-write", SETTINGS_HIDDEN)
        return [hidden] if count or server.fails_over else []
    if int(least) > count:
        return [
            problem(
                "min-replicas",
                f"min-replicas-to-write is {least}, and {count} replicas are there",
                "It refuses all writes (NOREPLICAS): nothing can be leased",
                "Start replicas, or CONFIG SET min-replicas-to-write to what there is",
            )
        ]
    if int(least) or not (count or server.fails_over):
        return [ok("min-replicas", f"min-replicas-to-write is {least}")] if int(least) else []
    why = (
        "A primary that is cut off goes on granting leases that the promoted one does not know: two can hold until the "
        "cut-off clients notice"
    )
    fix = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10; or ask for durability='replicas:1'"
    make = warning if server.fails_over else note
    return [make("min-replicas", "min-replicas-to-write is 0", why, fix)]
