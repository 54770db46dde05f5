"""What the flows of a Redlock request of the nodes, and how an answer is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hiredis

from leasehold._core import ops
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.redis import failures, protocol
from leasehold.stores.redis.redlock.commands import Batch
from leasehold.stores.redis.redlock.quorum import Quorum

RENEWED, RELEASED = 5, 6  # as the scripts reply
NODE_SHARE = 10  # a node may take this part of the ttl
ReplyError = hiredis.ReplyError
Outcome: TypeAlias = "list[Any] | LeaseholdError"  # the replies to all commands of a batch, or the error of all of them


class Answer(NamedTuple):
    """What came of a batch on one node. StoreUnavailable: nothing was sent. Times are local."""

    outcome: Outcome
    sent: float
    received: float


class Round(NamedTuple):
    """For each node the commands that it gets, or None. ``take`` gets one answer of each of them, and says whether
    nothing that is still to come matters. ``follow`` says what is to be withdrawn on a node because of what came of its
    commands there, however late that is known."""

    batches: Sequence[Batch | None]
    seconds: float
    take: Callable[[int, Answer], bool]
    follow: Callable[[int, Outcome], Sequence[ops.Withdraw]] | None = None


class Leave(NamedTuple):
    """For each node what is to be withdrawn there, or None; for so many seconds it is tried again."""

    withdrawals: Sequence[ops.Withdraw | None]
    seconds: float


def too_few(quorum: Quorum, reasons: Sequence[str]) -> StoreUnavailable:
    """Which nodes do not count, and why."""
    count = len(quorum.nodes)
    return StoreUnavailable(
        f"{len(reasons)} of {count} Redlock nodes do not count, and {quorum.majority} must: {'; '.join(reasons)}"
    )


def node_seconds(ttl_ms: int, budget_ms: int) -> float:
    """How long one round may take: a slow node must not use up the time that the lease is for."""
    return min(ttl_ms / NODE_SHARE, budget_ms) / 1000


def first(answer: Answer) -> Any:
    """The reply to its only command, or the error."""
    outcome = answer.outcome
    return outcome[0] if type(outcome) is list else outcome


def decoded(quorum: Quorum, place: int, reply: Any, op: Any) -> Any:
    if isinstance(reply, LeaseholdError):
        return reply
    if isinstance(reply, ReplyError):
        return failures.refusal(f"Redis at {quorum.nodes[place].address}", reply)
    return protocol.decode(reply, op)


def code(reply: Any) -> int:
    return reply[0] if isinstance(reply, list) and reply else 0
