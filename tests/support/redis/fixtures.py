"""A stage in each flavour, and haste."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leasehold._core import claims, flows, group, holding, ops
from leasehold.primitives import lock
from tests.support.parties import FLAVOURS
from tests.support.redis.stage import HASTE, Stage
from tests.support.servers.proxy import Proxy
from tests.support.servers.redis import RedisServer


@pytest.fixture(params=FLAVOURS)
def stage(request: pytest.FixtureRequest, redis_server: RedisServer, proxy: Proxy) -> Iterator[Stage]:
    """Threads, then asyncio, behind a network in front of an empty server."""
    stage = Stage(request.param, redis_server, proxy)
    yield stage
    stage.close()


@pytest.fixture
def async_stage(redis_server: RedisServer, proxy: Proxy) -> Iterator[Stage]:
    """Tasks only: for tests that are tasks themselves."""
    stage = Stage("asyncio", redis_server, proxy)
    yield stage
    stage.close()


@pytest.fixture(params=FLAVOURS)
def own_stage(request: pytest.FixtureRequest, own_redis: Callable[..., RedisServer]) -> Iterator[Callable[..., Stage]]:
    """Stages whose servers may be harmed, each flavour in turn; takes what ``RedisServer`` takes."""
    with ExitStack() as stack:

        def make(*options: Any, **more: Any) -> Stage:
            stage = Stage(request.param, own_redis(*options, **more))
            stack.callback(stage.close)
            return stage

        yield make


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls give up after tenths of a second in place of seconds."""
    for module in (flows, claims, group, lock):  # each has imported it
        monkeypatch.setattr(module, "budget_ms", lambda *_: round(HASTE * 1000))
    monkeypatch.setattr(claims, "LEAST_BUDGET_MS", round(HASTE * 1000))
    monkeypatch.setattr(holding, "BUDGET_MS", round(HASTE * 1000))
    for _ in range(100):
        ops.Release("job", "owner", 1)  # after a few of them a function is compiled, which has the defaults
    *others, _ = ops.Release.__new__.__defaults__ or ()
    monkeypatch.setattr(ops.Release.__new__, "__defaults__", (*others, round(HASTE * 1000)))
