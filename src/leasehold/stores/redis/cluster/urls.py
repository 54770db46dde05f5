"""The address of a Cluster: ``redis+cluster://[user:password@]host[:port],host[:port][?option=value&...]``.

The options are those of one server, and ``slot`` as of ``connect``."""

from __future__ import annotations

from leasehold.errors import InvalidRequest
from leasehold.stores.redis.cluster.naming import NAMESPACE, RESOURCE
from leasehold.stores.redis.cluster.nodes import Address, Cluster
from leasehold.stores.redis.target import from_url

SCHEMES = ("redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster")


def cluster_from_url(url: str) -> Cluster:
    """Some of its nodes, one at least: they name the others. Each host is read as that of a URL with one."""
    scheme, _, rest = url.partition("://")
    rest, by = _without_slot(rest)
    end = min([rest.find(mark) for mark in "/?#" if mark in rest], default=len(rest))
    login, separator, hosts = rest[:end].rpartition("@")
    single = scheme.removesuffix("+cluster")
    targets = []
    for host in hosts.split(","):
        if not host:
            raise InvalidRequest(f"the {scheme} URL names its nodes with commas between them: {scheme}://host1,host2")
        targets.append(from_url(f"{single}://{login}{separator}{host}{rest[end:]}", scheme, f"{scheme}://host1,host2"))
    first = targets[0]
    check_database(first.db)
    seeds: list[Address] = [(target.host, target.port) for target in targets]
    cluster = Cluster(first, dict.fromkeys(seeds))
    cluster.by, cluster.stated_by = by or RESOURCE, by
    return cluster


def _without_slot(rest: str) -> tuple[str, str]:
    """The rest of a URL without the option ``slot``, and its value; empty when it is not there."""
    place, question, query = rest.partition("?")
    options = query.split("&")
    chosen = [option for option in options if option.startswith("slot=")]
    if not chosen:
        return rest, ""
    by = chosen[0].removeprefix("slot=")
    if len(chosen) > 1 or by not in (RESOURCE, NAMESPACE):
        raise InvalidRequest(f"the option slot of a URL is {RESOURCE} or {NAMESPACE}, once")
    others = "&".join([option for option in options if option not in chosen])
    return (f"{place}{question}{others}" if others else place), by


def check_database(number: int) -> None:
    """A Cluster has no database but 0."""
    if number:
        raise InvalidRequest(f"a Redis Cluster has only database 0, not {number}")
