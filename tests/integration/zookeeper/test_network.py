"""Replies that are lost, requests that come late, and members that are silent."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import SetData

from leasehold import OutcomeUnknown, StoreUnavailable
from leasehold.stores.record.requests import Change, Join, Look, Part, Tell
from leasehold.stores.zookeeper import calls
from leasehold.stores.zookeeper import session as session_module
from tests.integration.zookeeper.party import Calls, Party
from tests.support.faults.places import Places
from tests.support.servers.process import reserve
from tests.support.servers.proxy import Proxy, Verdict
from tests.support.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import until, until_async

Joining = Callable[..., Party]


class Ears:
    """Hears what clients send. From the first request on that holds this text, ``then`` is what becomes of them, until
    there is another connection."""

    def __init__(self, proxy: Proxy, text: bytes, then: Verdict = "pass") -> None:
        self.heard = 0
        self._proxy = proxy
        self._text = text
        self._then: Verdict = then
        self._connection = 0
        proxy.on_request = self

    def __call__(self, chunk: bytes) -> Verdict:
        """Of one chunk."""
        count = chunk.count(self._text)
        self.heard += count
        if count and self.heard == count:
            self._connection = self._proxy.count
        return self._then if self._connection == self._proxy.count else "pass"


@pytest.fixture
def behind(join: Joining, chroot: str, proxy: Proxy, flavour: str) -> Party:
    """A client that reaches the server through the network."""
    party = join(flavour, f"zk://127.0.0.1:{proxy.port}{chroot}")
    party.look("a")
    return party


def test_a_lost_reply_to_a_change(behind: Party, proxy: Proxy) -> None:
    """It is unknown to the one who requested it, and was done once."""
    ears = Ears(proxy, b"in the text", "cut_reply")
    with pytest.raises(OutcomeUnknown, match="broke before the answer came"):
        behind.change(Part("a", 0, "in the text"))
    record = behind.look("a")
    assert record.text == "in the text"
    assert ears.heard == 1


def test_a_reply_that_is_missing(behind: Party) -> None:
    """Whichever request the next reply is for, it is not believed. The session goes on."""
    client, session = behind.server._session._client, behind.session
    assert client is not None
    missing = calls.change("/x", b"", 0)
    assert missing.type == SetData.type  # it is sent
    client._pending.append((missing, missing, 0))
    with pytest.raises(OutcomeUnknown):
        behind.change(Part("a", 0, "in the text"))
    with pytest.raises(ConnectionLoss):
        missing.result()
    assert behind.look("a").text == "in the text"
    assert behind.session == session


def test_numbers_of_requests_go_on(behind: Party) -> None:
    """A number is given once in a session: ZooKeeper knows a request by both, also one that was sent through another
    member and comes late."""
    client = behind.server._session._client
    assert client is not None
    last = client._connection._xid
    client.hang_up()
    behind.look("a")
    assert client._connection._xid > last > 0


def test_a_change_that_did_not_arrive(behind: Party, proxy: Proxy) -> None:
    """It is unknown as well, and is not sent again."""
    ears = Ears(proxy, b"in the text", "cut_request")
    with pytest.raises(OutcomeUnknown):
        behind.change(Part("a", 0, "in the text"))
    assert behind.look("a").text is None
    assert ears.heard == 1


def test_a_lost_reply_to_a_join(behind: Party, proxy: Proxy) -> None:
    """The place is ours, and a look shows it."""
    Ears(proxy, b"in the text", "cut_reply")
    with pytest.raises(OutcomeUnknown):
        behind.change(Part("a", 0, "in the text", join=Join("me", "place")))
    assert [(place.owner, place.ours) for place in behind.look("a").places or ()] == [("me", True)]


def test_a_lost_reply_to_a_look(behind: Party, proxy: Proxy) -> None:
    """It looks again."""
    behind.write("a", "one")
    proxy.cut_replies(1)
    assert behind.look("a").text == "one"


def test_a_lost_reply_to_a_text(behind: Party, join: Joining, proxy: Proxy) -> None:
    """The hint may have reached whoever listens."""
    heard = Calls()
    other = join()
    other.server.hear("you", heard)
    other.look("a")
    Ears(proxy, b"a hint", "cut_reply")
    with pytest.raises(OutcomeUnknown):
        behind.one(Tell("you", "a hint"))
    heard.wait()


def test_a_late_change_does_nothing(behind: Party, join: Joining, proxy: Proxy) -> None:
    """It waits in the network until its sender has given up and others have moved on."""
    record = behind.write("a", "one")
    Ears(proxy, b"in the text", "hold")
    with pytest.raises(OutcomeUnknown, match="did not answer in time"):
        behind.change(Part("a", record.revision, "in the text", join=Join("me", "")), within=0.3)
    other = join()
    other.write("a", "two")
    proxy.on_request = None
    proxy.release()
    assert behind.look("a")[:2] == ("a", "two")
    assert behind.look("a").places == ()


def test_what_was_given_up_is_never_sent(behind: Party, proxy: Proxy) -> None:
    """Not even when the connection is back, although kazoo keeps a queue meanwhile. It was certainly not done."""
    ears = Ears(proxy, b"in the text")
    proxy.refuse()
    proxy.cut()
    until(lambda: behind.session == "", "it notices")
    with pytest.raises(StoreUnavailable, match="cannot be reached: Connection refused"):
        behind.change(Part("a", 0, "in the text"), within=0.3)
    proxy.accept()
    assert behind.look("a").text is None
    proxy.settle()
    assert ears.heard == 0


def test_given_up_in_kazoos_queue(behind: Party, join: Joining, proxy: Proxy) -> None:
    """Its thread was busy: the request waited in the queue, is withdrawn, and was certainly not done."""
    ears = Ears(proxy, b"in the text")
    release, fired = threading.Event(), threading.Event()

    def block(_: object) -> None:
        fired.set()
        release.wait()

    behind.server.watch_record(behind.look("b"), block)  # nobody may block there, and now somebody does
    join().write("b", "x")
    assert fired.wait(30)
    with pytest.raises(StoreUnavailable):
        behind.change(Part("a", 0, "in the text"), within=0.2)
    release.set()
    assert behind.look("a").text is None
    assert ears.heard == 0


def test_a_silent_network(behind: Party, proxy: Proxy) -> None:
    """A look fails, a change is unknown, each in its time. Afterwards all is well."""
    behind.write("a", "one")
    proxy.blackhole()
    answers = behind.perform(Look(("a",)), Change((Part("b", 0, "x"),)), within=0.3)
    assert [type(answer) for answer in answers] == [StoreUnavailable, OutcomeUnknown]
    proxy.release()
    proxy.cut()
    assert behind.look("a").text == "one"


def test_nobody_is_there(join: Joining, chroot: str, flavour: str) -> None:
    """It says so, and changes nothing."""
    with reserve() as place:
        party = join(flavour, f"zk://127.0.0.1:{place.getsockname()[1]}{chroot}")
        with pytest.raises(StoreUnavailable, match=r"ZooKeeper at 127.0.0.1:\d+ cannot be reached: Connection refused"):
            party.change(Part("a", 0, "x"), within=0.3)
    party = join(flavour, f"zk://no-such-host.invalid{chroot}")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        party.one(Look(("a",)), within=0.3)


@pytest.mark.parametrize("flavour", ["asyncio", pytest.param("threads", marks=pytest.mark.soak)])
def test_a_server_that_comes_back(join: Joining, chroot: str, flavour: str) -> None:
    """Records, places and the session are as they were."""
    with ZooKeeperServer() as server:
        party = join(flavour, server.url(chroot))
        place, session = party.wait_in("a", "me"), party.session
        server.kill()
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            party.change(Part("b", 0, "x"), within=0.2)
        server.start()
        assert party.look("a").places == (place,)
        assert party.session == session


def test_a_server_that_has_forgotten_everything(join: Joining, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the session for ever, as it has not seen what the client has seen. A new one is begun, and the tree is
    made again."""
    monkeypatch.setattr(session_module, "GONE_AFTER", 1.0)
    with ZooKeeperServer() as server:
        party = join(url=server.url(chroot), session="1")
        for number in range(20):
            party.write("a", str(number))
        server.kill()
        shutil.rmtree(server.folder / "data")
        server.start()
        assert party.look("a").text is None
        party.write("a", "again")


def test_the_event_loop_is_not_blocked(join: Joining, chroot: str, proxy: Proxy) -> None:
    """While it connects to a member that is silent, and while it waits for a reply."""
    proxy.blackhole()
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")

    async def main() -> None:
        turns = 0
        ended = asyncio.Event()

        async def turn() -> None:
            nonlocal turns
            while not ended.is_set():
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(turn())
        (failure,) = await party.server.perform_async([Look(("a",))], time.monotonic() + 0.5)
        assert isinstance(failure, StoreUnavailable)
        ended.set()
        await other
        assert turns > 100

    asyncio.run(main())


def test_a_task_that_is_cancelled(join: Joining, chroot: str, proxy: Proxy) -> None:
    """In the middle of a change: the next request has its own reply."""
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")
    party.look("a")

    async def main() -> None:
        late = time.monotonic() + 60
        proxy.hold_replies()
        task = asyncio.create_task(party.server.perform_async([Change((Part("a", 0, "x"),))], late))
        await until_async(lambda: proxy.waiting, "the server has answered")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.release()
        (sight,) = await party.server.perform_async([Look(("a", "b"))], late)
        assert [record.text for record in sight.records] == ["x", None]

    asyncio.run(main())


def test_many_threads_and_tasks_at_once(join: Joining) -> None:
    """On one session: each has its own reply, and no change is lost."""
    party = join()
    party.write("count", "0")

    def count(times: int) -> None:
        for _ in range(times):
            while True:
                record = party.look("count")
                outcome = party.change(Part("count", record.revision, str(int(record.text or 0) + 1)))
                if outcome.done:
                    break

    async def own(name: str) -> None:
        late = time.monotonic() + 60
        for number in range(5):
            (seen,) = await party.server.perform_async([Look((name,))], late)
            change = Change((Part(name, seen.records[0].revision, f"{name} {number}"),))
            (outcome,) = await party.server.perform_async([change], late)
            assert outcome.done
            assert outcome.records[0].text == f"{name} {number}"

    async def main() -> None:
        await asyncio.gather(*[own(f"task {number}") for number in range(150)])

    threads = [threading.Thread(target=count, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(main())
    for thread in threads:
        thread.join()
    assert party.look("count").text == "100"


def test_an_interrupt_at_every_place(join: Joining) -> None:
    """The next request has its own reply, and nothing is sent later that was not sent then."""
    party = join()
    party.write("a", "x")
    place = 0
    while True:
        place += 1
        record = party.look("a")
        text = f"interrupted at {place}"
        with Places(place) as places:
            try:
                party.server.perform([Change((Part("a", record.revision, text),))], time.monotonic() + 60)
            except KeyboardInterrupt:
                pass
        now = party.look("a")
        assert now.text in (text, record.text), places.where
        assert party.look("none").text is None
        assert party.look("a") == now, places.where
        if not places.where:
            break
    assert place > 50


def test_many_more_than_kazoo_has_room_for(join: Joining, chroot: str, proxy: Proxy) -> None:
    """Its thread stands still while a thousand requests are added one by one: nobody blocks, and all are answered."""
    party = join(url=f"zk://127.0.0.1:{proxy.port}{chroot}")
    release, fired, calls = threading.Event(), threading.Event(), [Calls() for _ in range(1000)]

    def block(_: object) -> None:
        fired.set()
        release.wait()

    record = party.look("a")
    party.server.watch_record(record, block)
    party.look("a")
    join().write("a", "x")
    assert fired.wait(30)
    for number, one in enumerate(calls):
        party.server.watch_record(record._replace(resource=f"other {number}", revision=1 << 64), one)
    release.set()
    assert party.look("a").text == "x"
    for one in calls:
        one.wait()
    assert [len(one.got) for one in calls] == [1] * 1000
