"""Redlock: are the nodes independent, is a majority there, do their clocks agree; then every node by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leasehold.doctor import redis, rights
from leasehold.doctor.clocks import APART, SLEW, off_median
from leasehold.doctor.members import Away, together
from leasehold.doctor.nodes import Facts, Server, facts
from leasehold.doctor.report import Finding, note, ok, problem, warning
from leasehold.stores.redis.target import Target


def examine(store: Any, resource: str) -> list[Finding]:
    targets = [node.target for node in store.nodes]
    answers = together(targets, lambda target: facts(target, resource))
    present = [one for one in answers if isinstance(one, Facts)]
    found = [*_majority(targets, answers), *_independent(present)]
    servers = [Server(one, False, rights.redis_line()) for one in present]
    for server in servers:
        found += [_of_a_node(one) for one in redis.check(server) if one.check != "replicas"]
        found += _young(server.facts, store.capabilities.longest_ttl_ms / 1000)
    return [*found, *redis.check_clocks(servers), *_clocks(present)]


def _majority(targets: Sequence[Target], answers: Sequence[Facts | Away]) -> list[Finding]:
    gone = [(target, one) for target, one in zip(targets, answers, strict=True) if isinstance(one, Away)]
    needed, there = len(targets) // 2 + 1, len(targets) - len(gone)
    if not gone:
        return [ok("majority", f"{there} nodes answer; {needed} are a majority")]
    if there < needed:
        text = f"{there} of {len(targets)} nodes answer, and {needed} are a majority"
        return [
            problem("majority", text, "No lease can be taken or renewed", "Start the nodes that are away"),
            *[redis.away(str(target), error, "a node") for target, error in gone],
        ]
    spare = there - needed
    why = f"A majority is there; {spare or 'no'} other node may fail besides"
    return [
        warning("majority", f"a node cannot be reached: {error}", why, "Start it, or correct the URL").at(str(target))
        for target, error in gone
    ]


def _independent(present: Sequence[Facts]) -> list[Finding]:
    """Two addresses may be one server; and a replica or a node of a Cluster is no master by itself."""
    seen: dict[str, str] = {}
    found = []
    for one in present:
        run = (one.info or {}).get("run_id", "")
        if run and run in seen:
            found.append(
                problem(
                    "independence",
                    f"it is the same server as {seen[run]}",
                    "Its vote counts twice, so that fewer servers than a majority decide",
                    "Name one address of each server",
                ).at(one.place)
            )
        seen.setdefault(run, one.place)
        if (one.info or {}).get("redis_mode") == "cluster":
            found.append(
                problem(
                    "independence",
                    "it is a node of a Cluster",
                    "Its masters fail over together, and promise less than independent ones",
                    "Use independent masters",
                ).at(one.place)
            )
    if not found and len(present) > 1:
        return [ok("independence", f"the nodes are {len(present)} different servers")]
    return found


def _of_a_node(finding: Finding) -> Finding:
    """A node that lost its memory is left out for a while, so that losing it is less than with one server."""
    if finding.check != "persistence" or finding.severity != "warning":
        return finding
    return finding._replace(
        severity="note",
        reason="A node that restarts without its data does not count for max_ttl: then fewer others may fail",
    )


def _young(one: Facts, seconds: float) -> list[Finding]:
    up = one.number("uptime_in_seconds")
    if up is None or up >= seconds:
        return []
    return [
        note(
            "uptime",
            f"it has been up for {up} s, less than max_ttl ({seconds:g} s)",
            "It may have lost leases that "
            "are still held, and does not count until then, unless its marker shows that it has its "
            "data",
        ).at(one.place)
    ]


def _clocks(present: Sequence[Facts]) -> list[Finding]:
    readings = {one.place: one.clock for one in present if one.clock is not None}
    if len(readings) < 2:
        return []
    return [
        problem(
            "clock",
            f"its clock is {off:.1f} s off the median of the nodes",
            f"A node whose clock is more than {APART:g} s off does not count",
            SLEW,
        ).at(place)
        for place, off in off_median(readings).items()
        if off > APART
    ]
