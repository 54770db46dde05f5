"""A fork while a Sentinel is being asked: parent and child find the primary, each on connections of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.sentinel.service import RECOVERY, Service
from tests.support.parties import mostly
from tests.support.sockets import open_sockets
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def in_child(work: Callable[[], bool]) -> bool:
    """What it returns in a forked child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def acquire(hold: Any) -> Any:
    """By a coordinator of either flavour, in the main thread."""
    acquired = hold.lock("other", ttl=30).acquire(wait=20)
    return asyncio.run(acquired) if inspect.iscoroutine(acquired) else acquired


@mostly("sync", "service")
def test_a_fork_while_a_sentinel_is_asked(service: Service) -> None:
    """The first Sentinel stands still, so that the question is under way. The child has no copy of that connection,
    waits for no thread that it does not have, and asks by itself."""
    service.servers.sentinels[0].freeze()
    party, before = service.party(), open_sockets()
    asking = party.start(lambda hold: hold.lock("job", ttl=30).acquire(wait=20))
    server = party.hold._engine.store._server
    until(lambda: server._asking or server._asking_in_loops, "a Sentinel is asked")
    (question,) = open_sockets() - before
    assert in_child(lambda: question not in open_sockets() and acquire(party.hold) is not None)
    lease = asking.result(RECOVERY)
    assert service.holder() == lease.owner and party.do(lambda _: lease.release()) is True
    assert service.holder("other") not in ("", lease.owner)
