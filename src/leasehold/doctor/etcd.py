"""etcd: members and leader, alarms, how much of the quota is used, compaction, disks, clocks, rights."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from leasehold._core.driver import drive
from leasehold.doctor import rights
from leasehold.doctor.clocks import Reading, compare
from leasehold.doctor.exposition import Exposition
from leasehold.doctor.members import Away, fix, login_refused, together
from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.errors import LeaseholdError
from leasehold.stores.etcd.connection import Broken
from leasehold.stores.etcd.failures import OUT_OF_RANGE, Refused
from leasehold.stores.etcd.gateway import Gateway
from leasehold.stores.etcd.keys import encoded
from leasehold.stores.etcd.urls import Endpoint, Target
from leasehold.stores.etcd.wall import parse_date

SECONDS = 3.0  # for one member
OLDEST = (3, 4)
NEARLY = 0.8  # of the quota
KEPT_REVISIONS = 50_000  # that are not compacted
SLOW_DISK = 0.1  # seconds for the fdatasync of a log, which etcd wants below 10 ms
LOOSE = 2  # a file that is so many times as large as what is in use can be made smaller
LARGE = 64 * 1024 * 1024
QUOTA_FIX = (
    "etcdctl compact REVISION, etcdctl defrag, etcdctl alarm disarm; then --auto-compaction-retention=1h, or a larger "
    "--quota-backend-bytes"
)
COMPACT_FIX = "Start every member with --auto-compaction-mode=periodic --auto-compaction-retention=1h"


class Facts(NamedTuple):
    """What one member says."""

    endpoint: Endpoint
    status: dict[str, Any]
    alarms: list[dict[str, Any]] | None
    members: list[dict[str, Any]] | None
    metrics: Exposition | None
    clock: Reading | None
    whole: bool | None  # its old revisions are all there; None: it was not asked


def examine(target: Target) -> list[Finding]:
    answers = together(target.endpoints, lambda endpoint: _facts(target, endpoint))
    gone = [(endpoint, one) for endpoint, one in zip(target.endpoints, answers, strict=True) if isinstance(one, Away)]
    present = [one for one in answers if isinstance(one, Facts)]
    found = [*_members(target, present, gone), *_alarms(present), *_permissions(target), *_clocks(present)]
    for one in present:
        checks = (*_version(one), *_leader(one), *_quota(one), *_compaction(one), *_disk(one))
        found += [finding.at(str(one.endpoint)) for finding in checks]
    return found


# ---------------------------------------------------------------- questions


def _facts(target: Target, endpoint: Endpoint) -> Facts:
    gateway = Gateway(target._replace(endpoints=(endpoint,)))
    give_up = time.monotonic() + SECONDS
    try:
        before = time.time()
        status = _ask(gateway, "/v3/maintenance/status", {}, give_up)
        alarms = _permitted(gateway, "/v3/maintenance/alarm", {"action": "GET"}, give_up)
        members = _permitted(gateway, "/v3/cluster/member/list", {}, give_up)
        whole = _whole(gateway, target, int(status["header"].get("revision", 0)), give_up)
        text, date = _scrape(gateway, endpoint)
    except (LeaseholdError, Refused, Broken, LookupError, ValueError) as error:
        raise Away(str(error)) from error
    finally:
        gateway.close()
    return Facts(
        endpoint,
        status,
        None if alarms is None else alarms.get("alarms", []),
        None if members is None else members.get("members", []),
        None if text is None else Exposition(text),
        _clock(date, before, time.time()),
        whole,
    )


def _ask(gateway: Gateway, path: str, body: dict[str, Any], give_up: float) -> dict[str, Any]:
    posting = gateway.post(path, json.dumps(body).encode(), give_up, harmless=True)
    return drive(posting, gateway.send)


def _permitted(gateway: Gateway, path: str, body: dict[str, Any], give_up: float) -> dict[str, Any] | None:
    try:
        return _ask(gateway, path, body, give_up)
    except Refused:
        return None


def _whole(gateway: Gateway, target: Target, revision: int, give_up: float) -> bool | None:
    """Whether a revision long ago can still be read: then nothing has compacted them."""
    old = revision - KEPT_REVISIONS
    if old < 1:
        return None
    key = encoded(f"{target.prefix}/r/leasehold-doctor")
    try:
        _ask(gateway, "/v3/kv/range", {"key": key, "revision": str(old), "count_only": True}, give_up)
    except Refused as error:
        return False if error.code == OUT_OF_RANGE else None
    return True


def _scrape(gateway: Gateway, endpoint: Endpoint) -> tuple[str | None, bytes]:
    """Its own metrics, and the date of the reply. They are on the same port, unless somebody moved them."""
    scheme = "http" if gateway.context is None else "https"
    try:
        with urllib.request.urlopen(  # noqa: S310 - the scheme is ours
            f"{scheme}://{endpoint}/metrics", timeout=SECONDS, context=gateway.context
        ) as reply:
            return reply.read().decode("utf-8", "replace"), (reply.headers.get("Date") or "").encode()
    except urllib.error.HTTPError as error:
        with error:
            return None, (error.headers.get("Date") or "").encode()
    except (OSError, ValueError):
        return None, b""


def _clock(date: bytes, before: float, after: float) -> Reading | None:
    """HTTP tells the time in whole seconds, rounded down."""
    seconds = parse_date(date)
    if seconds is None:
        return None
    return Reading(seconds + 0.5 - (before + after) / 2, 0.5 + (after - before) / 2)


# ---------------------------------------------------------------- the ensemble


def _members(target: Target, present: Sequence[Facts], gone: Sequence[tuple[Endpoint, Away]]) -> list[Finding]:
    known = next((one.members for one in present if one.members is not None), None)
    count = max(len(known or ()), len(target.endpoints))
    majority = len(present) > count // 2
    make = warning if majority else problem
    found = [
        make(
            "members" if majority else "reachable",
            f"a member {'refuses the login' if login_refused(error) else 'cannot be reached'}: {error}",
            "A majority of the members decides: without one nothing is granted",
            fix(error, "Start it, or correct the URL"),
        ).at(str(endpoint))
        for endpoint, error in gone
    ]
    if known is not None and len(known) > len(target.endpoints):
        found.append(
            note(
                "members",
                f"the URL names {len(target.endpoints)} of {len(known)} members",
                "When those are gone, the others are not found",
                "Name all of them in the URL",
            )
        )
    if count < 3:
        found.append(
            warning(
                "members",
                f"it has {count} member{'s' * (count > 1)}",
                "When one is gone, nothing can be leased",
                "Run three or five members",
            )
        )
    elif count % 2 == 0:
        found.append(note("members", f"it has {count} members", "An even number bears no more failures than one less"))
    elif not gone:
        found.append(ok("members", f"{count} members answer"))
    return found


def _alarms(present: Sequence[Facts]) -> list[Finding]:
    seen = [one.alarms for one in present if one.alarms is not None]
    if not seen:
        return [unseen("alarms", "alarms", "This user may not ask for them")] if present else []
    kinds = sorted({str(alarm.get("alarm", "NONE")) for alarms in seen for alarm in alarms})
    if not kinds:
        return [ok("alarms", "there is no alarm")]
    return [
        problem(
            "alarms",
            f"there is an alarm: {', '.join(kinds)}",
            "With NOSPACE every claim and renewal is refused; with CORRUPT a member's data differs from the others'",
            QUOTA_FIX if "NOSPACE" in kinds else "See its log",
        )
    ]


def _permissions(target: Target) -> list[Finding]:
    lines = "; ".join(rights.etcd_lines(target, target.user or "app"))
    if target.user:
        return [ok("permissions", f"the user {target.user} is used", "", lines)]
    return [
        note(
            "permissions",
            "no user is used: everybody who reaches it may change leases",
            "With authentication on (etcdctl auth enable) these rights are enough",
            lines,
        )
    ]


def _clocks(present: Sequence[Facts]) -> list[Finding]:
    readings = {str(one.endpoint): one.clock for one in present if one.clock is not None}
    return compare(
        readings,
        "Records carry the time of the member that was asked: a process that has not watched "
        "believes a lease to be over 60 s after its end, by these clocks",
    )


# ---------------------------------------------------------------- one member


def _version(one: Facts) -> list[Finding]:
    version = str(one.status.get("version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        return [problem("version", f"it is etcd {version}", "Leases need 3.4 or newer", "Upgrade it")]
    return [ok("version", f"etcd {version}")]


def _leader(one: Facts) -> list[Finding]:
    if int(one.status.get("leader", 0)):
        return []
    return [
        problem(
            "leader",
            "it knows no leader",
            "It is cut off, or too few members are up: nothing is granted there",
            "Start the members that are missing, and look at the network between them",
        )
    ]


def _quota(one: Facts) -> list[Finding]:
    size = int(one.status.get("dbSize", 0))
    quota = None if one.metrics is None else one.metrics.value("etcd_server_quota_backend_bytes")
    if not quota:
        return [
            unseen(
                "quota",
                f"the quota (the database has {size >> 20} MiB)",
                "It is only in the metrics of etcd, which are not on this port; the default is 2 GiB",
            )
        ]
    text = f"{size * 100 / quota:.0f} % of the quota is used ({size >> 20} of {int(quota) >> 20} MiB)"
    if size > NEARLY * quota:
        return [
            problem(
                "quota",
                text,
                "When it is full, etcd refuses every claim and renewal until somebody compacts, "
                "defragments and disarms the alarm",
                QUOTA_FIX,
            )
        ]
    return [ok("quota", text)]


def _compaction(one: Facts) -> list[Finding]:
    size, used = int(one.status.get("dbSize", 0)), int(one.status.get("dbSizeInUse", 0))
    found = []
    if one.whole:
        found.append(
            warning(
                "compaction",
                f"more than {KEPT_REVISIONS} old revisions are kept",
                "Each renewal adds one, and nothing removes them: the quota will be exceeded",
                COMPACT_FIX,
            )
        )
    elif one.whole is False:
        found.append(ok("compaction", "old revisions are compacted"))
    else:
        found.append(
            note(
                "compaction",
                f"fewer than {KEPT_REVISIONS} revisions were ever written",
                "Each renewal adds one: without compaction the quota is exceeded some day",
                COMPACT_FIX,
            )
        )
    if used and size > LOOSE * used and size > LARGE:
        found.append(
            note(
                "compaction",
                f"{(size - used) >> 20} MiB of its file are not in use",
                "They count for the quota",
                "etcdctl defrag, one member after the other",
            )
        )
    return found


def _disk(one: Facts) -> list[Finding]:
    if one.metrics is None:
        return []
    slow = one.metrics.quantile("etcd_disk_wal_fsync_duration_seconds", 0.99)
    if slow is None:
        return []
    if slow <= SLOW_DISK:
        return [ok("disk", f"99 % of the writes to its log take at most {slow * 1000:g} ms")]
    return [
        warning(
            "disk",
            f"1 % of the writes to its log take over {SLOW_DISK * 1000:g} ms",
            "Each grant and renewal waits for the disks of a majority; a leader whose disk stalls may lose its office",
            "Give etcd a fast disk of its own",
        )
    ]
