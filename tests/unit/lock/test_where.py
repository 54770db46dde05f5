"""Where a coordinator keeps its leases: said in its repr, its properties and the log, and refused where it was not
meant."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.parties import FLAVOURS
from tests.support.tables import each
from tests.support.waiting import PATIENCE

Connect = Callable[..., Any]
CONNECTS: list[Connect] = [leasehold.connect, leasehold.aio.connect]
SECRET = "hunter2"
URLS = {
    "memory://": "memory://",
    "memory://space": "memory://space",
    "sqlite:////var/lib/x.db": "sqlite:////var/lib/x.db",
    "sqlite:////var/100%25%3F.db": "sqlite:////var/100%25%3F.db",
    f"redis://app:{SECRET}@host/2": "redis://host:6379/2",
    f"rediss://:{SECRET}@[::1]:7": "rediss://[::1]:7/0",
    f"valkey://host?password={SECRET}": "redis://host:6379/0",
    f"unix://joe:{SECRET}@/run/redis.sock?db=2": "unix:///run/redis.sock?db=2",
    f"redis+sentinel://:{SECRET}@a,b:1/main/3?sentinel_password={SECRET}": "redis+sentinel://a:26379,b:1/main/3",
    f"redis+cluster://:{SECRET}@a,b:1": "redis+cluster://a:6379,b:1",
    f"redlock://:{SECRET}@a,b,c/1": "redlock://a:6379,b:6379,c:6379/1",
    f"redlock://:{SECRET}@a,b,c?tls=true": "redlock://a:6379,b:6379,c:6379?tls=true",
    f"postgresql://app:{SECRET}@a,b:1/db": "postgresql://a:5432,b:1/db",
    f"postgresql://app:{SECRET}@/db?host=/run/postgresql&table=ops.leases":
        "postgresql://%2Frun%2Fpostgresql:5432/db?table=ops.leases",
    f"etcd://app:{SECRET}@a,b:1": "etcd://a:2379,b:1/leasehold",
    f"etcds://app:{SECRET}@a/ops": "etcds://a:2379/ops",
    f"zk://app:{SECRET}@a,b:1/ops": "zk://a:2181,b:1/ops",
}  # fmt: skip


@each("connect", CONNECTS)
@each("url", URLS)
def test_it_says_where_without_a_login(url: str, connect: Connect) -> None:
    """``store`` is the URL without login and options, and leads to the same store; ``repr`` has it too."""
    hold = connect(url, namespace="acme")
    assert (hold.store, hold.namespace, hold.closed) == (URLS[url], "acme", False)
    assert repr(hold) == f"<{type(hold).__name__} on {URLS[url]}, namespace acme>"
    assert SECRET not in repr(hold)
    again = connect(hold.store)
    assert (again.store, again.namespace) == (hold.store, "")


def test_a_store_that_was_opened_by_hand() -> None:
    """One that a test has made, and one that it has given a name."""
    store = MemoryStore(ManualClock())
    assert leasehold.connect(store).store == "memory://"
    store.share_as("named")
    assert leasehold.connect("memory://named").store == "memory://named"
    MemoryStore.unshare("named")


def test_closed() -> None:
    """After ``close()``, and in its repr."""
    hold = leasehold.connect("memory://")
    hold.close()
    assert hold.closed and repr(hold) == "<Leasehold on memory://, closed>"


def test_ping_on_a_clock_that_stands() -> None:
    """No time passes there."""
    assert leasehold.connect(MemoryStore(ManualClock())).ping() == 0


# ---------------------------------------------------------------- the log


class Heard(logging.Handler):
    """All records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)


@pytest.fixture
def heard() -> Any:
    """What Leasehold logs at INFO."""
    logger, handler = logging.getLogger("leasehold"), Heard()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_record_for_each_coordinator(flavour: str, heard: list[Any], tmp_path: Path) -> None:
    """At its first use, not when it is made; and none for further connections."""
    url = f"sqlite:///{tmp_path}/x.db"
    party = FLAVOURS[flavour](leasehold.connect(url)._engine.store, namespace="acme")
    assert heard == []
    for _ in range(2):
        party.do(lambda hold: hold.ping())
        party.within(lambda hold: hold.lock("job", 7), lambda lease: None).result(PATIENCE)
    party.close()
    (record,) = heard
    assert record.getMessage() == f"connecting to {url}, namespace acme"
    assert (record.event, record.store, record.url, record.namespace) == ("store_connecting", "sqlite", url, "acme")


def test_no_password_in_the_log(heard: list[Any]) -> None:
    """Also when nobody listens there."""
    with leasehold.connect(f"redis://app:{SECRET}@127.0.0.1:1/2") as hold, pytest.raises(leasehold.StoreUnavailable):
        hold.ping()
    assert heard[0].getMessage() == "connecting to redis://127.0.0.1:1/2"
    assert SECRET not in str([vars(record) for record in heard])


# ---------------------------------------------------------------- what was not meant


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variable of ours is set, and the embedded store is in this folder."""
    for name in ("LEASEHOLD_URL", "LEASEHOLD_REQUIRE_SHARED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("connect", CONNECTS)
@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_an_empty_url_in_the_environment(
    value: str, connect: Connect, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a mistake, and not the embedded store; a URL that is given does not look at it."""
    monkeypatch.setenv("LEASEHOLD_URL", value)
    with pytest.raises(InvalidRequest, match=r"LEASEHOLD_URL is empty: set it to the URL of the store"):
        connect()
    assert connect("memory://").store == "memory://"


@pytest.mark.parametrize("connect", CONNECTS)
def test_the_embedded_store_is_refused(connect: Connect, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``shared=True``, or by the environment unless ``shared=False``; whatever is named is taken."""
    assert connect().store.startswith(f"sqlite:///{home}")
    with pytest.raises(InvalidRequest, match=r"no store is named, .* or set LEASEHOLD_URL"):
        connect(shared=True)
    monkeypatch.setenv("LEASEHOLD_REQUIRE_SHARED", "1")
    with pytest.raises(InvalidRequest, match="no store is named"):
        connect()
    assert connect(shared=False).store.startswith("sqlite:")
    assert connect("sqlite:////x.db").store == "sqlite:////x.db"
    monkeypatch.setenv("LEASEHOLD_URL", "redis://host")
    assert connect().store == connect(shared=True).store == "redis://host:6379/0"


@pytest.mark.parametrize(
    ("value", "refused"), [("0", False), ("no", False), ("", False), ("yes", True), ("True", True)]
)
def test_the_words_of_the_variable(value: str, refused: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Yes and no, as people write them."""
    monkeypatch.setenv("LEASEHOLD_REQUIRE_SHARED", value)
    if refused:
        with pytest.raises(InvalidRequest, match="no store is named"):
            leasehold.connect()
    else:
        assert leasehold.connect().store.startswith("sqlite:")


def test_bad_values(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that means neither, and what is no bool."""
    monkeypatch.setenv("LEASEHOLD_REQUIRE_SHARED", "maybe")
    with pytest.raises(InvalidRequest, match="LEASEHOLD_REQUIRE_SHARED is 1 or 0, not 'maybe'"):
        leasehold.connect()
    with pytest.raises(InvalidRequest, match="shared must be True or False, not str"):
        leasehold.connect(shared="yes")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InvalidRequest, match="show_ids must be True or False, not int"):
        leasehold.connect("memory://", show_ids=1)  # type: ignore[arg-type]  # that is the point
