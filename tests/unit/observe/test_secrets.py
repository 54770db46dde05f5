"""No secret anywhere: a whole life with known ids, owners, passwords and keys, and all that anybody can see of it."""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import sqlite3
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

import leasehold
from leasehold import LeaseholdError
from leasehold._core.ops import Evict
from leasehold.guards.sql import FenceGuard
from leasehold.observe.events import Event
from leasehold.observe.otel import OpenTelemetryObserver
from leasehold.observe.prometheus import PrometheusObserver
from tests.support.observe.stage import Listener
from tests.support.servers.redis import RedisServer
from tests.support.tables import each
from tests.support.waiting import until

SOURCE = Path(leasehold.__file__).parents[1]
ID, SECOND_ID = "customer-4711-x", "pa:ss/port{99}"  # the second is written with escapes
PASSWORD, KEY, META = "pass-w0rd-of-redis", "key-that-hides-ids", "said-about-the-holder"
WRITTEN = "pa%3Ass%2Fport%7B99%7D"
TTL = 0.9


class Seen:
    """All that anybody can see, each with where it was seen."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.secrets = [ID, SECOND_ID, WRITTEN, PASSWORD, KEY, META]
        self.errors: list[str] = []

    def show(self, where: str, thing: object) -> None:
        """Its text and its representation."""
        self.texts += [(where, str(thing)), (where, repr(thing))]

    def knows(self, lease: Any) -> None:
        """Nobody may see this lease's token, nor the part of it that is secret."""
        self.secrets += [lease.owner, lease.owner.rpartition(":")[2], lease.owner.rpartition(":")[2].partition(".")[0]]

    def fails(self, call: Callable[[], object]) -> None:
        """A call that must raise an error of ours: as people see it, here and after a journey between processes."""
        try:
            call()
        except LeaseholdError as error:
            where = f"error {type(error).__name__}"
            self.errors.append(type(error).__name__)
            self.show(where, error)
            self.show(where, pickle.loads(pickle.dumps(error)))  # noqa: S301 - made in the same line
            self.texts.append((where, "".join(traceback.format_exception(error))))
        else:
            raise AssertionError("it was to fail")

    def leaks(self) -> set[tuple[str, str]]:
        """The secrets that were seen, and where."""
        return {(where, secret) for where, text in self.texts for secret in self.secrets if secret in text}


class Watch(logging.Handler):
    """Sees every record, with all of its fields and its traceback."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def emit(self, record: logging.LogRecord) -> None:
        """As a file shows it, and as a collector of structured logs does."""
        self.seen.texts.append(("log", logging.Formatter().format(record)))
        self.seen.texts.append(("log", repr(vars(record))))


@pytest.fixture
def seen() -> Iterator[Seen]:
    """Everything that is logged is seen, too."""
    made = Seen()
    handler, logger = Watch(made), logging.getLogger("leasehold")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield made
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.slow)],
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store; where it can have a password, it has."""
    if request.param == "memory":
        return f"memory://{os.urandom(4).hex()}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leases.db"
    start: Callable[..., RedisServer] = request.getfixturevalue("own_redis")
    return start(None, "--requirepass", PASSWORD).url.replace("redis://", f"redis://:{PASSWORD}@", 1)


class Telemetry:
    """All that observers make of it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.spans, self.tracers = InMemorySpanExporter(), TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def observers(self) -> list[Any]:
        """Those that come with Leasehold, and one that quotes what it was told in an error."""
        return [PrometheusObserver(self.registry), OpenTelemetryObserver(self.tracers, self.meters), quote]

    def show(self, seen: Seen) -> None:
        """To whoever looks."""
        seen.texts.append(("prometheus", generate_latest(self.registry).decode()))
        seen.texts += [("span", span.to_json()) for span in self.spans.get_finished_spans()]
        data: Any = self.reader.get_metrics_data()
        seen.texts.append(("metrics", data.to_json()))
        assert self.spans.get_finished_spans()


def quote(event: Event) -> None:
    """An observer with a bug whose error shows the whole event."""
    raise ValueError(repr(event))


def play(url: str, hide: str | None, seen: Seen, heard: Listener, telemetry: Telemetry) -> None:
    """A whole life."""
    options: dict[str, Any] = {"hide_ids": hide, "observers": [heard, *telemetry.observers()]}
    with leasehold.connect(url, **options) as hold, leasehold.connect(url, **options) as other:
        lock, rival = (
            one.lock("job", ID, SECOND_ID, ttl=TTL, meta={"note": META}, protects="correctness")
            for one in (hold, other)
        )
        lease: Any = lock.acquire()
        seen.knows(lease)
        for name, thing in {"coordinator": hold, "lock": lock, "lease": lease, "context": lease.log_context()}.items():
            seen.show(name, thing)
        seen.fails(
            lambda: (
                rival.__enter__() if rival.acquire(wait=0.05) else other.lock("job", ID, SECOND_ID, wait=0).__enter__()
            )
        )
        seen.fails(rival.release)
        lease.extend(TTL)
        until(lambda: "Renewed" in heard.names(), "it is renewed")
        hold._engine.store.execute(Evict(lease.resource, lease.owner, lease._held.fence, "r", delay_ms=0, force=True))
        until(lambda: lease.state == "lost", "it is lost")
        seen.show("lease", lease)
        seen.fails(lease.check)
        seen.fails(lambda: lease.extend(TTL))
        assert lease.release() is False
        guarded(hold.lock("job", ID, SECOND_ID), seen)
        abandoned(hold, seen)
    seen.fails(lambda: hold.lock("job", ID).acquire())
    for event in heard.events:
        seen.show("event", event)
    telemetry.show(seen)


def guarded(lock: Any, seen: Seen) -> None:
    """A guard refuses a lease, and a bare fence."""
    with lock as lease:
        seen.knows(lease)
        database = sqlite3.connect(":memory:", isolation_level=None)
        guard = FenceGuard()
        guard.create(database)
        database.execute("BEGIN")
        guard.check(database, lease.fence + 1, resource=lease.resource, owner=lease.owner)
        seen.show("guard", guard)
        seen.fails(lambda: guard.check(database, lease))
        seen.fails(lambda: guard.check(database, lease.fence, resource=lease.resource, owner=lease.owner))
        database.close()
        database.close()


def abandoned(hold: leasehold.Leasehold, seen: Seen) -> None:
    """Warnings: about a ttl that is too long, and about a lease that was dropped."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hold.lock("job", ID, ttl=7200)
        lease: Any = hold.lock("job", ID, ttl=TTL).acquire()
        seen.knows(lease)
        del lease
        gc.collect()
        until(lambda: len(caught) >= 2, "both warn")
    assert {one.category for one in caught} == {UserWarning, ResourceWarning}
    for one in caught:
        seen.texts.append(("warning", warnings.formatwarning(one.message, one.category, one.filename, one.lineno)))


@pytest.mark.parametrize("hide", [None, KEY], ids=["plain", "hidden"])
def test_no_secret_anywhere(url: str, hide: str | None, seen: Seen, heard: Listener) -> None:
    """Ids, owner tokens, the password of the store and the key of the ids are in nothing that is shown."""
    play(url, hide, seen, heard, Telemetry())
    assert {"NotAcquired", "NotHeld", "LeaseLost", "StaleOwner", "StoreUnavailable"} <= set(seen.errors)
    assert {"Acquired", "Renewed", "Lost", "StaleRelease", "FencedOff", "Refused"} <= set(heard.names())
    assert len(seen.secrets) > 12 and {where for where, _ in seen.texts} >= {"log", "span", "prometheus", "warning"}
    assert seen.leaks() == set()


def test_a_secret_that_is_shown_is_found(seen: Seen) -> None:
    """The search itself can fail: in a log record's fields, too."""
    logging.getLogger("leasehold.lease").warning("nothing here", extra={"hidden": [ID]})
    assert seen.leaks() == {("log", ID)}


@each(
    "written",
    [
        "redis://user:{}@host:port/0",
        "redis://user:{}@host:1/zero",
        "redis://:{}@h1,h2/0",
        "redis://:{}@host:1/0?unheard_of=1",
        "rediss://:{}@host:1/0?ssl_cert_reqs=maybe",
        "nosuch://:{}@host",
        "{}",
        "sqlite://:{}@host",
        "redlock://:{}@h1,h2",
        "redis://:{}@127.0.0.1:1/0",
    ],
)
def test_no_password_of_a_url_is_shown(written: str, seen: Seen) -> None:
    """Whatever is wrong with a URL, and when nobody is there, its password is not shown."""

    def use() -> None:
        with leasehold.connect(written.format(PASSWORD)) as hold:
            seen.show("coordinator", hold)
            hold.lock("job", ID, wait=0).acquire()

    seen.fails(use)
    assert seen.leaks() == set()


@pytest.mark.slow
def test_a_wrong_password_is_not_shown(own_redis: Callable[..., RedisServer], seen: Seen) -> None:
    """The server says no, in its own words."""
    url = own_redis(None, "--requirepass", "another").url.replace("redis://", f"redis://:{PASSWORD}@", 1)
    with leasehold.connect(url) as hold:
        seen.show("coordinator", hold)
        seen.fails(lambda: hold.lock("job", ID).acquire())
    assert seen.leaks() == set()


@pytest.mark.slow
def test_the_token_of_another_client_is_not_shown(redis_server: RedisServer, redis_url: str, seen: Seen) -> None:
    """A client that only knows SET NX PX holds it: its token is as secret as ours."""
    token = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    seen.secrets.append(token)
    with redis_server.client() as client, leasehold.connect(redis_url, observers=[quote]) as hold:
        client.set(f"lock:v1:{{job:{ID}}}:owner", token, px=60_000, nx=True)
        seen.fails(lambda: hold.lock("job", ID, wait=0).__enter__())
    assert seen.errors == ["NotAcquired"] and seen.leaks() == set()


def test_bad_requests_do_not_quote(seen: Seen) -> None:
    """What is refused is described, not repeated."""
    with leasehold.connect("memory://") as hold:
        for ids in ([ID.encode()], [ID, 1.5], [ID + "\ud800"], [ID * 100]):
            seen.fails(lambda ids=ids: hold.lock("job", *ids))  # type: ignore[misc]  # bound now
        seen.fails(lambda: hold.lock("job", ID, meta={"note": object(), META: 1}))
        seen.fails(lambda: leasehold.connect("memory://", hide_ids=KEY * 10))
    assert seen.leaks() == set()


CHILD = """
import json, os, sys, threading
import leasehold
hold = leasehold.connect()
lease = hold.lock("job", sys.stdin.readline().strip()).acquire()
names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
shown = open("/proc/self/cmdline").read(), open("/proc/self/comm").read(), names
print(json.dumps([lease.owner, shown, [thread.name for thread in threading.enumerate()]]))
hold.close()
"""


def test_no_process_title_shows_anything(seen: Seen, tmp_path: Path) -> None:
    """Everybody on a machine can list processes and their threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
    more = {"LEASEHOLD_URL": f"sqlite:///{tmp_path}/l.db", "LEASEHOLD_ID_KEY": KEY, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(
        command, input=ID, env={**kept, **more}, capture_output=True, text=True, timeout=30, check=True
    )
    owner, *shown = json.loads(done.stdout)
    seen.secrets += [owner, owner.rpartition(":")[2]]
    seen.show("process", shown)
    assert "leasehold-watchdog" in str(shown) and seen.leaks() == set()
