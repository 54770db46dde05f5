"""Some commands on their way to one node, and the round that they belong to. It knows nothing of sockets."""

from __future__ import annotations

from collections.abc import Callable

import hiredis

from leasehold._core.light_typing import Any
from leasehold.errors import LeaseholdError
from leasehold.stores.redis.redlock.answers import Answer, Round
from leasehold.stores.redis.redlock.commands import Batch, unknown_script

ReplyError = hiredis.ReplyError


class RunningRound:
    """A round that waits for answers. ``when_over`` is called once, by the answer that decides it."""

    __slots__ = ("_when_over", "open", "over", "request")

    def __init__(self, request: Round, when_over: Callable[[], object] | None = None) -> None:
        self.request = request
        self.over = False
        self.open = len(request.batches) - request.batches.count(None)  # answers that are still to come
        self._when_over = when_over

    def take(self, place: int, answer: Answer) -> None:
        self.open -= 1
        enough = self.request.take(place, answer)
        if (enough or not self.open) and not self.over:
            self.over = True
            if self._when_over is not None:
                self._when_over()


class Exchange:
    """The commands for one node. The round gets its answer, or an error when it ends without; what must follow at this
    node is decided by the real outcome, however late that is."""

    __slots__ = ("_follow", "_missing", "_place", "_round", "batch", "done", "failed", "replies", "sent_at", "wanted")

    def __init__(
        self,
        place: int,
        batch: Batch,
        running: RunningRound,
        sent_at: float,
        follow: Callable[[int, list[Any] | LeaseholdError], None] | None,
    ) -> None:
        self._place = place
        self._round = running
        self._follow = follow
        self.failed = False  # one of the replies is an error
        self._missing: list[int] | None = None  # the places of replies that are still to come to a second try
        self.batch = batch
        self.sent_at = sent_at  # local time
        self.replies: list[Any] = []
        self.wanted = True
        self.done = False

    @property
    def must_arrive(self) -> bool:
        """Somebody has to know what came of it, even when the round is over."""
        return self._follow is not None and not self.done

    def add(self, reply: Any) -> bool:
        """The next reply. True when it was the last."""
        if type(reply) is ReplyError:
            self.failed = True
        if self._missing is None:
            self.replies.append(reply)
            return len(self.replies) == len(self.batch.commands)
        self.replies[self._missing.pop(0)] = reply
        return not self._missing

    def again(self) -> Batch | None:
        """What to send once more, with scripts in full, because the node does not have them."""
        if self._missing is not None or not (self.wanted or self._follow is not None):
            return None
        missing = [at for at, reply in enumerate(self.replies) if unknown_script(reply)]
        if not missing:
            return None
        self._missing = missing
        self.batch = Batch([self.batch.commands[at] for at in missing]).with_texts(set())
        return self.batch

    def abandon(self, error: LeaseholdError, now: float) -> None:
        """The caller waits no longer."""
        if self.wanted and not self.done:
            self.wanted = False
            self._round.take(self._place, Answer(error, self.sent_at, now))

    def give_up(self, error: LeaseholdError) -> None:
        """From any thread: nobody will read what comes of it, so that what must follow follows now."""
        if self._follow is not None:
            self._follow(self._place, error)

    def finish(self, outcome: list[Any] | LeaseholdError, now: float) -> None:
        """All replies are there, or never will be."""
        if self.done:
            return
        self.done = True
        if self.wanted:
            self._round.take(self._place, Answer(outcome, self.sent_at, now))
        if self._follow is not None:
            self._follow(self._place, outcome)
