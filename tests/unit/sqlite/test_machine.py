"""Which machine a file belongs to: reboots, moved files, containers, network file systems."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold._core import ops
from leasehold.errors import StoreUnavailable, Unsupported
from leasehold.stores.clock import ManualClock
from leasehold.stores.sqlite import SQLiteStore, file
from leasehold.stores.sqlite import file as machine
from tests.support.sqlite import ROOM, claim, look, take
from tests.support.tables import each

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid shared:5 - proc proc rw
30 22 0:40 / /home rw,relatime shared:9 - nfs4 files:/home rw,vers=4.2
31 30 254:1 / /home/local\040disk rw,relatime shared:10 master:2 propagate_from:3 - xfs /dev/vdb rw
32 22 0:41 /sub /srv/tab\011and\134slash rw - fuse.sshfs me@there: rw
33 22 0:42 / /over rw - cifs //server/share rw
34 22 254:2 / /over rw - btrfs /dev/vdc rw
broken line
35 22 0:43 / /homely rw - tmpfs tmpfs rw
"""


@each(
    ("path", "kind"),
    [
        ("/var/lib/x.db", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/x.db", "nfs4"),
        ("/home/local disk/x.db", "xfs"),
        ("/home/local disks/x.db", "nfs4"),
        ("/homely/x.db", "tmpfs"),
        ("/homelier/x.db", "ext4"),
        ("/srv/tab\tand\\slash/x.db", "fuse.sshfs"),
        ("/over/x.db", "btrfs"),
    ],
)
def test_the_longest_mount_point_wins(path: str, kind: str) -> None:
    """Whole parts of the path count, octal escapes are undone, a later mount covers an earlier one."""
    assert machine.find_mount(path, MOUNTS)[1] == kind


@each("kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre", "afs"])
def test_a_network_file_system_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by name, before the file is made."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - {kind} there:/ rw\n")
    monkeypatch.setattr(machine, "MOUNTS", str(mounts))
    path = tmp_path / "leases.db"
    with pytest.raises(StoreUnavailable, match=rf"network file system \({kind}\).*Choose a local path"):
        claim(SQLiteStore(str(path)), "a")
    assert not path.exists()


def test_a_link_to_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is where the file really lies."""
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - ext4 x rw\n23 22 0:2 / {tmp_path}/far rw - nfs there:/ rw\n")
    monkeypatch.setattr(machine, "MOUNTS", str(mounts))
    with pytest.raises(StoreUnavailable, match="nfs"):
        claim(SQLiteStore(str(tmp_path / "near" / "leases.db")), "a")


@pytest.mark.parametrize("made", [False, True])
def test_a_file_that_is_mounted_by_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """As in a container that is given one file in place of its folder: what SQLite keeps beside it is not shared with
    the others who use it, and two of them would hold at once."""
    path, mounts = tmp_path / "leases.db", tmp_path / "mountinfo"
    if made:
        path.touch()
    mounts.write_text(f"22 1 0:1 / / rw - ext4 x rw\n23 22 0:1 /srv/leases.db {path} rw - ext4 x rw\n")
    monkeypatch.setattr(machine, "MOUNTS", str(mounts))
    with pytest.raises(StoreUnavailable, match=r"is mounted by itself.*Mount its folder"):
        claim(SQLiteStore(str(path)), "a")


def test_without_mountinfo_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that hides its mounts is no reason to stop."""
    monkeypatch.setattr(machine, "MOUNTS", str(tmp_path / "absent"))
    assert machine.mount("/") == ("", "")


@pytest.mark.parametrize("written", ["'5'", "'null'", "'{}'", "'[[]]'", "x'ff'", "'['", "'[' || hex(zeroblob(9))"])
def test_a_list_of_machines_that_is_none(tmp_path: Path, written: str) -> None:
    """The boot id decides: the same kernel goes on, and another one is told that it is another machine."""
    path = tmp_path / "leases.db"
    store = SQLiteStore(str(path))
    take(store, "a", ttl_ms=60_000)
    store.close()
    for moved in (False, True):
        with closing(sqlite3.connect(path)) as file, file:
            file.execute(f"UPDATE meta SET value = {written} WHERE key = 'machines'")
            if moved:
                file.execute("UPDATE meta SET value = 'another' WHERE key = 'boot'")
        file.close()
        again = SQLiteStore(str(path))
        if moved:
            with pytest.raises(StoreUnavailable, match="last used by another machine"):
                look(again)
        else:
            assert look(again).holders[0].owner == "a"
        again.close()


def test_without_a_boot_id_the_store_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is silently weakened: no Linux, no embedded store."""
    monkeypatch.setattr(machine, "BOOT_ID", str(tmp_path / "absent"))
    with pytest.raises(Unsupported, match="needs Linux"):
        SQLiteStore(str(tmp_path / "leases.db"))


def test_the_machine_id_has_a_second_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file of dbus counts where /etc/machine-id is missing or empty; none at all is the empty text."""
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.write_text("\n")
    other.write_text("abc\n")
    monkeypatch.setattr(machine, "MACHINE_IDS", (str(empty), str(tmp_path / "absent"), str(other)))
    assert machine.machine_id() == "abc"
    monkeypatch.setattr(machine, "MACHINE_IDS", (str(empty),))
    assert machine.machine_id() == ""


class Machines:
    """Says which machine the next store runs on."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(path)
        self.clock = ManualClock()
        self._monkeypatch = monkeypatch
        self._made: list[SQLiteStore] = []

    def store(self, boot: str, machine_id: str) -> SQLiteStore:
        """A store of a process on that machine, since that boot."""
        self._monkeypatch.setattr(machine, "boot_id", lambda: boot)
        self._monkeypatch.setattr(machine, "machine_id", lambda: machine_id)
        store = SQLiteStore(self.path, self.clock)
        self._made.append(store)
        return store

    def close(self) -> None:
        """Close every store that is still open."""
        for store in self._made:
            store.close()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """One file, any number of machines."""
    with closing(Machines(tmp_path / "leases.db", monkeypatch)) as made:
        yield made


def test_after_a_reboot_leases_are_gone_and_fences_grow(machines: Machines) -> None:
    """Another boot id on the same machine: no process of then is alive, but guards remember (trap 14)."""
    before = machines.store("boot-1", "here")
    old = take(before, "a", floor=1_800_000_000_000_000)
    claim(before, "waits")
    before.close()
    after = machines.store("boot-2", "here")
    view = look(after)
    assert view.holders == ()
    assert view.queue == ()
    assert view.fence == old.fence
    assert take(after, "b").fence > old.fence
    assert after.execute(ops.Renew(ROOM, "a", old.fence, 1000)) == ops.NotYours("taken")
    after.close()


def test_rows_of_before_the_reboot_stay_old(machines: Machines) -> None:
    """A row that nobody has written since is from the old boot however often the file was opened."""
    before = machines.store("boot-1", "here")
    take(before, "a")
    before.close()
    machines.store("boot-2", "here").execute(ops.Inspect("another"))
    assert look(machines.store("boot-2", "here")).holders == ()


def test_a_file_of_another_machine_is_refused(machines: Machines) -> None:
    """Moved or shared: its times mean nothing here. It stays as it was."""
    store = machines.store("boot-1", "there")
    take(store, "a")
    store.close()
    with pytest.raises(StoreUnavailable, match=r"another machine.*own file"):
        look(machines.store("boot-2", "here"))
    assert len(look(machines.store("boot-1", "there")).holders) == 1


def test_the_same_kernel_is_the_same_machine(machines: Machines) -> None:
    """Containers of one host have different machine ids and one boot id; after a reboot both are known."""
    take(machines.store("boot-1", "one"), "a")
    assert len(look(machines.store("boot-1", "two")).holders) == 1
    assert look(machines.store("boot-2", "two")).holders == ()
    assert look(machines.store("boot-2", "one")).holders == ()


def test_a_machine_without_an_id_can_reboot(machines: Machines) -> None:
    """Many containers have none: a restart of their host must not lock them out."""
    take(machines.store("boot-1", ""), "a")
    assert look(machines.store("boot-2", "")).holders == ()


def test_a_second_machine_that_looks_like_ours_is_noticed(machines: Machines) -> None:
    """Cloned machines share their machine id: the first one finds rows of a boot that cannot have been."""
    first = machines.store("boot-1", "clone")
    take(first, "a")
    second = machines.store("boot-2", "clone")
    take(second, "b")
    with pytest.raises(StoreUnavailable, match="another machine"):
        claim(first, "c")


def test_known_machines_do_not_pile_up(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new name with each container: the last ones are kept."""
    monkeypatch.setattr(file, "KEPT_MACHINES", 3)
    for number in range(5):
        store = machines.store("boot-1", f"container-{number}")
        look(store)
        store.close()
    connection = sqlite3.connect(machines.path)
    (known,) = connection.execute("SELECT value FROM meta WHERE key = 'machines'").fetchone()
    connection.close()
    assert json.loads(known) == ["container-2", "container-3", "container-4"]
