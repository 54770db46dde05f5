"""What happens to the acquire of several, as observers hear of it: one story for each part. Loaded only when somebody
listens."""

from __future__ import annotations

from collections.abc import Iterable

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Replies, Reply, StoreOp, Together
from leasehold._runtime.story import Overheard, OverheardOnLoop, Story

if TYPE_CHECKING:
    from leasehold._core.names import Name
    from leasehold._core.ports import Mailbox
    from leasehold._runtime.aio import LoopMailbox
    from leasehold._runtime.engine import Engine


class Stories:
    """Those of the parts that are not granted yet. What is granted, and given back because the rest could not be had,
    has come to its end: when it is claimed anew, that is another story."""

    def __init__(self, engine: Engine, wait: float | None) -> None:
        self._engine = engine
        self._wait = wait
        self._open: dict[str, Story] = {}

    def of(self, name: Name, ttl_ms: int) -> Story:
        """The one that goes on for this part, or a new one."""
        story = self._open.get(name.text)
        if story is None:
            story = self._open[name.text] = Story(self._engine, name, ttl_ms, self._wait)
        return story

    def kept(self, name: Name) -> None:
        """This part is granted, and looked after."""
        self._open.pop(name.text, None)

    def failed(self, error: BaseException) -> None:
        """The part that it failed on is refused for that reason; the others are called off with it."""
        at = getattr(error, "resource", None)
        for resource, story in self._open.items():
            story.failed(error, called_off=at in self._open and at != resource)

    def through(self, box: Mailbox) -> Mailbox:
        """The same mailbox, and what its replies say is told."""
        return OverheardAll(box, self)

    def through_loop(self, box: LoopMailbox) -> LoopMailbox:
        return OverheardAllOnLoop(box, self)  # type: ignore[return-value]  # a driver needs of it what this one has

    def heard(self, op: Any, reply: Reply) -> Iterable[tuple[Story, Any, Reply]]:
        """Whose claim or beat was answered how."""
        several = isinstance(op, Together) and isinstance(reply, Replies)
        steps = zip(op.steps, reply.replies, strict=False) if several else [(op, reply)]  # type: ignore[union-attr]  # so
        return [(self._open[step.resource], step, one) for step, one in steps if step.resource in self._open]


class OverheardAll:
    """A thread's mailbox while somebody observes its acquire of several."""

    def __init__(self, box: Mailbox, stories: Stories) -> None:
        self._box = box
        self._stories = stories
        self.address = box.address
        self.take, self.close = box.take, box.close

    def execute(self, op: StoreOp) -> Reply:
        reply = self._box.execute(op)
        for story, step, one in self._stories.heard(op, reply):
            Overheard(self._box, story).hear(one, step)
        return reply


class OverheardAllOnLoop:
    """The same for an event loop's."""

    def __init__(self, box: LoopMailbox, stories: Stories) -> None:
        self._box = box
        self._stories = stories
        self.take = box.take

    async def execute(self, op: StoreOp) -> Reply:
        reply = await self._box.execute(op)
        for story, step, one in self._stories.heard(op, reply):
            await OverheardOnLoop(self._box, story).hear(one, step)
        return reply
