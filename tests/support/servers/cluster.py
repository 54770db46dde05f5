"""A real Redis Cluster: some masters, each with its share of the slots and, when wanted, with replicas."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, Self

from tests.support.servers.certificates import Certificates
from tests.support.servers.clock import WallClock
from tests.support.servers.redis import RedisServer, credentials
from tests.support.servers.replicas import CUT, FILLED, is_empty
from tests.support.servers.server import restore, start_together
from tests.support.waiting import PATIENCE, until

SLOTS = 16384
GIVEN_UP = 20.0  # seconds after which a failover is forced
AT_START = -3.0  # a master serves nothing in its first two seconds: they are over when its clock jumps ahead to 0
MANUAL_FAILOVER = 5.0  # seconds after which a node gives up one that it was told to do


class Member(NamedTuple):
    """What one node says of another."""

    master: str  # the id of its master; a dash when it is one itself
    epoch: int
    slots: tuple[str, ...]  # such as 0-5460

    def numbers(self) -> set[int]:
        """All its slots."""
        ranges = [part.split("-") for part in self.slots]
        return {slot for part in ranges for slot in range(int(part[0]), int(part[-1]) + 1)}

    def owns(self, slot: int) -> bool:
        """Whether it is the owner of this slot."""
        ranges = [part.split("-") for part in self.slots]
        return any(int(part[0]) <= slot <= int(part[-1]) for part in ranges)


def _view(node: RedisServer) -> dict[str, Member]:
    """What a node believes of every other and of itself, by their ids."""
    lines = [line.split() for line in node.ask("CLUSTER NODES").decode().splitlines()]
    return {
        line[0]: Member(line[3], int(line[6]), tuple(sorted(part for part in line[8:] if part[0] != "[")))
        for line in lines
        if len(line) > 7 and "handshake" not in line[2]
    }


def _is_apart(replica: RedisServer) -> bool:
    return b"$9\r\nconnected" not in replica.ask("ROLE")


class Move:
    """A slot on its way from one master to another.

    The owner answers ASK for a key that it does not have, and TRYAGAIN for keys of which it has only some. The new
    owner serves the slot only to those who were sent (ASKING).
    """

    def __init__(self, cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
        self.slot, self.source, self.target = slot, source, target
        self._cluster = cluster
        cluster.say(target, f"CLUSTER SETSLOT {slot} IMPORTING {cluster.id_of(source)}")
        cluster.say(source, f"CLUSTER SETSLOT {slot} MIGRATING {cluster.id_of(target)}")

    def keys(self, *names: str | bytes) -> None:
        """Move these keys; without names, all that are left."""
        source: Any = self.source.client()
        while moved := names or source.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 100):
            place = ("127.0.0.1", self.target.announced_port)
            source.execute_command("MIGRATE", *place, "", 0, round(PATIENCE * 1000), *self._login(), "KEYS", *moved)
            if names:
                return

    def end(self) -> None:
        """The keys that are left move too; then all nodes name the new owner.

        A node that learns of the move late, or two nodes that take the same configuration epoch, may name the old
        owner again for a moment. So this returns only when all nodes have the same view.
        """
        self.keys()
        owner = self._cluster.id_of(self.target)
        others = [node for node in self._cluster.masters if node not in (self.source, self.target)]
        for node in (self.target, self.source, *others):
            self._cluster.say(node, f"CLUSTER SETSLOT {self.slot} NODE {owner}")
        self._cluster.moves.remove(self)
        until(lambda: self._cluster.owner(self.slot) is self.target, "the slot has its new owner")
        self._cluster.settle()

    def _login(self) -> tuple[str, ...]:
        login = self.target.login
        return (("AUTH", "AUTH2")[len(login) - 1], *login) if login else ()


class RedisCluster:
    """It starts with ``with``: so many masters, each with so many replicas.

    ``nodes`` holds the masters of the beginning, then the replicas; who is what now say ``masters`` and ``replicas``.
    ``login`` and ``tls`` are for clients and between the nodes. With ``clocks`` each node has a clock that the test can
    set (``node.clock``), and the start takes two seconds less.
    """

    def __init__(
        self,
        size: int = 3,
        replicas: int = 0,
        *options: str,
        executable: str | None = None,
        login: tuple[str, ...] = (),
        tls: Certificates | None = None,
        clocks: bool = True,
        node_timeout_ms: int = 2000,
    ) -> None:
        self._size = size
        self._tls = tls
        self._login = login
        settings = [
            *(
                "--cluster-enabled",
                "yes",
                "--cluster-replica-validity-factor",
                "0",  # a replica whose link was cut may take over, however long ago
                "--cluster-node-timeout",
                str(node_timeout_ms),
            ),
            *FILLED,
            *(("--tls-cluster", "yes", "--tls-replication", "yes") if tls else ()),
            *(("--masterauth", login[-1]) if login else ()),
            *(("--masteruser", login[0]) if len(login) > 1 else ()),
            *options,
        ]
        self.nodes = [
            RedisServer(
                None, *settings, executable=executable, login=login, tls=tls, clock=WallClock() if clocks else None
            )
            for _ in range(size * (1 + replicas))
        ]
        self.moves: list[Move] = []  # those that have not ended
        self._cut: list[RedisServer] = []  # replicas that their masters do not reach
        self._ids: dict[str, RedisServer] = {}
        self._clients: list[Any] = []
        self._stack = ExitStack()

    # ------------------------------------------------------------ where it is

    @property
    def port(self) -> int:
        """Of the first node that answers, which leads to the others."""
        return self._awake()[0].port

    @property
    def url(self) -> str:
        """Every node."""
        hosts = ",".join(f"127.0.0.1:{node.announced_port}" for node in self.nodes)
        return f"redis+cluster://{self.nodes[0].userinfo}{hosts}"

    def client(self, **more: Any) -> Any:
        """A client for the test itself, closed when the Cluster is wiped or stopped."""
        import redis

        first = self._awake()[0]
        settings = {"host": "127.0.0.1", "port": first.announced_port, **credentials(self._login)}
        if self._tls:
            settings |= {"ssl": True, **self._tls.arguments()}
        client = redis.RedisCluster(**{**settings, **more})
        self._clients.append(client)
        return client

    # ------------------------------------------------------------ who is what

    @property
    def masters(self) -> list[RedisServer]:
        """Those that own slots, as the first node that answers sees it."""
        return self._those(lambda member: bool(member.slots))

    @property
    def replicas(self) -> list[RedisServer]:
        """All replicas, also those that do not run."""
        return self._those(lambda member: member.master != "-")

    def replicas_of(self, master: RedisServer) -> list[RedisServer]:
        """Those of one master, also those that do not run."""
        name = self.id_of(master)
        return self._those(lambda member: member.master == name)

    def _those(self, condition: Callable[[Member], bool]) -> list[RedisServer]:
        seen = self._seen()
        return [node for name, node in self._ids.items() if name in seen and condition(seen[name])]

    def node_of(self, key: str) -> RedisServer:
        """The master that owns the slot of this key."""
        return self.owner(self.slot_of(key))

    def slot_of(self, key: str) -> int:
        """Where this key belongs."""
        from redis.crc import key_slot

        return key_slot(key.encode())

    def owner(self, slot: int) -> RedisServer:
        """The master that owns this slot."""
        (owner,) = self._those(lambda member: member.owns(slot))
        return owner

    def id_of(self, node: RedisServer) -> str:
        """By which the nodes know it."""
        return next(name for name, one in self._ids.items() if one is node)

    # ------------------------------------------------------------ what happens to it

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """One slot with its keys, as ``redis-cli --cluster reshard`` moves it; then all nodes name the new owner."""
        self.begin_move(slot, source, target).end()

    def begin_move(self, slot: int, source: RedisServer, target: RedisServer) -> Move:
        """The same in steps: no key has moved yet, and both masters know that the slot is on its way."""
        self.moves.append(Move(self, slot, source, target))
        return self.moves[-1]

    def failover(self, master: RedisServer) -> RedisServer:
        """A replica takes over in peace, nothing is lost, and the master becomes its replica. Returns the new one."""
        replica = next(node for node in self.replicas_of(master) if node.awake)
        until(lambda: b"$9\r\nconnected" in replica.ask("ROLE"), "the replica is connected to its master")

        def promoted() -> bool:
            return replica.ask("ROLE").startswith(b"*3\r\n$6\r\nmaster")

        while not promoted():
            self.say(replica, "CLUSTER FAILOVER")
            end = time.monotonic() + 2 * MANUAL_FAILOVER
            until(lambda: promoted() or time.monotonic() > end, "the replica is promoted")  # noqa: B023 # called here
        self.settle()
        return replica

    def kill(self, master: RedisServer) -> RedisServer:
        """SIGKILL, and wait until a replica has taken over, which is returned."""
        slot = int(self._seen()[self.id_of(master)].slots[0].split("-")[0])
        replicas = self.replicas_of(master)
        master.kill()
        end = time.monotonic() + GIVEN_UP
        until(lambda: self._settled() or time.monotonic() > end, "a replica takes over")
        if not self._settled():  # on a busy machine an election may fail again and again
            for replica in [one for one in replicas if one.awake][:1]:
                replica.ask("CLUSTER FAILOVER TAKEOVER")
        self.settle()
        return self.owner(slot)

    def cut_replication(self, master: RedisServer) -> None:
        """From now on nothing reaches the replicas of this master; all nodes live on.

        As in ``RedisReplicas``: a replica that shows a wrong password is refused.
        """
        for replica in self.replicas_of(master):
            self.say(replica, f"CONFIG SET masterauth {CUT}")
            self._cut.append(replica)
            replica.ask("CLIENT KILL TYPE master")
            until(partial(_is_apart, replica), "the replica is cut off")

    def heal(self) -> None:
        """The links that were cut are there again, and the replicas in step."""
        while self._cut:
            replica = self._cut.pop()
            if replica.awake:
                self.say(replica, f'CONFIG SET masterauth "{self._login[-1] if self._login else ""}"')
        self.settle()

    def restart(self, node: RedisServer) -> None:
        """End a node in peace if it runs, start it, and wait until it has its place."""
        node.restart()
        self.settle()

    def settle(self) -> None:
        """Wait until all nodes that answer have the same view, every slot is served, and every replica is connected or
        cut off."""
        try:
            until(self._settled, "all nodes of the Cluster agree")
        except AssertionError as error:
            asked = ("CLUSTER NODES", "CLUSTER INFO", "ROLE")
            views = [f"{node.port}: {[node.ask(about) for about in asked]}" for node in self._awake()]
            raise AssertionError("\n".join([str(error), *views])) from None

    def wipe(self) -> None:
        """As it was when it was new: every node runs, no keys, no scripts, no clients. Roles and slots stay."""
        self._close_clients()
        self._end_those_with_another_clock()
        restore(self.nodes)
        self._set_clocks(0)
        self._cut = list(self.nodes)  # also one that a test has cut off by itself
        self.heal()
        masters = self.masters
        for master in masters:
            master.wipe()
            for move in self.moves:
                self.say(master, f"CLUSTER SETSLOT {move.slot} STABLE")  # no key is left that could be lost by it
        self.moves.clear()
        for node in self.nodes:
            if node not in masters:
                node.forget_clients()
                self.say(node, "SCRIPT FLUSH")
                until(partial(is_empty, node), "the replica is empty")

    # ------------------------------------------------------------ its life

    def __enter__(self) -> Self:
        self._set_clocks(AT_START)
        start_together(self.nodes)
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)
            stack.callback(self._close_clients)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            client: Any = node.client()
            self._ids[client.execute_command("CLUSTER MYID").decode()] = node
            self.say(node, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            if number < self._size:
                first, last = (SLOTS * at // self._size for at in (number, number + 1))
                client.execute_command("CLUSTER ADDSLOTS", *range(first, last))
        self._set_clocks(0)
        for number, node in enumerate(self.nodes):
            for other in self.nodes[:number]:
                self.say(node, f"CLUSTER MEET 127.0.0.1 {other.announced_port}")
        until(lambda: all(set(_view(node)) == set(self._ids) for node in self.nodes), "every node knows every other")
        for number, node in enumerate(self.nodes[self._size :]):
            self.say(node, f"CLUSTER REPLICATE {self.id_of(self.nodes[number % self._size])}")
        self.settle()

    def say(self, node: RedisServer, command: str) -> None:
        """Tell a node something; it must agree."""
        said = node.ask(command)
        assert said == b"+OK\r\n", (command, said)

    def _awake(self) -> list[RedisServer]:
        return [node for node in self.nodes if node.awake]

    def _seen(self) -> dict[str, Member]:
        return _view(self._awake()[0])

    def _settled(self) -> bool:
        nodes = self._awake()
        views = [_view(node) for node in nodes]
        self._lift(nodes, views)
        owners = {name: member for name, member in views[0].items() if member.slots}
        return (
            all(view == views[0] for view in views)
            and len({member.epoch for member in owners.values()}) == len(owners)
            and all(self._ids[name] in nodes for name in owners)
            and all(self._has_its_place(node, views[0][self.id_of(node)]) for node in nodes)
        )

    def _lift(self, nodes: list[RedisServer], views: list[dict[str, Member]]) -> None:
        """Help a replica that has taken over and is not believed.

        A replica that was elected a moment ago, was demoted and sees its master die takes the votes of then for new
        ones. It calls itself master with an epoch below that of the dead one, and would do so for ever.
        """
        dead = [member for view in views for name, member in view.items() if member.slots and not self._ids[name].awake]
        for node, view in zip(nodes, views, strict=True):
            own = view.get(self.id_of(node))
            if own and any(set(own.slots) & set(other.slots) and own.epoch < other.epoch for other in dead):
                node.ask("CLUSTER BUMPEPOCH")
            others = {other[self.id_of(node)] for other in views if self.id_of(node) in other and other is not view}
            if own and len(others) == 1 and own.slots != (believed := others.pop()).slots:
                self._remind(node, believed.numbers() - own.numbers())

    def _remind(self, node: RedisServer, slots: set[int]) -> None:
        """A promoted replica may have lost a slot that all others see at it, and would never serve it again. One that
        it sees at another it refuses, and that is right."""
        if slots:
            node.ask(f"CLUSTER ADDSLOTS {' '.join(map(str, sorted(slots)))}")

    def _has_its_place(self, node: RedisServer, member: Member) -> bool:
        said = node.ask("CLUSTER INFO")
        return (
            b"cluster_state:ok" in said
            and f"cluster_slots_ok:{SLOTS}".encode() in said
            and (member.master == "-" or node in self._cut or not _is_apart(node))
        )

    def _end_those_with_another_clock(self) -> None:
        """A node keeps moments of its clock (when it voted, when it saw too few others). Set back, it would neither
        vote nor serve until they have passed: so it starts anew."""
        for node in self.nodes:
            if isinstance(node.clock, WallClock) and node.clock.is_set:
                if node.runs:
                    node.kill()
                node.clock.set_off(AT_START)

    def _set_clocks(self, seconds: float) -> None:
        for node in self.nodes:
            if isinstance(node.clock, WallClock):
                node.clock.set_off(seconds)

    def _close_clients(self) -> None:
        while self._clients:
            self._clients.pop().close()
