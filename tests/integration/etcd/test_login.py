"""Users, tokens that expire, rights, and TLS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.stores.etcd.server import EtcdRecords
from leasehold.stores.record.requests import Change, Look, Part, Record, Tell
from tests.integration.etcd.flavours import Connect, Perform, in_thread, join, look, mostly_asyncio, owners, write
from tests.support.servers.certificates import Certificates
from tests.support.servers.etcd import EtcdServer
from tests.support.waiting import until

USER = ("app", "p@ss/wo?rd")


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """An etcd with users, whose tokens are good for a second."""
    with EtcdServer(login=USER, token_ttl=1) as server:
        yield server


@pytest.fixture
def app(guarded: EtcdServer, connect: Connect) -> EtcdRecords:
    """Somebody who may read and write the keys under our prefix, and no others."""
    guarded.wipe()
    return connect(guarded.url)


def test_everything_works_with_a_user(app: EtcdRecords) -> None:
    """Records, places, watches and news."""
    first = write(app, "a", "one")
    join(app, "a", "me")
    fired: list[Record | None] = []
    app.watch_record(look(app, "a"), fired.append)
    second = write(app, "a", "two", first.revision)
    until(lambda: fired == [second], "it fires")
    heard: list[str] = []
    app.hear("me", heard.append)
    until(lambda: in_thread(app, Tell("me", "hello")), "it listens")
    until(lambda: heard, "it arrives")


@mostly_asyncio
def test_a_token_that_expired(app: EtcdRecords, guarded: EtcdServer, perform: Perform) -> None:
    """A new one is requested, and the request repeated: it was refused before anything was done."""
    first = write(app, "a", "one")
    token = app._gateway.token

    def expired() -> bool:
        time.sleep(2.1)  # each use would prolong it, and etcd looks once a second
        return guarded.post("kv/range", {"key": "YQ=="}, token=token)[0] == 401

    until(expired, "it expires")
    done = perform(app, Change((Part("a", first.revision, "two"),)))
    assert done.done and app._gateway.token != token


def test_a_waiter_outlives_its_token(app: EtcdRecords, short_lease: int) -> None:
    """Its lease is kept alive, and its watch set again."""
    first = write(app, "a", "one")
    join(app, "a", "me")
    time.sleep(short_lease + 0.5)
    assert owners(app, "a") == ["me"]
    fired: list[Record | None] = []
    app.watch_record(look(app, "a"), fired.append)
    write(app, "a", "two", first.revision)
    until(lambda: fired, "it fires")


def test_tokens_are_gone_after_a_restart(own_etcd: Callable[..., EtcdServer], connect: Connect) -> None:
    """Another login, and the call succeeds."""
    server = own_etcd(login=USER)
    records = connect(server.url)
    first = write(records, "a", "one")
    server.restart()
    assert in_thread(records, Change((Part("a", first.revision, "two"),))).done


def refused(reply: object, text: str) -> bool:
    """Is it a definite failure that says this?"""
    assert isinstance(reply, StoreUnavailable), reply
    assert text in str(reply), str(reply)
    return True


def test_logins_that_are_refused(guarded: EtcdServer, connect: Connect, perform: Perform) -> None:
    """One sentence says what is wrong, and nothing was done. The password is not shown."""
    place = f"127.0.0.1:{guarded.port}"
    change = Change((Part("a", 0, "one"),))
    assert refused(perform(connect(f"etcd://app:wrong@{place}"), change), "does not accept this user and password")
    assert refused(perform(connect(f"etcd://{place}"), change), "requires a user: write etcd://user:password@host")
    other = perform(connect(guarded.url.replace("/leasehold", "/elsewhere")), change)
    assert refused(other, "grant its role readwrite on the prefix")


def test_a_user_where_there_are_none(etcd: EtcdServer, connect: Connect, perform: Perform) -> None:
    """An etcd that knows no users takes everybody, as its own client does."""
    records = connect(f"etcd://somebody:secret@127.0.0.1:{etcd.port}")
    assert perform(records, Change((Part("a", 0, "one"),))).done


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def secure(certificates: Certificates) -> Iterator[EtcdServer]:
    """An etcd that requires a certificate of its clients."""
    with EtcdServer(tls=certificates) as server:
        yield server


def test_everything_works_over_tls(secure: EtcdServer, connect: Connect, perform: Perform) -> None:
    """Records, places, watches, and texts that take several records of TLS."""
    secure.wipe()
    records = connect(secure.url)
    long = "x" * 200_000
    assert perform(records, Change((Part("a", 0, long),))).done
    assert perform(records, Look(("a",))).records[0].text == long
    place = join(records, "a", "me")
    fired: list[Record | None] = []
    records.watch_place("a", place, fired.append)
    for number in range(20):
        records.watch_record(look(records, f"k:{number}"), fired.append)
    in_thread(records, Change((Part("a", look(records, "a").revision, "", leave=(place,)),)))
    for number in range(20):
        write(records, f"k:{number}", long)
    until(lambda: len(fired) == 21, "all fire")


def test_tls_that_does_not_fit(
    secure: EtcdServer, etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory, connect: Connect, perform: Perform
) -> None:
    """Nothing was done, and the error says what to do where that can be known."""
    change = Change((Part("a", 0, "one"),))
    plain = connect(f"etcd://127.0.0.1:{secure.port}")
    assert refused(perform(plain, Look(("a",))), "if it requires TLS, write etcds://")
    assert refused(perform(connect(f"etcds://127.0.0.1:{etcd.port}"), change), "if it does not use TLS, write etcd://")
    stranger = Certificates(tmp_path_factory.mktemp("stranger"))
    url = f"etcds://127.0.0.1:{secure.port}?ca={stranger.authority}&cert={stranger.client}"
    assert refused(perform(connect(url), change), "certificate")
    assert secure.tls is not None
    nobody = f"etcds://127.0.0.1:{secure.port}?ca={secure.tls.authority}"
    assert isinstance(perform(connect(nobody), Look(("a",))), StoreUnavailable)
