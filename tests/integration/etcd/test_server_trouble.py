"""An etcd in trouble: no space, too much at once, data of another time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from leasehold.errors import OutcomeUnknown, StoreUnavailable
from leasehold.stores.record.requests import Change, Look, Part
from tests.integration.etcd.flavours import Connect, Perform, look, mostly_asyncio, mostly_threads, write
from tests.support.servers.etcd import EtcdServer
from tests.support.waiting import until


@mostly_threads
def test_no_space(own_etcd: Callable[..., EtcdServer], connect: Connect, perform: Perform) -> None:
    """A change is unknown: etcd may have carried out the one that exceeds its quota. What to do is said, and looks go
    on."""
    server = own_etcd("--quota-backend-bytes=100000")
    records = connect(server.url)
    first = write(records, "a", "one")

    def fill() -> object:
        reply = perform(records, Change((Part("big", look(records, "big").revision, "x" * 50_000),)))
        return reply if isinstance(reply, Exception) else None

    error = until(fill, "there is no space left")
    assert isinstance(error, OutcomeUnknown) and "compact and defragment it" in str(error)
    error = perform(records, Change((Part("a", first.revision, "two"),)))
    assert isinstance(error, OutcomeUnknown) and "etcdctl alarm disarm" in str(error)
    assert perform(records, Look(("a",))).records[0].text == "one"


def test_a_text_that_is_too_long(etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """Nothing was done, and the error says why."""
    records = connect(etcd.url)
    error = perform(records, Change((Part("a", 0, "x" * 1_600_000),)))
    assert isinstance(error, StoreUnavailable) and "--max-request-bytes" in str(error)
    assert perform(records, Change((Part("a", 0, "x" * 1_000_000),))).done


@mostly_asyncio
def test_too_many_operations(own_etcd: Callable[..., EtcdServer], connect: Connect, perform: Perform) -> None:
    """An etcd that takes fewer than usual refuses: nothing was done."""
    records = connect(own_etcd("--max-txn-ops=10").url)
    error = perform(records, Change(tuple(Part(f"k:{number}", 0, "one") for number in range(20))))
    assert isinstance(error, StoreUnavailable) and "--max-txn-ops" in str(error)
    assert look(records, "k:1").text is None


@mostly_asyncio
def test_a_restart(own_etcd: Callable[..., EtcdServer], connect: Connect, perform: Perform) -> None:
    """What was confirmed is there, at the same revision; the connections are replaced."""
    server = own_etcd()
    records = connect(server.url)
    first = write(records, "a", "one")
    server.kill()
    assert isinstance(perform(records, Change((Part("a", first.revision, "two"),))), StoreUnavailable)
    server.start()
    assert perform(records, Change((Part("a", first.revision, "two"),))).done


@mostly_threads
def test_a_snapshot_that_was_restored(
    own_etcd: Callable[..., EtcdServer], connect: Connect, tmp_path: Path, perform: Perform
) -> None:
    """Revisions fall: a record is what it was then, and a change of a later revision is refused."""
    server = own_etcd()
    records = connect(server.url)
    first = write(records, "a", "one")
    server.snapshot(tmp_path / "snapshot.db")
    second = write(records, "a", "two", first.revision)
    server.restore_snapshot(tmp_path / "snapshot.db")
    refused = perform(records, Change((Part("a", second.revision, "three"),)))
    assert not refused.done and refused.records == (first._replace(places=()),)
    third = write(records, "a", "three", first.revision)
    assert third.revision == second.revision  # and nothing tells them apart
