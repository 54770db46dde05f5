"""A Redis Cluster: are all slots served; then every master by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from leasehold.doctor import redis, rights
from leasehold.doctor.members import Away, together
from leasehold.doctor.nodes import Facts, Node, ReplyError, Server, facts, info_of
from leasehold.doctor.report import Finding, note, ok, problem, unseen, warning
from leasehold.stores.redis.cluster.nodes import SLOTS, Cluster
from leasehold.stores.redis.target import Target

ENOUGH = 3  # masters: with two, one that is gone leaves no majority to promote its replica
FULL_COVERAGE = "cluster-require-full-coverage"


class Map(NamedTuple):
    """What one node says of the Cluster."""

    asked: Target
    masters: list[tuple[str, int]]
    served: int  # slots
    state: dict[str, str] | None  # CLUSTER INFO


def examine(cluster: Cluster, resource: str) -> list[Finding]:
    seeds = [node.target for node in cluster.nodes()]
    answers = together(seeds, _map)
    found = [
        redis.away(str(seed), one, "a node") for seed, one in zip(seeds, answers, strict=True) if isinstance(one, Away)
    ]
    maps = [one for one in answers if isinstance(one, Map)]
    if not maps:
        return found
    best = max(maps, key=lambda one: one.served)
    found = [one._replace(severity="warning", reason="Others answer in its place") for one in found]
    return [*found, *_health(best), *_masters(cluster, best, cluster.stored_name(resource))]


def _map(target: Target) -> Map:
    with Node(target) as node:
        slots, state = node.ask(("CLUSTER", "SLOTS"), ("CLUSTER", "INFO"))
    if isinstance(slots, ReplyError):
        raise Away(f"CLUSTER SLOTS is refused: {str(slots).split(' ', 1)[0]}")
    masters = dict.fromkeys(_address(master, target) for _, _, master, *_ in slots)
    served = sum(last - first + 1 for first, last, *_ in slots)
    return Map(target, list(masters), served, None if isinstance(state, ReplyError) else info_of([state]))


def _address(node: Any, asked: Target) -> tuple[str, int]:
    """A node that does not know its own address leaves it out."""
    host = (node[0] or b"").decode()
    return (host if host not in ("", "?") else asked.host), int(node[1])


def _health(seen: Map) -> list[Finding]:
    found = []
    if seen.served < SLOTS:
        found.append(
            problem(
                "slots",
                f"{SLOTS - seen.served} of {SLOTS} slots are served by no node",
                "Locks in these slots cannot be taken; with cluster-require-full-coverage, none can",
                "Bring back the masters that are missing, or redis-cli --cluster fix",
            )
        )
    else:
        found.append(ok("slots", f"all {SLOTS} slots are served, by {len(seen.masters)} masters"))
    if seen.state is None:
        found.append(unseen("cluster", "the state of the Cluster", "CLUSTER INFO is refused to this user"))
    elif seen.state.get("cluster_state") != "ok":
        found.append(
            problem(
                "cluster",
                f"cluster_state is {seen.state.get('cluster_state')}",
                "It refuses all commands",
                "redis-cli --cluster check names the nodes and slots that are missing",
            )
        )
    if len(seen.masters) < ENOUGH:
        found.append(
            warning(
                "cluster",
                f"it has {len(seen.masters)} masters",
                "A replica is promoted by a majority of the masters: with fewer than three, none is when one is gone",
                "Add masters",
            )
        )
    return [one.at(str(seen.asked)) for one in found]


def _masters(cluster: Cluster, seen: Map, resource: str) -> list[Finding]:
    targets = [cluster.announced(address).target for address in seen.masters]
    answers = together(targets, lambda target: facts(target, resource))
    found = [
        redis.away(str(target), one, "a master")
        for target, one in zip(targets, answers, strict=True)
        if isinstance(one, Away)
    ]
    servers = [Server(one, True, rights.cluster_line()) for one in answers if isinstance(one, Facts)]
    for server in servers:
        found += [*redis.check(server), *_coverage(server.facts)]
    return [*found, *redis.check_clocks(servers)]


def _coverage(one: Facts) -> list[Finding]:
    if one.setting(FULL_COVERAGE) != "yes":
        return []
    return [
        note(
            "cluster",
            f"{FULL_COVERAGE} is yes",
            "While one slot is not served, no lock can be taken anywhere",
            f"CONFIG SET {FULL_COVERAGE} no, if the other slots should go on",
        ).at(one.place)
    ]
