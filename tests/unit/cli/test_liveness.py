"""Whether a holder is alive, as it can be known from one host, one container, or one user."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import leasehold
from leasehold._runtime.identity import host_instance
from leasehold.cli.liveness import FIRST_NAMESPACE, liveness, renewed_ago, renewed_lately
from leasehold.primitives.inspection import Holder
from leasehold.stores.place import here, is_at, place_of
from leasehold.stores.redis import connection
from leasehold.stores.redis.cluster import connection as cluster_connection

HERE = host_instance()
BOOT = 1_794_000_000  # seconds since 1970
BEGAN = BOOT + 1000  # of the lease
TICKS = os.sysconf("SC_CLK_TCK")


def holder(owner: str = f"{HERE}:4711", ago: float = 20.0, since: float | None = BEGAN) -> Holder:
    """A lease of 30 s that was renewed so many seconds ago."""
    began = None if since is None else datetime.fromtimestamp(since, UTC)
    return Holder(owner, 7, 30.0, 30.0 - ago, began, {})


class Proc:
    """A /proc of a host, as one of its users or containers sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "stat").write_text(f"cpu 1 2 3\nbtime {BOOT}\n")
        self.namespace(FIRST_NAMESPACE)
        self.process(1, "init", started=BOOT)

    def boot(self, name: str = "7c4d1f6e") -> None:
        """The kernel says which boot this is."""
        file = self.root / "sys" / "kernel" / "random" / "boot_id"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)

    def address(self, process: int | str = "self") -> str:
        """Where a holder gets its pushes that runs where this process does."""
        return f"lock:v1:push:{'A' * 12}{place_of(process, str(self.root))}"

    def namespace(self, name: str, process: int | str = "self") -> None:
        """The pid namespace of whoever looks, or of a process that is seen."""
        link = self.root / str(process) / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(
        self, pid: int, command: str = "python", state: str = "S", started: float = BEGAN - 5, own: int | None = None
    ) -> None:
        """One that runs; ``own`` is its pid in its own container."""
        folder = self.root / str(pid)
        folder.mkdir()
        fields = [state, *["0"] * 18, str(round((started - BOOT) * TICKS)), "0"]
        (folder / "stat").write_text(f"{pid} ({command}) {' '.join(fields)}\n")
        numbers = f"{pid}" if own is None else f"{pid}\t{own}"
        (folder / "status").write_text(f"Name:\t{command}\nNSpid:\t{numbers}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A host that runs nothing yet."""
    return Proc(tmp_path)


def test_its_process_runs_here(proc: Proc) -> None:
    """By its pid, whatever its renewals say. A command may be named anything."""
    proc.process(4711, command="odd) S 1 (name")
    assert liveness(holder(), proc=proc.root) == (True, "pid", "its process 4711 (odd) S 1 (name) runs on this host")


def test_a_stopped_process_runs_and_does_nothing(proc: Proc) -> None:
    """That is worth knowing."""
    proc.process(4711, state="T")
    found = liveness(holder(), proc=proc.root)
    assert found.alive and found.why.endswith("runs on this host, but it is stopped (SIGSTOP)")


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_is_dead(proc: Proc, state: str) -> None:
    """Its entry is there, and it will do nothing more."""
    proc.process(4711, state=state)
    assert liveness(holder(), proc=proc.root) == (False, "pid", "its process 4711 is gone from this host")


def test_a_pid_that_was_given_again(proc: Proc) -> None:
    """A process that began after the lease is another one. Clocks may differ a little."""
    proc.process(4711, started=BEGAN + 30)
    assert liveness(holder(), proc=proc.root).alive is True
    proc.process(4712, started=BEGAN + 300)
    found = liveness(holder(f"{HERE}:4712"), proc=proc.root)
    assert found == (False, "pid", "process 4712 here began after the lease: it is another one")


def test_a_host_that_was_started_again(proc: Proc) -> None:
    """Whatever runs there now is not the holder."""
    proc.process(4711)
    found = liveness(holder(since=BOOT - 3600), proc=proc.root)
    assert found == (False, "pid", "this host was started after the lease began")


def test_a_process_in_a_container_of_this_host(proc: Proc) -> None:
    """A process goes by the pid of its own namespace, which the host can look up."""
    proc.process(9120, own=4711)
    proc.process(4711, own=3)  # another one, which the host calls so
    found = liveness(holder(), proc=proc.root)
    assert found.alive and found.why.endswith("(python) runs in a container of this host (here it is 9120)")


def test_from_inside_a_container(proc: Proc) -> None:
    """The containers of a pod have one host name, and cannot see each other: no pid proves a death there."""
    proc.namespace("pid:[4026532201]")
    found = liveness(holder(), proc=proc.root)
    assert (found.alive, found.by) == (None, "renewals")
    assert "its process 4711 is gone from this host, but other containers" in found.why
    assert "it last renewed 20s ago, and a live holder renews every 10s: it is gone, frozen or cut off" in found.why


def test_processes_are_hidden_from_this_user(proc: Proc) -> None:
    """With hidepid not even the first process is seen."""
    (proc.root / "1" / "stat").unlink()
    assert liveness(holder(f"{HERE}:{2**22 + 1}"), proc=proc.root).alive is None
    assert "may not look at" in liveness(holder(f"{HERE}:{os.getpid()}"), proc=proc.root).why


def test_another_host(proc: Proc) -> None:
    """By its renewals alone: a process of the same number here is another one."""
    proc.process(4711)
    lately, late = (liveness(holder("db-3:4711", ago), proc=proc.root) for ago in (3.2, 20.0))
    why = "it runs on db-3, not on this host; it last renewed 3.2s ago, and a live holder renews every 10s"
    assert lately == (True, "renewals", why)
    assert late.alive is None and "or it does not renew" in late.why


def test_an_instance_of_another_name(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """LEASEHOLD_INSTANCE may be the same on many hosts: it says nothing about where a process runs."""
    monkeypatch.setenv("LEASEHOLD_INSTANCE", "worker")
    proc.process(4711)
    assert liveness(holder("worker:4711"), proc=proc.root).by == "renewals"


@pytest.mark.parametrize("owner", ["?", "web", "web:x", "web:0", "web:٣", ""])
def test_somebody_who_only_sets_the_key(proc: Proc, owner: str) -> None:
    """Neither a process nor a renewal is known."""
    seen = holder(owner, since=None)
    why = "it does not say which process it is, and nothing is known of its renewals"
    assert liveness(seen, proc=proc.root) == (None, "renewals", why)
    assert renewed_ago(seen) is None and not renewed_lately(seen)


def test_a_process_that_ends_while_it_is_read(proc: Proc) -> None:
    """Its folder may be empty by then, or half there."""
    (proc.root / "77").mkdir()
    proc.process(4711)
    assert liveness(holder(), proc=proc.root).alive


# ---------------------------------------------------------------- a holder whose place is known


CONTAINER, ANOTHER = "pid:[4026532201]", "pid:[4026532388]"
GONE = (False, "pid", "its process 4711 is gone from this host")


@pytest.fixture
def placed(proc: Proc) -> Proc:
    """The same, seen from inside a container of a kernel that knows its boot."""
    proc.boot()
    proc.namespace(CONTAINER)
    return proc


def test_a_holder_of_this_container(placed: Proc) -> None:
    """Whatever its name: by its pid, for certain, also that it is gone."""
    address = placed.address()
    assert liveness(holder(), address, placed.root) == liveness(holder("worker:4711"), address, placed.root) == GONE
    placed.process(4711)
    found = liveness(holder("worker:4711"), address, placed.root)
    assert found == (True, "pid", "its process 4711 (python) runs on this host")


def test_a_pid_that_was_given_again_in_this_container(placed: Proc) -> None:
    """A process that began after the lease is another one: here that is certain, too."""
    placed.process(4711, started=BEGAN + 300)
    found = liveness(holder(), placed.address(), placed.root)
    assert found == (False, "pid", "process 4711 there began after the lease: it is another one")


@pytest.mark.parametrize("change", ["boot", "namespace"])
def test_a_holder_of_another_place(placed: Proc, change: str) -> None:
    """The same host name and a process of the same number say nothing: it goes by its renewals."""
    address = placed.address()
    placed.process(4711)
    if change == "boot":
        placed.boot("another")
    else:
        placed.namespace(ANOTHER)
    late, lately = (liveness(holder(ago=ago), address, placed.root) for ago in (20.0, 3.0))
    assert (late.alive, late.by) == (None, "renewals") and (lately.alive, lately.by) == (True, "renewals")
    assert late.why.startswith("it runs in a container that cannot be seen from here, or on another host; ")
    assert liveness(holder("db-3:4711"), address, placed.root).why.startswith("it runs on db-3, not on this host; ")
    before = liveness(holder(since=BOOT - 3600), address, placed.root)
    assert before == (False, "pid", "this host was started after the lease began")


def test_the_containers_of_this_host(placed: Proc) -> None:
    """Two have a process of that number; the host sees which one it is, whatever name the container has."""
    placed.namespace(FIRST_NAMESPACE)
    for pid, namespace in ((9120, CONTAINER), (9300, ANOTHER)):
        placed.process(pid, own=4711)
        placed.namespace(namespace, pid)
    found = liveness(holder("0f3a9c:4711"), placed.address(9300), placed.root)
    assert found.alive and found.why.endswith("runs in a container of this host (here it is 9300)")
    address = placed.address(9300)
    (placed.root / "9300" / "ns" / "pid").unlink()  # of another user: this one may not look
    assert liveness(holder("0f3a9c:4711"), address, placed.root).by == "renewals"


def test_every_store_says_where_its_holders_run(tmp_path: Path) -> None:
    """Where this process runs, the address ends with it; stores on servers are tested with them."""
    for url in ("memory://", f"sqlite:///{tmp_path}/leases.db"):
        with leasehold.connect(url) as hold:
            assert is_at(hold._engine.holder_address(), here()), url
    for channel in (connection.new_channel(), cluster_connection.new_channel()):
        assert is_at(channel, here()), channel
    assert len(connection.new_channel()) == len("lock:v1:push:") + 16  # it is in every record
    assert not is_at("anything", "") and len(here()) == 4


def test_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that does nothing finds the process; on Windows it would end it."""
    me = holder(f"{HERE}:{os.getpid()}")
    assert liveness(me, proc=tmp_path / "none") == (True, "pid", f"a process {os.getpid()} runs on this host")
    assert liveness(holder(f"{HERE}:{2**22 + 1}"), proc=tmp_path / "none").alive is False
    assert liveness(holder(f"{HERE}:{10**30}"), proc=tmp_path / "none").alive is False
    monkeypatch.setattr("leasehold.cli.liveness.os.name", "nt")
    assert liveness(me, proc=tmp_path / "none").by == "renewals"


def test_this_very_host() -> None:
    """A child of ours is alive until it has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    now = datetime.now(UTC).timestamp()
    seen = holder(f"{HERE}:{child.pid}", since=now)
    assert liveness(seen).alive is True
    child.communicate(b"\n")
    assert liveness(seen).alive is not True
