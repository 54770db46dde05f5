"""A cron on a bench: a store of its own, a clock that the test turns, and a note of every run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import leasehold
from leasehold.patterns import Cron, Run
from tests.support.patterns.cron.clocks import TurnedClock
from tests.support.waiting import PATIENCE, until

T = 1_800_000_000  # a tick of every five minutes


class Bench:
    """Several coordinators are several hosts."""

    def __init__(self, now: float = T + 100, url: str = "") -> None:
        self.url = url or f"memory://{uuid.uuid4().hex}"
        self.clock = TurnedClock(now)
        self.ran: list[int] = []  # seconds after T
        self.go_on = threading.Event()  # a run that is asked to wait goes on
        self.hold = leasehold.connect(self.url)
        self._holds = [self.hold]

    def another(self) -> leasehold.Leasehold:
        """One more host."""
        self._holds.append(leasehold.connect(self.url))
        return self._holds[-1]

    def cron(
        self,
        expression: str = "*/5 * * * *",
        *,
        hold: leasehold.Leasehold | None = None,
        clock: Any = None,
        work: Callable[[int], object] | None = None,
        **options: Any,
    ) -> Cron[Any, None]:
        """Not yet started."""

        @(hold or self.hold).cron(expression, "rollup", clock=clock or self.clock, **options)
        def rollup(tick: datetime) -> None:
            self.ran.append(int(tick.timestamp()) - T)
            if work is not None:
                work(int(tick.timestamp()) - T)

        return rollup

    def known(self, cron: Cron[Any, Any]) -> Cron[Any, Any]:
        """Started, and the books are open."""
        cron.start()
        until(lambda: self.hold._results.read("rollup") is not None, "open books")
        return cron

    def waits(self, _tick: int) -> None:
        """As work: until the test lets it go on."""
        assert self.go_on.wait(PATIENCE)

    def close(self) -> None:
        """Whatever was started has ended."""
        self.go_on.set()
        for hold in self._holds:
            hold.close()


def outcomes(cron: Cron[Any, Any]) -> list[tuple[int, str]]:
    """The history, the oldest first, in seconds after T."""
    return [(int(run.tick.timestamp()) - T, run.outcome) for run in reversed(cron.history(100))]


def settled(cron: Cron[Any, Any], *expected: tuple[int, str]) -> list[Run]:
    """Until the history is as expected, and nothing more."""
    until(lambda: outcomes(cron) == list(expected), f"{expected}, at last {outcomes(cron)},")
    return cron.history(100)
