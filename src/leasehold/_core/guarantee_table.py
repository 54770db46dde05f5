"""What holds on each store when something goes wrong: the table itself, one cell for each store and event.

A cell states three promises:

- exclusion (I1): no two holders believe in one lease at the same time;
- fences (I2): fences grow in the order of the grants, over every grant;
- guarded (I3): a guard accepts no fence that is lower than one it has seen. It holds wherever the record of the guard
  itself is kept: a guard on Redis is as durable as that Redis.

Each has one of the ``VERDICTS``. The sentence says why, and the test shows it: a loss is shown, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold._core.light_typing import NamedTuple

VERDICTS = {
    "holds": "it is kept",
    "refused": "it is kept, because nothing is granted meanwhile",
    "lost": "it can be broken",
    "never": "this cannot happen here",
}

STORES = {
    "memory": "memory://",
    "sqlite": "sqlite:///",
    "redis": "redis://",
    "sentinel": "redis+sentinel://",
    "cluster": "redis+cluster://",
    "redlock": "redlock://",
    "postgresql": "postgresql://",
    "etcd": "etcd://",
    "zookeeper": "zk://",
}

EVENTS = {
    "client_crash": "a holder crashes",
    "process_pause": "a holder is paused past its ttl",
    "server_pause": "the store stands still, and goes on",
    "partition": "the network is cut",
    "crash_none": "the store crashes, without persistence",
    "crash_snapshot": "the store crashes, with snapshots",
    "crash_everysec": "the store crashes, with appendfsync everysec",
    "crash_always": "the store crashes, with appendfsync always",
    "crash_file": "the host loses power, and the store is a file",
    "crash_synchronous": "the store crashes, with a logged table and synchronous_commit on",
    "crash_asynchronous": "the store crashes, with a logged table and synchronous_commit off",
    "crash_unlogged": "the store crashes, with an unlogged table",
    "crash_ensemble": "all members of an ensemble crash, with their disks kept",
    "failover": "a replica takes over",
    "failover_synchronous": "a synchronous standby takes over",
    "slot_move": "slots move to another node",
    "clock_forward": "the clock of the store is set forward",
    "clock_back": "the clock of the store is set back",
    "clock_back_and_loss": "its clock is behind, and it has lost its data",
    "eviction": "it evicts keys, because memory is short",
    "flush": "all data is deleted",
    "restore": "it is restored from a backup",
}


class Cell(NamedTuple):
    """What holds on one store when one thing happens."""

    exclusion: str
    fences: str
    guarded: str
    why: str
    test: str  # the id that pytest gives it; empty where this cannot happen

    def shown_by(self, test: str) -> Cell:
        return self._replace(test=test)


def _holds(why: str, test: str = "") -> Cell:
    return Cell("holds", "holds", "holds", why, test)


def _refused(why: str, test: str = "") -> Cell:
    return Cell("refused", "holds", "holds", why, test)


def _lost(why: str, test: str = "", *, fences: str = "holds") -> Cell:
    return Cell("lost", fences, "holds", why, test)


def never(why: str) -> Cell:
    """An event that cannot happen."""
    return Cell("never", "never", "never", why, "")


# ---------------------------------------------------------------- one process, one host

MEMORY = "tests/integration/guarantees/test_memory.py"
SQLITE = "tests/integration/guarantees/test_sqlite.py"
NO_SERVER = never("There is no server.")
NO_REPLICAS = never("There are no replicas.")
NO_SLOTS = never("There are no slots.")
NO_TABLE = never("There is no table of a database server.")
NO_TABLES = {"crash_synchronous": NO_TABLE, "crash_asynchronous": NO_TABLE, "crash_unlogged": NO_TABLE}
NO_CONSENSUS = {"crash_ensemble": never("There is no log that a majority of members agrees on.")}
ASYNCHRONOUS = never("Replication of Redis is asynchronous.")
NO_NETWORK = never("There is no network between the store and its users.")
NO_EVICTION = never("It never deletes what is held to save memory.")

_memory = {
    "client_crash": _holds(
        "A crash of the process ends the store as well; a lease of a thread that ends is given back or runs out.",
        f"{MEMORY}::test_a_thread_ends_with_its_lease",
    ),
    "process_pause": _holds(
        "All users of the store are paused together, and the time that passes counts for all of them.",
        f"{MEMORY}::test_the_process_is_paused",
    ),
    "server_pause": NO_SERVER,
    "partition": NO_NETWORK,
    "crash_none": _holds(
        "The store ends with its process, and so do all holders; fences go on from the clock.",
        f"{MEMORY}::test_the_process_is_killed",
    ),
    "crash_snapshot": NO_SERVER,
    "crash_everysec": NO_SERVER,
    "crash_always": NO_SERVER,
    "crash_file": never("Nothing is written to a file."),
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": NO_REPLICAS,
    "failover_synchronous": NO_REPLICAS,
    "slot_move": NO_SLOTS,
    "clock_forward": _holds(
        "Leases run on a clock that is never set.", f"{MEMORY}::test_the_wall_clock_is_set_forward"
    ),
    "clock_back": _holds(
        "Leases run on a clock that is never set, and the last fence is remembered.",
        f"{MEMORY}::test_the_wall_clock_is_set_back",
    ),
    "clock_back_and_loss": Cell(
        "holds",
        "lost",
        "holds",
        "A new process starts empty, and its clock is below the fences of the one before: guards refuse its leases "
        "until it has learnt the higher fence.",
        f"{MEMORY}::test_a_new_process_whose_clock_is_behind",
    ),
    "eviction": NO_EVICTION,
    "flush": never("Nothing outside the process can delete it."),
    "restore": never("There is no backup."),
}

_sqlite = {
    "client_crash": _holds(
        "The lease ends when its ttl is over, and the next waiter gets it.",
        f"{SQLITE}::test_a_killed_holder",
    ),
    "process_pause": _holds(
        "The lease ends and passes on while its holder stands still; a write that the holder sends afterwards is "
        "refused by a guard, and by nothing else.",
        f"{SQLITE}::test_a_frozen_holder",
    ),
    "server_pause": _refused(
        "A process that is frozen inside a transaction locks the file: all other calls fail, and leases are lost, "
        "never doubled.",
        f"{SQLITE}::test_a_process_is_frozen_inside_a_transaction",
    ),
    "partition": never("The file is on a local disk: a network file system is refused."),
    "crash_none": NO_SERVER,
    "crash_snapshot": NO_SERVER,
    "crash_everysec": NO_SERVER,
    "crash_always": NO_SERVER,
    "crash_file": _holds(
        "A reboot ends every lease, whatever the file lacks, and all holders were on the same host; fences go on from "
        "the file and the clock.",
        f"{SQLITE}::test_the_host_loses_power",
    ),
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": NO_REPLICAS,
    "failover_synchronous": NO_REPLICAS,
    "slot_move": NO_SLOTS,
    "clock_forward": _holds(
        "Leases run on the time since boot, which is never set.", f"{SQLITE}::test_the_wall_clock_is_set_forward"
    ),
    "clock_back": _holds(
        "Leases run on the time since boot, and the last fence is in the file.",
        f"{SQLITE}::test_the_wall_clock_is_set_back",
    ),
    "clock_back_and_loss": _lost(
        "A file that was deleted knows no fence, and the clock is below the last one: guards refuse the new holders "
        "until they have learnt the higher fence.",
        f"{SQLITE}::test_the_file_is_deleted_while_the_clock_is_behind",
        fences="lost",
    ),
    "eviction": NO_EVICTION,
    "flush": _lost(
        "The file is deleted, or its disk fails: leases may be granted again before their holders notice, at their "
        "next renewal.",
        f"{SQLITE}::test_the_file_is_deleted_under_a_holder",
    ),
    "restore": _lost(
        "Leases that were granted after the copy was made are unknown, and may be granted again.",
        f"{SQLITE}::test_an_older_copy_of_the_file_is_put_back",
    ),
}

# ---------------------------------------------------------------- Redis: one server decides

REDIS = "tests/integration/guarantees/test_redis.py"

CRASHED_HOLDER = _holds("The lease ends when its ttl is over, and the next waiter gets it.")
PAUSED_HOLDER = _holds(
    "The lease ends and passes on while its holder stands still; a write that the holder sends afterwards is refused "
    "by a guard, and by nothing else."
)
CLOCK_FORWARD = _lost(
    "Keys end early by the size of the step, and may be granted again before their holders notice, at their next "
    "renewal."
)
CLOCK_BACK = _holds("No holder believes in more than the ttl it asked for, and the last fence is stored for a day.")
EVICTED = _lost(
    "Every key of a lease has a TTL, so any maxmemory-policy but noeviction may delete a lease that is held; connect "
    "warns of it."
)
FLUSHED = _lost("Leases are gone, and may be granted again before their holders notice; fences go on from the clock.")
RESTORED = _lost(
    "Leases that were granted after the backup are unknown, and may be granted again; fences go on from the clock."
)

_redis = {
    "client_crash": CRASHED_HOLDER.shown_by(f"{REDIS}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{REDIS}::test_a_frozen_holder"),
    "server_pause": _refused(
        "Nothing is granted while it stands still, and holders stop before their deadline: leases are lost, never "
        "doubled.",
        f"{REDIS}::test_the_server_stands_still",
    ),
    "partition": _refused(
        "A client that cannot reach the server is granted nothing, and a holder that cannot renew stops before its "
        "deadline.",
        f"{REDIS}::test_the_network_is_cut",
    ),
    "crash_none": _lost(
        "Every lease is gone, and may be granted again at once; fences go on from the clock.",
        f"{REDIS}::test_kill_9_without_persistence",
    ),
    "crash_snapshot": _lost(
        "Leases that were granted after the last snapshot are gone, and may be granted again.",
        f"{REDIS}::test_kill_9_between_two_snapshots",
    ),
    "crash_everysec": _lost(
        "kill -9 loses nothing that was written, but a power failure loses up to the last second of grants.",
        f"{REDIS}::test_kill_9_and_a_cut_tail_under_appendfsync_everysec",
    ),
    "crash_always": _holds(
        "A grant is on the disk before it is answered.", f"{REDIS}::test_kill_9_under_appendfsync_always"
    ),
    "crash_file": never("Its persistence decides: see the lines above."),
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": never("One server has no replica that takes over: behind Sentinel or a managed service, see there."),
    "failover_synchronous": never("One server has no standby."),
    "slot_move": NO_SLOTS,
    "clock_forward": CLOCK_FORWARD.shown_by(f"{REDIS}::test_the_clock_is_set_forward_under_a_holder"),
    "clock_back": CLOCK_BACK.shown_by(f"{REDIS}::test_the_clock_is_set_back_under_a_holder"),
    "clock_back_and_loss": _lost(
        "Fences can be lower than before until the clock has caught up: guards refuse them, and a coordinator that was "
        "refused asks for more.",
        f"{REDIS}::test_wiped_while_the_clock_is_behind",
        fences="lost",
    ),
    "eviction": EVICTED.shown_by(f"{REDIS}::test_a_lease_is_evicted_while_it_is_held"),
    "flush": FLUSHED.shown_by(f"{REDIS}::test_flushall_under_a_holder"),
    "restore": RESTORED.shown_by(f"{REDIS}::test_a_backup_is_put_back"),
}

# ---------------------------------------------------------------- Redis: one of several servers decides

SENTINEL = "tests/integration/guarantees/test_sentinel.py"
CLUSTER = "tests/integration/guarantees/test_cluster.py"

REPLICA_LACKS = "a replica takes over that may lack the last grants"
FAILOVER = _lost(
    "Replication is asynchronous: a grant that only the old primary had is unknown to the new one. Fences grow unless "
    'the clock of the replica is behind by more than the outage. durability="replicas:1" makes the loss rarer, not '
    "impossible."
)
CRASH_EMPTY = _lost(
    f"A primary that is back before anybody noticed is empty, and its replicas follow it; otherwise {REPLICA_LACKS}."
)
CRASH_OLDER = _lost(f"A primary that is back before anybody noticed lacks its last grants; otherwise {REPLICA_LACKS}.")
CRASH_WHOLE = _lost(f"What the primary has on its disk is no help when {REPLICA_LACKS}.")
REPLICA_BEHIND = _lost(
    "A replica that takes over with a clock that is behind can mint lower fences than before: guards refuse them, and "
    "a coordinator that was refused asks for more.",
    fences="lost",
)

_sentinel = {
    "client_crash": CRASHED_HOLDER.shown_by(f"{SENTINEL}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{SENTINEL}::test_a_frozen_holder"),
    "server_pause": _lost(
        "Sentinels promote a replica, which may lack the last grants; what the old primary answers when it goes on is "
        "not believed, except for one second at most after a Sentinel has last named it.",
        f"{SENTINEL}::test_a_primary_is_stopped_and_comes_back",
    ),
    "partition": _lost(
        "A client that is cut off together with the old primary keeps its leases there and gets new ones, beside those "
        "of the new primary, until the network is whole: both grant, and their fences follow two clocks. "
        "min-replicas-to-write bounds that.",
        f"{SENTINEL}::test_a_primary_is_cut_off_from_its_sentinels",
        fences="lost",
    ),
    "crash_none": CRASH_EMPTY.shown_by(f"{SENTINEL}::test_kill_9_of_a_primary_without_persistence"),
    "crash_snapshot": CRASH_OLDER.shown_by(f"{SENTINEL}::test_kill_9_of_a_primary_between_two_snapshots"),
    "crash_everysec": CRASH_OLDER.shown_by(f"{SENTINEL}::test_kill_9_of_a_primary_under_appendfsync_everysec"),
    "crash_always": CRASH_WHOLE.shown_by(f"{SENTINEL}::test_kill_9_of_a_primary_under_appendfsync_always"),
    "crash_file": _redis["crash_file"],
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": FAILOVER.shown_by(f"{SENTINEL}::test_failover_with_the_link_cut"),
    "failover_synchronous": ASYNCHRONOUS,
    "slot_move": NO_SLOTS,
    "clock_forward": CLOCK_FORWARD.shown_by(f"{SENTINEL}::test_the_clock_of_the_primary_is_set_forward"),
    "clock_back": CLOCK_BACK.shown_by(f"{SENTINEL}::test_the_clock_of_the_primary_is_set_back"),
    "clock_back_and_loss": REPLICA_BEHIND.shown_by(f"{SENTINEL}::test_a_promoted_replica_whose_clock_is_behind"),
    "eviction": EVICTED.shown_by(f"{SENTINEL}::test_a_lease_is_evicted_while_it_is_held"),
    "flush": FLUSHED.shown_by(f"{SENTINEL}::test_flushall_on_the_primary"),
    "restore": RESTORED.shown_by(f"{SENTINEL}::test_a_backup_is_put_back"),
}

_cluster = {
    "client_crash": CRASHED_HOLDER.shown_by(f"{CLUSTER}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{CLUSTER}::test_a_frozen_holder"),
    "server_pause": _lost(
        "A replica of that node is promoted, which may lack the last grants; other slots are not affected.",
        f"{CLUSTER}::test_a_primary_is_stopped_and_comes_back",
    ),
    "partition": _lost(
        "A primary without the majority stops after cluster-node-timeout, and a replica takes over that may lack its "
        "last grants; holders on the other side believe in those until their deadline.",
        f"{CLUSTER}::test_a_minority_is_cut_off_and_healed",
    ),
    "crash_none": CRASH_EMPTY.shown_by(f"{CLUSTER}::test_kill_9_of_a_primary_without_persistence"),
    "crash_snapshot": CRASH_OLDER.shown_by(f"{CLUSTER}::test_kill_9_of_a_primary_between_two_snapshots"),
    "crash_everysec": CRASH_OLDER.shown_by(f"{CLUSTER}::test_kill_9_of_a_primary_under_appendfsync_everysec"),
    "crash_always": CRASH_WHOLE.shown_by(f"{CLUSTER}::test_kill_9_of_a_primary_under_appendfsync_always"),
    "crash_file": _redis["crash_file"],
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": FAILOVER.shown_by(f"{CLUSTER}::test_failover_with_the_link_cut"),
    "failover_synchronous": ASYNCHRONOUS,
    "slot_move": _holds(
        "The keys of a resource share a slot and move together with their ends; meanwhile the answer is a definite no, "
        "and the call is repeated.",
        f"{CLUSTER}::test_a_slot_moves_during_a_thousand_handoffs",
    ),
    "clock_forward": CLOCK_FORWARD.shown_by(f"{CLUSTER}::test_the_clock_of_a_primary_is_set_forward"),
    "clock_back": CLOCK_BACK.shown_by(f"{CLUSTER}::test_the_clock_of_a_primary_is_set_back"),
    "clock_back_and_loss": REPLICA_BEHIND.shown_by(f"{CLUSTER}::test_a_promoted_replica_whose_clock_is_behind"),
    "eviction": EVICTED.shown_by(f"{CLUSTER}::test_a_lease_is_evicted_while_it_is_held"),
    "flush": _lost(
        "On one primary the leases of its slots are gone, on all of them every lease; they may be granted again before "
        "their holders notice.",
        f"{CLUSTER}::test_flushall_on_one_node_and_on_all",
    ),
    "restore": RESTORED.shown_by(f"{CLUSTER}::test_a_backup_is_put_back"),
}

# ---------------------------------------------------------------- Redlock: a majority decides

REDLOCK = "tests/integration/guarantees/test_redlock.py"
QUARANTINE = _holds(
    "A node that was restarted does not count for max_ttl, so no lease that it forgot can still be held; when a "
    "majority was restarted, nothing is granted for max_ttl."
)

_redlock = {
    "client_crash": _holds("Its keys end on every node when the ttl is over.", f"{REDLOCK}::test_a_killed_holder"),
    "process_pause": _holds(
        "Validity is computed after the last reply, so a grant that comes too late is not entered; a write that the "
        "holder sends after its deadline is refused by a guard, and by nothing else.",
        f"{REDLOCK}::test_pause_in_flight",
    ),
    "server_pause": _holds(
        "The others are a majority, and do not wait for it; without a majority nothing is granted.",
        f"{REDLOCK}::test_a_minority_stands_still_and_goes_on",
    ),
    "partition": _refused(
        "Without a majority nothing is granted; with one, any other majority shares a node with it.",
        f"{REDLOCK}::test_a_minority_is_cut_off_and_healed",
    ),
    "crash_none": QUARANTINE.shown_by(f"{REDLOCK}::test_restart_without_persistence"),
    "crash_snapshot": QUARANTINE.shown_by(f"{REDLOCK}::test_restart_between_two_snapshots"),
    "crash_everysec": QUARANTINE.shown_by(f"{REDLOCK}::test_restart_under_appendfsync_everysec"),
    "crash_always": QUARANTINE.shown_by(f"{REDLOCK}::test_restart_under_appendfsync_always"),
    "crash_file": _redis["crash_file"],
    **NO_TABLES,
    **NO_CONSENSUS,
    "failover": never("Nodes are independent: a replica, or several nodes of one Cluster, are refused."),
    "failover_synchronous": never("Nodes are independent of each other."),
    "slot_move": NO_SLOTS,
    "clock_forward": _lost(
        "Keys of one node end early, and its vote goes to another before it is noticed that it is more than 500 ms off "
        "the median, or when it is put right again.",
        f"{REDLOCK}::test_the_clock_of_one_node_jumps_forward",
    ),
    "clock_back": _holds(
        "Keys of that node last longer, and it does not count while it is more than 500 ms off the median; the fence "
        "is the maximum over a majority.",
        f"{REDLOCK}::test_the_clock_of_one_node_jumps_back",
    ),
    "clock_back_and_loss": Cell(
        "refused",
        "lost",
        "holds",
        "One such node changes nothing, because the fence is the maximum over a majority; when all nodes have lost "
        "their data and their clocks are behind, fences can be lower than before, and guards refuse them.",
        f"{REDLOCK}::test_all_nodes_are_wiped_while_their_clocks_are_behind",
    ),
    "eviction": _lost(
        "A node that evicts a lease gives its vote to another without being noticed, unless it evicts its marker too: "
        "then it does not count for max_ttl. connect warns of every maxmemory-policy but noeviction.",
        f"{REDLOCK}::test_one_node_evicts_a_lease",
    ),
    "flush": _holds(
        "A node whose marker is gone does not count for max_ttl; when all are flushed, nothing is granted for max_ttl.",
        f"{REDLOCK}::test_flushall_on_one_node_and_on_all",
    ),
    "restore": QUARANTINE.shown_by(f"{REDLOCK}::test_a_backup_of_one_node_is_put_back"),
}

# ---------------------------------------------------------------- PostgreSQL: one server decides

POSTGRESQL = "tests/integration/guarantees/test_postgresql.py"
NO_REDIS = never("It has no snapshots and no appendonly file: its log decides.")

_postgresql = {
    "client_crash": CRASHED_HOLDER.shown_by(f"{POSTGRESQL}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{POSTGRESQL}::test_a_frozen_holder"),
    "server_pause": _redis["server_pause"].shown_by(f"{POSTGRESQL}::test_the_server_stands_still"),
    "partition": _redis["partition"].shown_by(f"{POSTGRESQL}::test_the_network_is_cut"),
    "crash_none": NO_REDIS,
    "crash_snapshot": NO_REDIS,
    "crash_everysec": NO_REDIS,
    "crash_always": NO_REDIS,
    "crash_file": never("Its log decides: see the lines below."),
    "crash_synchronous": _holds(
        "A grant is in the log on the disk before it is answered.", f"{POSTGRESQL}::test_kill_9_of_the_server"
    ),
    "crash_asynchronous": _lost(
        "The grants of the last moments, three times wal_writer_delay, may be gone, and may be granted again; fences "
        "go on from the clock.",
        f"{POSTGRESQL}::test_kill_9_with_synchronous_commit_off",
    ),
    "crash_unlogged": _lost(
        "The table is empty after a crash, and every lease may be granted again at once; fences go on from the clock.",
        f"{POSTGRESQL}::test_kill_9_with_an_unlogged_table",
    ),
    **NO_CONSENSUS,
    "failover": _lost(
        "An asynchronous standby may lack the last grants, and every standby lacks an unlogged table. Fences grow "
        "unless the clock of the standby is behind by more than the outage.",
        f"{POSTGRESQL}::test_an_asynchronous_standby_is_promoted",
    ),
    "failover_synchronous": _holds(
        "A grant is on the standby before it is answered, where synchronous_standby_names names it and "
        "synchronous_commit is on; an old primary without its standby confirms nothing.",
        f"{POSTGRESQL}::test_a_synchronous_standby_is_promoted",
    ),
    "slot_move": NO_SLOTS,
    "clock_forward": _lost(
        "Leases end early by the size of the step, and may be granted again before their holders notice, at their next "
        "renewal.",
        f"{POSTGRESQL}::test_the_clock_is_set_forward_under_a_holder",
    ),
    "clock_back": CLOCK_BACK.shown_by(f"{POSTGRESQL}::test_the_clock_is_set_back_under_a_holder"),
    "clock_back_and_loss": _redis["clock_back_and_loss"].shown_by(
        f"{POSTGRESQL}::test_emptied_while_the_clock_is_behind"
    ),
    "eviction": NO_EVICTION,
    "flush": FLUSHED.shown_by(f"{POSTGRESQL}::test_the_table_is_truncated_under_a_holder"),
    "restore": RESTORED.shown_by(f"{POSTGRESQL}::test_a_backup_is_put_back"),
}

# ---------------------------------------------------------------- etcd and ZooKeeper: a majority of members decides

ETCD = "tests/integration/guarantees/test_etcd.py"
ZOOKEEPER = "tests/integration/guarantees/test_zookeeper.py"

NO_STANDBY = never("A new leader has every grant: see the line above.")
ITS_LOG = never("The log of its members decides: see the line of an ensemble below.")
CRASHES = {event: ITS_LOG for event in EVENTS if event.startswith("crash_")}

UNWATCHED_HOLDER = _holds(
    "The lease ends when the next waiter has watched it unchanged for its ttl; what etcd or ZooKeeper says of a "
    "session ends none."
)
STOPPED_MAJORITY = _refused(
    "While a majority stands still nothing is granted, and holders stop before their deadline: leases are lost, never "
    "doubled."
)
CUT_OFF_MINORITY = _refused(
    "On the side of a minority nothing is granted, and a holder there stops before its deadline; the majority goes on."
)
NEW_LEADER = _holds("A grant is confirmed by a majority, so every later leader has it; the lease goes on.")
BIG_STEP = _lost(
    "A step of more than 60 seconds lets a process that has not watched a lease take it over before its end; those who "
    "watched it count on the time since boot, which is never set."
)
CLOCK_IS_BEHIND = _holds(
    "Leases run on the time since boot of those who hold and watch them, and the last fence is in the record."
)

_etcd = {
    "client_crash": UNWATCHED_HOLDER.shown_by(f"{ETCD}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{ETCD}::test_a_frozen_holder"),
    "server_pause": STOPPED_MAJORITY.shown_by(f"{ETCD}::test_the_server_stands_still"),
    "partition": CUT_OFF_MINORITY.shown_by(f"{ETCD}::test_a_minority_is_cut_off"),
    **CRASHES,
    "crash_ensemble": _holds(
        "A grant is synced to the disks of a majority before it is answered.",
        f"{ETCD}::test_kill_9_of_all_members",
    ),
    "failover": NEW_LEADER.shown_by(f"{ETCD}::test_kill_9_of_the_leader"),
    "failover_synchronous": NO_STANDBY,
    "slot_move": NO_SLOTS,
    "clock_forward": BIG_STEP.shown_by(f"{ETCD}::test_the_clock_is_set_forward_under_a_holder"),
    "clock_back": CLOCK_IS_BEHIND.shown_by(f"{ETCD}::test_the_clock_is_set_back_under_a_holder"),
    "clock_back_and_loss": _redis["clock_back_and_loss"].shown_by(f"{ETCD}::test_emptied_while_the_clock_is_behind"),
    "eviction": NO_EVICTION,
    "flush": FLUSHED.shown_by(f"{ETCD}::test_all_keys_are_deleted_under_a_holder"),
    "restore": RESTORED.shown_by(f"{ETCD}::test_a_snapshot_is_restored"),
}

_zookeeper = {
    "client_crash": UNWATCHED_HOLDER.shown_by(f"{ZOOKEEPER}::test_a_killed_holder"),
    "process_pause": PAUSED_HOLDER.shown_by(f"{ZOOKEEPER}::test_a_frozen_holder"),
    "server_pause": STOPPED_MAJORITY.shown_by(f"{ZOOKEEPER}::test_the_server_stands_still"),
    "partition": CUT_OFF_MINORITY.shown_by(f"{ZOOKEEPER}::test_a_minority_is_cut_off"),
    **CRASHES,
    "crash_ensemble": _holds(
        "A grant is in the logs of a majority before it is answered, and on their disks unless forceSync is off.",
        f"{ZOOKEEPER}::test_kill_9_of_all_members",
    ),
    "failover": NEW_LEADER.shown_by(f"{ZOOKEEPER}::test_kill_9_of_the_leader"),
    "failover_synchronous": NO_STANDBY,
    "slot_move": NO_SLOTS,
    "clock_forward": BIG_STEP.shown_by(f"{ZOOKEEPER}::test_the_clock_is_set_forward_under_a_holder"),
    "clock_back": CLOCK_IS_BEHIND.shown_by(f"{ZOOKEEPER}::test_the_clock_is_set_back_under_a_holder"),
    "clock_back_and_loss": _redis["clock_back_and_loss"].shown_by(
        f"{ZOOKEEPER}::test_emptied_while_the_clock_is_behind"
    ),
    "eviction": NO_EVICTION,
    "flush": FLUSHED.shown_by(f"{ZOOKEEPER}::test_all_nodes_are_deleted_under_a_holder"),
    "restore": RESTORED.shown_by(f"{ZOOKEEPER}::test_a_backup_is_put_back"),
}

TABLE: Mapping[str, Mapping[str, Cell]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": _redis,
    "sentinel": _sentinel,
    "cluster": _cluster,
    "redlock": _redlock,
    "postgresql": _postgresql,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
}
"""By store and event. A store that is added states every event."""
