"""Bad input: a clear error of ours, before anything is sent, with nothing left behind and no secret in it."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

import leasehold
from leasehold import InvalidRequest, LeaseholdError, LeaseLost, NotAcquired, NotHeld, StoreUnavailable, Unsupported
from leasehold._core.ops import Claim
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.lock import STORES, Spy, in_thread, nothing_left, open_store, sync_scene, watchdogs
from tests.support.tables import each
from tests.support.waiting import PATIENCE

SURROGATE = "lone \ud800 surrogate"


@pytest.fixture
def spy() -> Spy:
    """A store that counts what is sent."""
    return Spy(MemoryStore())


@pytest.fixture
def hold(spy: Spy) -> Iterator[Any]:
    """A coordinator over it; Any, because these tests pass what a type checker refuses."""
    with leasehold.connect(spy) as made:
        yield made


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer has set changes nothing here."""
    for variable in ("LEASEHOLD_URL", "LEASEHOLD_NAMESPACE", "LEASEHOLD_ID_KEY", "LEASEHOLD_INSTANCE"):
        monkeypatch.delenv(variable, raising=False)


# ---------------------------------------------------------------- names

BAD_KINDS = {
    "empty": "",
    "huge": "k" * 513,
    "huge in bytes": "🔒" * 129,
    "huge once escaped": ":" * 171,
    "number": 42,
    "bytes": b"job",
    "None": None,
    "bool": True,
    "list": ["job"],
    "surrogate": SURROGATE,
}
BAD_IDS = {
    "empty": "",
    "huge": "i" * 513,
    "very huge": "i" * 10_000_000,
    "huge number": 10**5000,
    "float": 1.0,
    "nan": float("nan"),
    "True": True,
    "False": False,
    "None": None,
    "bytes": b"42",
    "bytearray": bytearray(b"42"),
    "tuple": (1, 2),
    "dict": {},
    "decimal": Decimal(1),
    "complex": 1j,
    "object": object(),
    "surrogate": SURROGATE,
    "datetime": datetime(2026, 11, 16, tzinfo=UTC),
    "time": time(3),
}
NAMES = [
    ("job",),
    ("job", 1),
    ("job", -1),
    ("job", "1:2"),
    ("job", 1, 2),
    ("job:1", 2),
    ("job/1", 2),
    ("job", "1/2"),
    ("job", "1%3A2"),
    ("job", "{1}"),
    ("{job}", "1"),
    ("job", "1\n2"),
    ("job", "1\r2"),
    ("job", "1\x002"),
    ("job", "1\x7f2"),
    ("job", "1 2"),
    ("job", " 12"),
    ("job", "%"),
    ("job", "%25"),
    ("job", "🔒"),
    ("job", "é"),
    ("job", "e\u0301"),
    ("Job", 1),
    ("job", "x" * 500),
    ("job", UUID(int=7)),
    ("job", date(2026, 11, 16)),
    ("job", 2**1000),
]


@each("kind", BAD_KINDS.values(), ids=BAD_KINDS.keys())
def test_a_bad_kind_is_refused(hold: Any, spy: Spy, kind: object) -> None:
    """A kind is short, non-empty text; nothing is sent otherwise."""
    with pytest.raises(InvalidRequest):
        hold.lock(kind, 1)
    assert not spy.ops


@each("bad", BAD_IDS.values(), ids=BAD_IDS.keys())
@each("place", [0, 1])
def test_a_bad_id_is_refused(hold: Any, spy: Spy, bad: object, place: int) -> None:
    """An id is text, a whole number, a UUID or a date: what could look like another is refused, wherever it stands."""
    ids = ["fine", "fine"]
    ids[place] = bad  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest):
        hold.rlock("job", *ids)
    assert not spy.ops


def test_trap_37_strange_names_do_not_collide(hold: Any, spy: Spy) -> None:
    """Braces, colons, slashes, newlines, NUL, emoji: all fine, all apart, all printable without control bytes."""
    leases = [hold.lock(kind, *ids).try_acquire() for kind, *ids in NAMES]
    assert all(leases)
    texts = [lease.resource for lease in leases]
    assert len(set(texts)) == len(NAMES)
    assert not [text for text in texts if not text.isprintable() or set(text) & set("{}\n\0")]


def test_ids_that_are_the_same_are_the_same(hold: Any) -> None:
    """A number and its text name one resource; so do a UUID or a date and their text."""
    assert hold.lock("job", 42).resource == hold.lock("job", "42").resource
    assert hold.lock("job", date(2026, 11, 16)).resource == hold.lock("job", "2026-11-16").resource
    assert hold.lock("job", UUID(int=7)).resource == hold.lock("job", str(UUID(int=7))).resource


def test_the_message_does_not_carry_the_id(hold: Any) -> None:
    """A refused id may be a secret or ten megabytes: the message names its type or its size."""
    for bad in (b"s3cret", "s3cret" * 1000, f"s3cret{SURROGATE}"):
        with pytest.raises(InvalidRequest) as info:
            hold.lock("job", bad)
        assert "s3cret" not in str(info.value) and len(str(info.value)) < 300


@pytest.mark.parametrize("bad", [42, b"acme", True, SURROGATE, ["acme"], 0, False])
def test_a_bad_namespace_is_refused(spy: Spy, bad: Any) -> None:
    """A namespace is text."""
    with pytest.raises(InvalidRequest):
        leasehold.connect(spy, namespace=bad)


def test_a_namespace_stays_apart(spy: Spy) -> None:
    """A slash in a namespace is no second namespace; a huge one is refused with the name it makes too long."""
    with leasehold.connect(spy, namespace="a/b") as one, leasehold.connect(spy, namespace="a") as two:
        assert one.lock("c").resource != two.lock("b/c").resource != two.lock("b", "c").resource
    with leasehold.connect(spy, namespace="n" * 600) as huge, pytest.raises(InvalidRequest):
        huge.lock("job")


@each("bad", ["", b"", "k" * 65, b"k" * 65, 42, True, ["key"], bytearray(b"key"), object()])
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_a_bad_id_key_is_refused(spy: Spy, bad: Any, connect: Callable[..., Any]) -> None:
    """``hide_ids`` is text or bytes, 1 to 64 long; the key is not in the error."""
    with pytest.raises(InvalidRequest) as info:
        connect(spy, hide_ids=bad)
    assert "kkk" not in str(info.value)


def test_hidden_ids_are_hidden_and_apart(spy: Spy) -> None:
    """With a key no id reaches the store, another key gives another name, and the kind stays readable."""
    with (
        leasehold.connect(spy, hide_ids="one") as one,
        leasehold.connect(spy, hide_ids=b"two") as two,
        one.lock("job", "alice@example.org") as lease,
        two.lock("job", "alice@example.org") as other,
    ):
        assert lease.resource.startswith("job:") and lease.resource != other.resource
        assert lease.log_context()["id_hash"] == lease.resource.removeprefix("job:")[:12]
    assert "alice" not in repr(spy.ops)


# ---------------------------------------------------------------- durations

NO_DURATION = {
    "negative": -1,
    "a little negative": -1e-9,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "huge int": 10**400,
    "text": "abc",
    "empty text": "",
    "no unit": "30",
    "no number": "s",
    "unit twice": "30ss",
    "unknown unit": "30y",
    "negative text": "-5s",
    "nan text": "nans",
    "inf text": "infs",
    "huge text": "1e400s",
    "huge in its unit": "1e308d",
    "underscore": "1_0s",
    "True": True,
    "False": False,
    "bytes": b"30s",
    "decimal": Decimal(30),
    "list": [30],
    "object": object(),
    "negative timedelta": timedelta(seconds=-1),
}
NO_TTL = {
    **NO_DURATION,
    "None": None,
    "zero": 0,
    "zero text": "0s",
    "minus zero": -0.0,
    "49 ms": 0.049,
    "49 ms text": "49ms",
    "25 h": 25 * 3600,
    "25 h text": "25h",
    "24 h and a ms": 24 * 3600 + 0.001,
    "1e306": 1e306,
    "1e308": 1e308,
    "timedelta.max": timedelta.max,
}


@each("bad", NO_TTL.values(), ids=NO_TTL.keys())
def test_a_bad_ttl_is_refused(hold: Any, spy: Spy, bad: object) -> None:
    """Between 50 ms and 24 h, a number or text with a unit: anything else before anything is sent."""
    with pytest.raises(InvalidRequest, match="ttl"):
        hold.lock("job", ttl=bad)
    assert not spy.ops


@pytest.mark.parametrize("bad", NO_TTL.values(), ids=NO_TTL.keys())
def test_a_bad_extension_is_refused_and_changes_nothing(hold: Any, spy: Spy, bad: object) -> None:
    """``extend`` takes the same bounds; the lease stays as it was."""
    lease = hold.lock("job", ttl=10).acquire()
    deadline = lease.deadline
    with pytest.raises(InvalidRequest):
        lease.extend(bad)
    assert lease.deadline == deadline and lease.ttl == 10 and lease.state == "held" and len(spy.ops) == 1


@each("bad", NO_DURATION.values(), ids=NO_DURATION.keys())
@each("where", ["lock", "acquire", "connect"])
def test_a_bad_wait_is_refused(hold: Any, spy: Spy, bad: object, where: str) -> None:
    """A wait is None, zero or longer, wherever it is given."""
    places: dict[str, Callable[[Any], Any]] = {
        "lock": lambda wait: hold.lock("job", wait=wait),
        "acquire": lambda wait: hold.lock("job").acquire(wait=wait),
        "connect": lambda wait: leasehold.connect(spy, wait=wait),
    }
    with pytest.raises(InvalidRequest, match="wait"):
        places[where](bad)
    assert not spy.ops


@each("bad", [*NO_DURATION.values(), 0, 0.0, "0s"], ids=[*NO_DURATION, "0", "0.0", "0s"])
@each("what", ["max_hold", "max_idle", "at_least"])
def test_a_bad_limit_is_refused(hold: Any, spy: Spy, bad: object, what: str) -> None:
    """A limit is above zero or left out."""
    with pytest.raises(InvalidRequest, match=what):
        hold.lock("job", **{what: bad})
    assert not spy.ops


@pytest.mark.parametrize("wait", [1e300, 1e306, 1e308, timedelta.max])
def test_a_wait_of_ages_is_a_wait(hold: Any, wait: object) -> None:
    """A finite wait, however long, is no error: the free lock is granted."""
    assert hold.lock("job", wait=wait).acquire() is not None


@pytest.mark.parametrize("ages", [1e300, 1e308, timedelta.max])
def test_limits_of_ages_are_limits(hold: Any, ages: object) -> None:
    """The same for max_hold and max_idle; at_least ends at 24 h."""
    with hold.lock("job", max_hold=ages, max_idle=ages) as lease:
        assert 20 < lease.remaining() <= 30
    with pytest.raises(InvalidRequest, match="at_least"):
        hold.lock("job", at_least=ages)


@pytest.mark.parametrize("good", [0.05, 1, 86400 / 24, "50ms", "1.5s", " 5m ", "1h", timedelta(seconds=3)])
def test_good_ttls_are_taken(hold: Any, good: object) -> None:
    """The bounds themselves are inside, text may have spaces around it."""
    assert hold.lock("job", ttl=good).try_acquire() is not None


@pytest.mark.parametrize("ttl", ["1h", 3600, timedelta(hours=1)])
def test_an_hour_is_no_reason_to_warn(hold: Any, ttl: object) -> None:
    """Up to and including one hour there is no warning (warnings are errors here)."""
    hold.lock("job", ttl=ttl)


@pytest.mark.parametrize("call", ["lock", "rlock"])
def test_a_long_ttl_warns_at_the_callers_line(hold: Any, call: str) -> None:
    """Over an hour warns, and the warning points at the code that asked."""
    with pytest.warns(UserWarning, match="1 h") as caught:
        getattr(hold, call)("job", ttl="24h")
    assert caught[0].filename == __file__


# ---------------------------------------------------------------- flags and metadata


@each("bad", [None, 0, 1, "yes", "", [], 1.0])
@each("flag", ["renew", "reentrant"])
def test_a_flag_is_a_bool(hold: Any, spy: Spy, flag: str, bad: object) -> None:
    """``renew="no"`` would be true: only True and False are taken."""
    with pytest.raises(InvalidRequest, match=flag):
        hold.lock("job", **{flag: bad})
    assert not spy.ops


def cyclic() -> dict[str, Any]:
    """A mapping that holds itself."""
    made: dict[str, Any] = {}
    made["self"] = made
    return made


def deep() -> dict[str, Any]:
    """A mapping nested deeper than a serialiser goes."""
    made: dict[str, Any] = {}
    for _ in range(100_000):
        made = {"deeper": made}
    return made


BAD_META: dict[str, Callable[[], Any]] = {
    "not serialisable": lambda: {"at": object()},
    "bytes inside": lambda: {"at": b"x"},
    "set inside": lambda: {"at": {1}},
    "nan inside": lambda: {"at": float("nan")},
    "key that is a tuple": lambda: {(1, 2): 3},
    "lone surrogate": lambda: {"at": SURROGATE},
    "too large": lambda: {"at": "x" * 5000},
    "too large in bytes": lambda: {"at": "🔒" * 1500},
    "cyclic": cyclic,
    "very deep": deep,
    "text": lambda: "run=7",
    "empty text": lambda: "",
    "number": lambda: 7,
    "zero": lambda: 0,
    "False": lambda: False,
    "list": list,
    "list of pairs": lambda: [("run", 7)],
    "iterator of pairs": lambda: iter([("run", 7)]),
}


@each("make", BAD_META.values(), ids=BAD_META.keys())
def test_bad_metadata_is_refused(hold: Any, spy: Spy, make: Callable[[], Any]) -> None:
    """Metadata is a small mapping that JSON can carry; what is not is refused before anything is sent."""
    with pytest.raises(InvalidRequest, match="meta"):
        hold.lock("job", meta=make())
    assert not spy.ops


def test_metadata_is_copied(hold: Any) -> None:
    """What the caller does with its mapping afterwards, or with what it reads back, changes no lease."""
    mine = {"run": 7}
    lock = hold.lock("job", meta=mine)
    mine["run"] = 8
    lease = lock.acquire()
    lease.meta["run"] = 9
    assert lease.meta == {"run": 7}


# ---------------------------------------------------------------- URLs

BAD_URLS = {
    "empty": "",
    "no scheme": "leases.db",
    "a path": "/tmp/leases.db",
    "one colon": "sqlite:/tmp/leases.db",
    "no slashes": "sqlite://",
    "one part": "sqlite://leases.db",
    "two slashes and a path": "sqlite://tmp/leases.db",
    "no path": "sqlite:///",
    "memory": "sqlite:///:memory:",
    "options": "sqlite:///leases.db?timeout=5",
    "options of memory": "memory://?timeout=5",
    "NUL": "sqlite:///lea\0ses.db",
    "encoded NUL": "sqlite:///lea%00ses.db",
    "surrogate": "sqlite:///lea\ud800ses.db",
    "unknown scheme": "http://example.org",
    "no scheme before the slashes": "://localhost",
}
SECRET_URLS = [
    "redis://user:hunter2@localhost:port/0",
    "redis://user:hunter2@localhost/0?retries=3",
    "rediss://localhost?password=hunter2&ssl_ca_certs=/no/such/file",
    "redis+sentinel://user:hunter2@a,b:port/service",
    "redis+sentinel://user:hunter2/x@a,b/service",
    "redis+sentinel://:x@a/service?sentinel_password=x&sentinel_hunter2",
    "postgresql://user:hunter2@localhost:port/db",
    "etcd://user:hunter2@localhost:port",
    "etcd://user:hunter2/x@localhost",
    "etcd://user:hunt?hunter2@localhost",
    "zk://user:hunter2@localhost:port",
    "zk://user:hunter2/x@localhost",
    "zk://user:hunt?hunter2@localhost",
    "sqlite://user:hunter2@localhost/leases.db",
    "sqlite:///leases.db?password=hunter2",
    "sqlite://user:hunt?hunter2@localhost/leases.db",
    "user:hunter2@localhost",
    "redis:hunter2@localhost",
    "hunter2",
    "//user:hunter2@localhost://",
]


@each("url", BAD_URLS.values(), ids=BAD_URLS.keys())
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_a_bad_url_is_refused(connect: Callable[..., Any], url: str) -> None:
    """A URL that names nothing is said to be wrong at once, not at the first lock."""
    with pytest.raises(InvalidRequest):
        connect(url)


@each("url", ["sqlite:///leases.db?timeout=5&cache=1", "memory://tests?timeout=5", "memory://?timeout"])
def test_an_option_that_is_refused_is_named(url: str) -> None:
    """By stores that take none. Those of Redis are named by its own tests."""
    with pytest.raises(InvalidRequest, match=r"takes no options: leave out timeout$"):
        leasehold.connect(url)


@each("url", SECRET_URLS)
@each("way", ["argument", "environment"])
def test_no_error_prints_a_password(url: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the message, the arguments, the attributes, the pickle nor the chain holds what may be a password."""
    monkeypatch.setenv("LEASEHOLD_URL", url)
    target = url if way == "argument" else None
    with pytest.raises((InvalidRequest, Unsupported)) as info:
        leasehold.connect(target)
    error = info.value
    lines = traceback.format_exception_only(error)
    shown = [str(error), repr(error), repr(error.args), repr(error.__dict__), *lines, repr(pickle.dumps(error))]
    chain = [error.__cause__, None if error.__suppress_context__ else error.__context__]
    assert "hunter2" not in "".join([*shown, *map(repr, chain)])


@each("bad", [42, 4.2, b"memory://", [], object(), True, Path("leases.db"), {}, ()])
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_connect_takes_a_url_or_a_store(connect: Callable[..., Any], bad: Any) -> None:
    """Anything else is refused by its type."""
    with pytest.raises(InvalidRequest, match=type(bad).__name__):
        connect(bad)


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_several_urls_are_a_redlock(connect: Callable[..., Any]) -> None:
    """Each names one master, by the schemes of one Redis. A client may stand beside a URL."""
    hold = connect(["redis://a", "valkey://b:7000/0", redis.Redis("c")])
    assert hold.store == "redlock://a:6379,b:7000,c:6379"
    unix = connect(["unix:///run/redis.sock", "rediss://:hunter2@b", "valkeys://c"])
    assert unix.store.startswith("redlock:///run/redis.sock,b:6379,c:6379")


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.aio.connect])
def test_the_longest_ttl_of_several_urls(connect: Callable[..., Any]) -> None:
    """Any of them may state it for all. Two that differ are refused, and so is one that is no duration."""
    hold = connect(["redis://a?max_ttl=60&db=0", "redis://b", "redis://c?max_ttl=1m"])
    hold.lock("job", ttl=60)
    with pytest.raises(InvalidRequest, match="max_ttl"):
        hold.lock("job", ttl=61)
    with pytest.raises(InvalidRequest, match="different values of max_ttl"):
        connect(["redis://a?max_ttl=60", "redis://b?max_ttl=61", "redis://c"])
    with pytest.raises(InvalidRequest, match="max_ttl 'soon' is not a duration"):
        connect(["redis://a?max_ttl=soon", "redis://b", "redis://c"])


WRONG_MASTERS = {
    "redis+cluster://:hunter2@b": r"redis\+cluster:// does not: the schemes are redis, rediss, unix, valkey, valkeys",
    "redis+sentinel://:hunter2@b/service": "sentinel:// does not",
    "redlock://b,c,d": "redlock:// does not",
    "memory://": "memory:// does not",
    "etcd://b": "etcd:// does not",
    "hunter2://b": "one of these does not",
    "redis:hunter2@b": "one of these does not",
    "": "one of these does not",
    "redis://:hunter2@b:99999": "bad host or port",
    "redis://:hunter2@b,c": "one host",
    "redis://:hunter2@a:6379/1": "a:6379 is named twice",
}


@each("connect", [leasehold.connect, leasehold.aio.connect])
@each("url", list(WRONG_MASTERS))
def test_a_url_in_a_list_that_is_no_master(connect: Callable[..., Any], url: str) -> None:
    """The message says what is wrong with it, and shows no password."""
    with pytest.raises(InvalidRequest, match=WRONG_MASTERS[url]) as caught:
        connect(["redis://a", url, "redis://c"])
    assert "hunter2" not in str(caught.value)


def test_making_one_touches_nothing(tmp_path: Path, spy: Spy) -> None:
    """Connecting and making a lock sends nothing, opens no file and starts no thread."""
    before = len(watchdogs())
    with leasehold.connect(f"sqlite:///{tmp_path}/leases.db") as hold, leasehold.connect(spy) as other:
        hold.lock("job")
        other.lock("job")
    assert not list(tmp_path.iterdir()) and not spy.ops and len(watchdogs()) == before


@pytest.mark.parametrize(("variable", "bad"), [("LEASEHOLD_ID_KEY", "k" * 65), ("LEASEHOLD_URL", "nonsense")])
def test_a_bad_environment_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str, bad: str) -> None:
    """What comes from the environment is held to the same rules."""
    monkeypatch.setenv("LEASEHOLD_URL", "memory://")
    monkeypatch.setenv(variable, bad)
    with pytest.raises(InvalidRequest):
        leasehold.connect()


def test_an_empty_environment_is_none(monkeypatch: pytest.MonkeyPatch, spy: Spy) -> None:
    """A variable that is set to nothing is as good as unset."""
    monkeypatch.setenv("LEASEHOLD_NAMESPACE", "")
    monkeypatch.setenv("LEASEHOLD_ID_KEY", "")
    with leasehold.connect(spy) as hold:
        assert hold.lock("job", 1).resource == "job:1"


# ---------------------------------------------------------------- not yours, not any more


def test_trap_08_release_by_somebody_else(hold: Any, spy: Spy) -> None:
    """A lock object that this thread does not hold through releases nothing and sends nothing."""
    lease = hold.lock("job").acquire()
    sent = len(spy.ops)
    with pytest.raises(NotHeld) as info:
        in_thread(lambda: hold.lock("job").release())
    assert len(spy.ops) == sent and lease.state == "held" and lease.owner not in str(info.value)


def test_release_of_what_was_never_held(hold: Any, spy: Spy) -> None:
    """NotHeld, and nothing is sent."""
    with pytest.raises(NotHeld):
        hold.lock("job").release()
    assert not spy.ops


def test_use_after_release(hold: Any, spy: Spy) -> None:
    """A lease that was given back answers NotHeld, sends nothing more, and releasing again is False."""
    lease = hold.lock("job").acquire()
    assert lease.release() is True
    sent = len(spy.ops)
    calls: list[Callable[[], Any]] = [lambda: lease.extend(10), lease.check, lease.beat, lease.__enter__]
    for call in calls:
        with pytest.raises(NotHeld):
            call()
    assert lease.release() is False and lease.remaining() == 0 and lease.state == "released"
    assert not lease.lost.is_set() and len(spy.ops) == sent


def test_use_after_loss() -> None:
    """A lost lease answers LeaseLost, with the fence it had."""
    clock = ManualClock()
    spy, hold = sync_scene(clock)
    with hold:
        lease = hold.lock("job", ttl=1, renew=False).acquire()
        assert lease is not None
        clock.advance(2)
        sent = len(spy.ops)
        calls: list[Callable[[], Any]] = [lambda: lease.extend(10), lease.check, lease.beat, lease.__enter__]
        for call in calls:
            with pytest.raises(LeaseLost) as info:
                call()
            assert info.value.reason == "expired" and info.value.fence == lease.fence
        assert len(spy.ops) == sent and lease.remaining() == 0 and lease.lost.is_set()
        assert lease.release() is False


@pytest.mark.parametrize("kind", STORES)
def test_use_after_close(kind: str, tmp_path: Path) -> None:
    """A closed coordinator is said to be closed; what it had is lost; nothing is sent."""
    spy = Spy(open_store(kind, tmp_path))
    hold = leasehold.connect(spy)
    lock = hold.lock("job")
    lease = lock.acquire()
    assert lease is not None
    hold.close()
    hold.close()
    sent = len(spy.ops)
    calls: list[Callable[[], Any]] = [
        lock.acquire, lock.try_acquire, lock.locked, lock.__enter__, lambda: lock.acquire(wait=5),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed"):
            call()
    with pytest.raises(NotHeld):
        lock.release()
    lost: list[Callable[[], Any]] = [lease.check, lease.beat, lease.__enter__, lambda: lease.extend(10)]
    for call in lost:
        with pytest.raises(LeaseLost) as info:
            call()
        assert info.value.reason == "closed"
    assert lock.owned() is False and lease.state == "lost" and lease.lost.is_set()
    assert lease.release() is False
    assert len(spy.ops) == sent


@pytest.mark.parametrize("kind", STORES)
async def test_use_after_close_in_asyncio(kind: str, tmp_path: Path) -> None:
    """The same for tasks."""
    spy = Spy(open_store(kind, tmp_path))
    hold = leasehold.aio.connect(spy)
    lock = hold.lock("job")
    lease = await lock.acquire()
    assert lease is not None
    await hold.close()
    await hold.close()
    sent = len(spy.ops)
    calls: list[Callable[[], Any]] = [lock.acquire, lock.try_acquire, lock.locked, lock.__aenter__]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="closed"):
            await call()
    with pytest.raises(NotHeld):
        await lock.release()
    lost: list[Callable[[], Any]] = [lease.__aenter__, lambda: lease.extend(10)]
    for call in lost:
        with pytest.raises(LeaseLost) as info:
            await call()
        assert info.value.reason == "closed"
    await asyncio.wait_for(lease.lost.wait(), PATIENCE)
    assert lock.owned() is False and lease.state == "lost"
    assert await lease.release() is False
    assert len(spy.ops) == sent


def test_a_closed_coordinator_leaves_the_store_to_others(spy: Spy) -> None:
    """Closing gives back, and others go on."""
    one, two = leasehold.connect(spy.inner), leasehold.connect(spy.inner)
    assert one.lock("job").try_acquire()
    one.close()
    with two, two.lock("job", wait=0):
        assert not one.lock("job").owned()
    assert nothing_left(spy, "job")


# ---------------------------------------------------------------- the errors themselves


def provoke(spy: Spy, hold: Any) -> list[LeaseholdError]:
    """Errors as people meet them, of a lock on a resource with a secret id."""
    lease = hold.lock("job", "s3cret", ttl=60).acquire()
    errors: list[LeaseholdError] = []

    def note(call: Callable[[], Any]) -> None:
        with pytest.raises(LeaseholdError) as info:
            call()
        errors.append(info.value)

    note(lambda: in_thread(hold.lock("job", "s3cret", wait=0).__enter__))
    note(lambda: in_thread(hold.lock("job", "s3cret").release))
    lease.release()
    note(lease.check)
    lease = hold.lock("job", "s3cret", max_hold=1e-6).acquire()
    note(lease.check)
    return errors


def test_errors_carry_no_secret_and_can_be_pickled(spy: Spy, hold: Any) -> None:
    """No owner secret anywhere, no full id in a message, and a pickled copy says the same."""
    errors = provoke(spy, hold)
    assert [type(error) for error in errors] == [NotAcquired, NotHeld, NotHeld, LeaseLost]
    secrets = {op.owner.rpartition(":")[2].partition(".")[0] for op in spy.of(Claim)}
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own pickle, a line ago
        assert type(copy) is type(error) and str(copy) == str(error) and copy.__dict__ == error.__dict__
        assert error.resource == "job:s3cret" and "s3cret" not in str(error)
        shown = str(error) + repr(error) + repr(error.__dict__) + repr(pickle.dumps(error))
        assert not [secret for secret in secrets if secret in shown]


def test_repr_shows_no_secret(spy: Spy, hold: Any) -> None:
    """Neither a coordinator, a lock nor a lease prints the secret of its owner or the key that hides ids."""
    with leasehold.connect(spy, hide_ids="hunter2") as hidden, hidden.lock("job", "alice") as lease:
        shown = repr(hidden) + repr(hidden.lock("job", "alice")) + repr(lease) + str(lease.log_context())
        assert "hunter2" not in shown and "alice" not in shown and lease.owner not in shown
        assert lease.owner.rpartition(":")[2].partition(".")[0] not in shown
