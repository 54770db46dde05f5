"""An interrupt at every line of a batch, of its acquire and of its release: nothing stays held."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import leasehold
from leasehold._core import many
from leasehold._core.holding import ALIVE
from leasehold._runtime import batches
from leasehold.primitives import base_attempt, batch_attempt, batch_release, lease_batch
from tests.model.interrupts.test_cohorts import at_nth_line
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow
TTL = 300
NAMES = ("kept", "plain", "confirmed", "taken")


def codes_of(*modules: Any) -> set[CodeType]:
    """All functions and methods that are written there."""
    found: set[CodeType] = set()
    for module in modules:
        for thing in vars(module).values():
            members = list(vars(thing).values()) if inspect.isclass(thing) else [thing]
            functions = [member for member in members if inspect.isfunction(member)]
            found |= {function.__code__ for function in functions if function.__module__ == module.__name__}
    return found


CODES = codes_of(many, batches, base_attempt, batch_attempt, batch_release, lease_batch)


def body_of(hold: Any, names: tuple[str, ...]) -> None:
    """As a context manager."""
    with hold.acquire_many([lock(hold, name) for name in names]):
        pass


def both_calls(hold: Any, names: tuple[str, ...]) -> None:
    """Both calls, without a body."""
    batch = hold.acquire_many([lock(hold, name) for name in names])
    try:
        hold.release_many(batch)
    except KeyboardInterrupt:
        hold.release_many(batch)  # it may be repeated
        raise


def lock(hold: Any, name: str) -> Any:
    """One lingers already, one is confirmed in a second round trip, and another process holds one."""
    options: dict[str, dict[str, Any]] = {"kept": {"linger": TTL}, "confirmed": {"at_least": 0.001}}
    return hold.lock(name, ttl=TTL, **options.get(name, {}))


def interrupted_at(line: int, work: Callable[[Any, tuple[str, ...]], None], url: str) -> list[str]:
    """Where that was, if there is such a line. All are free afterwards, and nothing is left."""
    hit: list[str] = []
    with leasehold.connect(url) as hold, leasehold.connect(url) as other:
        with lock(hold, "kept"):
            until(hold._engine.watchdog.hears, "it can be told")
        theirs = lock(other, "taken").acquire(wait=0)
        assert theirs is not None and hold._engine.watchdog.lingering
        try:
            sys.settrace(at_nth_line(CODES, line, hit))
            work(hold, NAMES)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        gc.collect()
        assert theirs.release()
        for name in NAMES:
            lease = lock(other, name).acquire(wait=PATIENCE / 3)
            assert lease is not None, f"{name} is not free, after an interrupt at {hit}"
            other.release_many([lease])
        engine = hold._engine
        assert not any(held.phase in ALIVE for held in engine.watchdog.leases()), hit
        assert not (engine.pending or engine.cohorts or engine.watchdog.lingering or engine.watchdog.passing), hit
        assert len(engine.connections._idle) <= 1, hit
    return hit


@pytest.mark.timeout(300)
@pytest.mark.parametrize("work", [body_of, both_calls])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore:a lease on:ResourceWarning")
def test_an_interrupt_at_every_line_of_a_batch(work: Callable[[Any, tuple[str, ...]], None], tmp_path: Path) -> None:
    """Whatever it hits."""
    line = 1
    while interrupted_at(line, work, f"memory://{tmp_path}/{line}"):
        line += 1
    assert line > 150, "the lines of what is tested were not found"
