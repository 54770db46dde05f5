"""The fewest rights with which a program can hold leases, as each server wants them written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasehold.stores.etcd.urls import Target as EtcdTarget

# ---------------------------------------------------------------- Redis
#
# docs/redis.md has the same line, and says what may be left out.

RESOURCE = "leasehold-doctor"
KEY, CHANNEL = f"lock:v1:{{{RESOURCE}}}:owner", "lock:v1:push:leasehold-doctor"
# With arguments for a look at the rights: nothing of this is executed.
REDIS: dict[str, tuple[str, ...]] = {
    "evalsha": ("0" * 40, "1", KEY),
    "eval": ("return 1", "1", KEY),
    "subscribe": (CHANNEL,),
    "info": (),
    "time": (),
    "scan": ("0",),
    "get": (KEY,),
    "mget": (KEY,),
    "set": (KEY, "x"),
    "del": (KEY,),
    "exists": (KEY,),
    "pttl": (KEY,),
    "pexpire": (KEY, "1"),
    "pexpireat": (KEY, "1"),
    "hget": (KEY, "x"),
    "hmget": (KEY, "x"),
    "hgetall": (KEY,),
    "hset": (KEY, "x", "x"),
    "hdel": (KEY, "x"),
    "hlen": (KEY,),
    "hscan": (KEY, "0"),
    "rpush": (KEY, "x"),
    "lrange": (KEY, "0", "0"),
    "lrem": (KEY, "0", "x"),
    "ltrim": (KEY, "0", "0"),
    "publish": (CHANNEL, "x"),
}
CLUSTER = ("cluster|slots", "asking", "ssubscribe", "spublish", "pubsub|numsub", "pubsub|shardchannels")
SENTINEL = ("sentinel|get-master-addr-by-name", "sentinel|master")
OPERATORS = ("scan", "ltrim")  # without them a program takes leases, and only operators miss something
OPTIONAL = ("info", "hscan", *OPERATORS)
PUSHES = ("subscribe", "publish")
# What some commands of operators need besides, and those commands.
OPERATOR: dict[str, tuple[str, ...]] = {
    "pttl": ("lock:leasehold-doctor",),
    "type": ("results:v1:{leasehold-doctor}:value",),
    "set": ("results:v1:{leasehold-doctor}:value", "x"),
}
COMMANDS = {"pttl": "leaks", "type": "cron --history", "set": "cron --history"}


def redis_line(more: Sequence[str] = (), user: str = "leasehold") -> str:
    """The ACL line of one server. ``more``: what else the store needs there."""
    allowed = " ".join(f"+{command}" for command in (*REDIS, *more))
    return f"ACL SETUSER {user} reset on >password ~lock:v1:* resetchannels &lock:v1:push:* {allowed}"


def operator_line(old: bool = False, user: str = "leasehold") -> str:
    """What `leaks` and `cron --history` need besides: reading the keys of others, and the results of runs. ``old``: a
    server before 7, which cannot allow reading alone."""
    return f"ACL SETUSER {user} {'' if old else '%R'}~lock:* ~results:v1:* +type"


def cluster_line(user: str = "leasehold") -> str:
    return redis_line(CLUSTER, user)


def sentinel_line(user: str = "leasehold") -> str:
    """At each Sentinel."""
    return f"ACL SETUSER {user} reset on >password {' '.join(f'+{command}' for command in SENTINEL)}"


def arguments(commands: Mapping[str, tuple[str, ...]] = REDIS, resource: str = RESOURCE) -> list[str]:
    """What ``permissions.lua`` takes. ``resource``: whose keys, as a login may be limited to those of a namespace."""
    words = [
        [command, *[one.replace(f"{{{RESOURCE}}}", f"{{{resource}}}") for one in rest]]
        for command, rest in commands.items()
    ]
    return [one for command in words for one in (str(len(command)), *command)]


# ---------------------------------------------------------------- etcd, ZooKeeper


def etcd_lines(target: EtcdTarget, user: str = "app") -> list[str]:
    """With authentication on, as root."""
    return [
        "etcdctl role add leasehold",
        f"etcdctl role grant-permission leasehold readwrite --prefix=true {target.prefix}/",
        f"etcdctl user add {user}",
        f"etcdctl user grant-role {user} leasehold",
    ]


def zookeeper_lines(chroot: str, user: str = "app") -> list[str]:
    """In zkCli.sh, by an administrator, while there is no such node."""
    parents = chroot.split("/")[1:-1]
    above = [f'create {"/" + "/".join(parents[: count + 1])} ""' for count in range(len(parents))]
    return [f"addauth digest {user}:password", *above, f'create {chroot} "" auth::cdrw']
