"""Somebody who watches a resource all day, as ``observe`` does."""

from __future__ import annotations

from leasehold._core.resource_flows import WatchRequest, end_watch, next_change
from leasehold._core.types import Grant
from leasehold.errors import StoreUnavailable
from tests.support.simulator.process import Cancelled, Process

RETRY = 0.1  # seconds


class Onlooker:
    """The life of one who only looks."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.resource = process.habits.wants[0].resource
        self.known: tuple[Grant, ...] | None = None
        self.began = process.world.now
        self.stopped = False
        self._watching = WatchRequest(
            self.resource, f"{process.name}:0:1", process.name if process.habits.pushable else ""
        )
        self._task = process.start(self.life())

    @property
    def watches(self) -> bool:
        return self.process.alive and not self.stopped

    async def life(self) -> None:
        try:
            while True:
                await self.look()
        except Cancelled:
            await end_watch(self._watching)

    async def look(self) -> None:
        """From one change to the next. What it knows stays known when the store does not answer."""
        try:
            view = await next_change(self._watching, self.known, self.process.local())
        except StoreUnavailable:
            self.say("cannot see")
            await self.process.sleep(RETRY)
        else:
            self.known = view.holders
            self.say("sees", *(f"{one.owner} {one.fence} {one.rule} {one.meta}".strip() for one in self.known))

    def finish(self) -> None:
        self.stopped = True
        self.process.soon(self.process.world.now, self._task.cancel)

    def say(self, what: str, *details: object) -> None:
        self.process.world.note(self.process.name, what, *details)
