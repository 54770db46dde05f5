"""The examination of a store: a trial, the keys without a TTL, and what its servers or its file say.

Nothing is changed but the resource of the trial. Servers that are away are findings, and so is everything that this
user may not see. Each question has a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from leasehold._core import ops
from leasehold._core.names import make_name
from leasehold.coordinator import Leasehold
from leasehold.doctor import trial
from leasehold.doctor.report import Finding, Report, note, ok, problem, unseen, warning
from leasehold.doctor.rights import operator_line
from leasehold.errors import LeaseholdError

REDIS = ("redis", "sentinel", "cluster", "redlock")
MUTE = ("etcd", "zookeeper")  # they do not tell a login its rights: a lease that was taken shows that they are enough
LEAKS = "lock:*"
SEARCHED_FOR = 3.0  # seconds
SHOWN = 3  # names of keys


class Examination(NamedTuple):
    """What was found. ``trial`` is None where no lease could be taken."""

    report: Report
    trial: trial.Trial | None


def examine(hold: Leasehold) -> Examination:
    """Examine the store of a coordinator.

    >>> import leasehold
    >>> from leasehold.doctor import examine
    >>> with leasehold.connect("memory://") as hold:
    ...     examine(hold).report.worst
    'warning'
    """
    tried, findings = _try(hold)
    store: Any = hold._engine.store
    resource = make_name(hold.namespace, trial.KIND, ()).text
    found = EXAMINERS.get(store.name, _unknown)(store, resource)
    if tried is None and store.name in MUTE:
        found = [_untried(one) if one.check == "permissions" else one for one in found]
    findings += found
    if store.name in REDIS and tried is not None:
        findings.append(_leaks(store))
    away = tried is None and any(one.check == "reachable" for one in findings)
    return Examination(Report(store.name, _place(store), tuple(findings), not away), tried)


def _try(hold: Leasehold) -> tuple[trial.Trial | None, list[Finding]]:
    try:
        found = trial.run(hold)
    except LeaseholdError as error:
        return None, [
            problem(
                "lease",
                f"no lease can be taken: {error}",
                "So it is for every program with this URL",
                "See the other findings",
            )
        ]
    findings = [ok("lease", f"leases can be taken and given back ({trial.KIND}:..., this examination's own)")]
    failed = [name for name, passed in found._asdict().items() if passed is False]
    if failed:
        findings.append(
            problem(
                "protocol",
                f"the store does not keep the protocol: {', '.join(failed)}",
                "Something between us and the store changes what is sent",
                "Connect to it directly",
            )
        )
    return found, [*findings, trial.latency(found)]


def _untried(finding: Finding) -> Finding:
    """Of rights that no lease has shown to be enough: neither that they are, nor that everybody has them."""
    return unseen("permissions", "the rights of this login", "No lease could be taken. These are enough", finding.fix)


def _place(store: Any) -> str:
    """Where it is, without a password."""
    for name in ("where", "server", "path"):
        found = getattr(store, name, None)
        if isinstance(found, str) and found:
            return found.removeprefix("at ").removeprefix("in ")
    server = getattr(store, "_server", None)
    nodes = ", ".join(str(node.target) for node in getattr(store, "nodes", ()))
    return str(getattr(server, "server", "")) or nodes or str(store.name)


# ---------------------------------------------------------------- keys without a TTL


def _leaks(store: Any) -> Finding:
    until = time.monotonic() + SEARCHED_FOR
    found: set[str] = set()
    cursor = ""
    try:
        while True:
            page = store.execute(ops.Leaks(LEAKS, cursor))
            found.update(page.items)
            cursor = page.cursor
            if not cursor or time.monotonic() > until:
                break
    except LeaseholdError as error:
        return unseen(
            "keys without ttl",
            "keys without a TTL",
            str(error),
            f"{operator_line()} (before Redis 7 {operator_line(old=True)}), and +scan",
        )
    return _leaking(sorted(found), bool(cursor))


def _leaking(keys: list[str], stopped: bool) -> Finding:
    part = f"; the search stopped after {SEARCHED_FOR:g} s" if stopped else ""
    if not keys:
        make = note if stopped else ok
        return make("keys without ttl", f"no key {LEAKS} without a TTL was found{part}")
    names = ", ".join(keys[:SHOWN]) + (", ..." if len(keys) > SHOWN else "")
    return warning(
        "keys without ttl",
        f"{'1 key' if len(keys) == 1 else f'{len(keys)} keys'} {LEAKS} without a TTL: {names}{part}",
        "After a crash of its holder nobody can ever take such a lock; Leasehold never writes one",
        "`leasehold leaks` lists them: delete those whose holder is gone, and repair the program",
    )


# ---------------------------------------------------------------- by store
#
# The modules are imported when they are used: each needs the driver of its store. ``resource`` is a name as leases have
# it: rights on a server may be limited to the keys of a namespace.


def _redis(store: Any, resource: str) -> list[Finding]:
    from leasehold.doctor import redis

    return redis.examine(store._server.target, resource) if hasattr(store, "_server") else _unknown(store, resource)


def _sentinel(store: Any, resource: str) -> list[Finding]:
    from leasehold.doctor import sentinel

    return (
        sentinel.examine(store._server._sentinels, resource) if hasattr(store, "_server") else _unknown(store, resource)
    )


def _cluster(store: Any, resource: str) -> list[Finding]:
    from leasehold.doctor import cluster

    return cluster.examine(store._server, resource) if hasattr(store, "_server") else _unknown(store, resource)


def _redlock(store: Any, resource: str) -> list[Finding]:
    from leasehold.doctor import redlock

    return redlock.examine(store, resource)


def _postgresql(store: Any, _resource: str) -> list[Finding]:
    from leasehold.doctor import postgresql

    return postgresql.examine(store)


def _etcd(store: Any, _resource: str) -> list[Finding]:
    from leasehold.doctor import etcd

    return etcd.examine(store._server.target)


def _zookeeper(store: Any, _resource: str) -> list[Finding]:
    from leasehold.doctor import zookeeper

    return zookeeper.examine(store._server)


def _sqlite(store: Any, _resource: str) -> list[Finding]:
    from leasehold.doctor import sqlite

    return sqlite.examine(store.path)


def _memory(_store: Any, _resource: str) -> list[Finding]:
    from leasehold.doctor import memory

    return memory.examine()


def _unknown(_store: Any, _resource: str) -> list[Finding]:
    return [
        note(
            "store",
            "its server cannot be examined",
            "The client of the program does more than connect and send",
            "Examine it by its URL",
        )
    ]


EXAMINERS: dict[str, Callable[[Any, str], list[Finding]]] = {
    "redis": _redis,
    "sentinel": _sentinel,
    "cluster": _cluster,
    "redlock": _redlock,
    "postgresql": _postgresql,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "sqlite": _sqlite,
    "memory": _memory,
}
