"""A desk with one resource on it: the ledger, a clock that tests turn, and a tray for the pushes."""

from __future__ import annotations

from typing import Any

from leasehold._core import ledger, ops
from leasehold._core.types import Grant, Instant, State, Waiter

ROOM = "report:42"
TTL = 10_000
PATIENCE = 3_000  # L of a lease of TTL
WALL = 1_794_768_018_000_000  # a day in November 2026, in µs


def expect(reply: object, expected: object) -> None:
    """Replies are tuples, and tuples of different types can be equal: compare the type as well."""
    assert type(reply) is type(expected), f"{reply!r} is not {expected!r}"
    assert reply == expected, f"{reply!r} is not {expected!r}"


def tupled(value: Any) -> Any:
    """JSON gives lists where there were tuples."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value


class Desk:
    """One resource and its clocks. Every owner ``x`` can be pushed at ``@x`` unless it is in ``dead``."""

    def __init__(self) -> None:
        self.state = ledger.EMPTY
        self.ms = 5_000_000
        self.wall_us = WALL
        self.pushes: list[ops.Push] = []  # those of the last op
        self.dead: set[str] = set()

    # ------------------------------------------------------------ time and turns

    def now(self) -> Instant:
        """What the store's clocks say."""
        return Instant(self.ms, self.wall_us)

    def later(self, ms: int) -> None:
        """Turn both clocks."""
        self.ms += ms
        self.wall_us += ms * 1000

    def reachable(self, address: str) -> bool:
        """Does a push reach somebody there?"""
        return address.removeprefix("@") not in self.dead

    def ask(self, op: ops.ResourceOp) -> ops.Reply:
        """One turn of the ledger."""
        outcome = ledger.apply(self.state, self.now(), op, self.reachable)
        self.state = outcome.state
        self.pushes = list(outcome.pushes)
        return outcome.reply

    # ------------------------------------------------------------ ops, short

    def claim(
        self,
        owner: str,
        ttl_ms: int = TTL,
        *,
        wait: bool = True,
        beat: int = 1,
        floor: int = 0,
        pushable: bool = True,
        delay_ms: int = 0,
        rule: str = "mutex",
        permits: int = 1,
        limit: int = 1,
    ) -> ops.Reply:
        """Ask for a place, by default as somebody who waits and can be pushed."""
        address = f"@{owner}" if pushable else ""
        return self.ask(
            ops.Claim(
                ROOM,
                owner,
                ttl_ms,
                beat=beat,
                floor=floor,
                enqueue=wait,
                address=address,
                rule=rule,
                permits=permits,
                limit=limit,
                holder_address=f"news@{owner}",
                delay_ms=delay_ms,
            )
        )

    def read(self, owner: str, ttl_ms: int = TTL, *, wait: bool = True, pushable: bool = True) -> ops.Reply:
        """Ask to read."""
        return self.claim(owner, ttl_ms, wait=wait, pushable=pushable, rule="read")

    def write(self, owner: str, ttl_ms: int = TTL, *, wait: bool = True, pushable: bool = True) -> ops.Reply:
        """Ask to write."""
        return self.claim(owner, ttl_ms, wait=wait, pushable=pushable, rule="write")

    def permit(
        self,
        owner: str,
        limit: int,
        permits: int = 1,
        *,
        ttl_ms: int = TTL,
        wait: bool = True,
        pushable: bool = True,
        delay_ms: int = 0,
    ) -> ops.Reply:
        """Ask for permits of a semaphore."""
        return self.claim(
            owner,
            ttl_ms,
            wait=wait,
            pushable=pushable,
            rule="semaphore",
            permits=permits,
            limit=limit,
            delay_ms=delay_ms,
        )

    def granted(self, owner: str, ttl_ms: int = TTL, *, floor: int = 0, delay_ms: int = 0) -> int:
        """Claim, be granted, and say the fence."""
        reply = self.claim(owner, ttl_ms, floor=floor, delay_ms=delay_ms)
        assert isinstance(reply, ops.Granted), reply
        return reply.fence

    def beat(self, owner: str, beat: int, floor: int = 0) -> ops.Reply:
        """A sign of life."""
        return self.ask(ops.Beat(ROOM, owner, beat, floor))

    def renew(
        self,
        owner: str,
        fence: int,
        ttl_ms: int = TTL,
        *,
        exact: bool = False,
        number: int = 0,
        closed_ms: int = 0,
    ) -> ops.Reply:
        """Hold on; ``exact`` is extend."""
        return self.ask(ops.Renew(ROOM, owner, fence, ttl_ms, exact, number, closed_ms))

    def release(self, owner: str, fence: int, *, forget_ms: int = 0, again: bool = False) -> ops.Reply:
        """Give back."""
        return self.ask(ops.Release(ROOM, owner, fence, forget_ms, again))

    def withdraw(self, owner: str, forget_ms: int = 0) -> ops.Reply:
        """Give up, whatever there is."""
        return self.ask(ops.Withdraw(ROOM, owner, forget_ms))

    def evict(
        self,
        owner: str,
        fence: int,
        *,
        request: str = "request-1",
        delay_ms: int | None = None,
        force: bool = False,
        note: str = "",
    ) -> ops.Reply:
        """Take a grant away."""
        return self.ask(ops.Evict(ROOM, owner, fence, request, delay_ms, force, note))

    def revoke(self, owner: str, fence: int, note: str = "") -> ops.Reply:
        """Ask for it back."""
        return self.ask(ops.Revoke(ROOM, owner, fence, note))

    def offer(self, owner: str, fence: int, ticket: str = "ticket") -> None:
        """Allow the bearer of the ticket to adopt."""
        reply = self.ask(ops.Renew(ROOM, owner, fence, TTL, ticket=ticket))
        assert isinstance(reply, ops.Renewed), reply

    def adopt(
        self,
        fence: int,
        adopter: str,
        *,
        ticket: str = "ticket",
        ttl_ms: int = TTL,
        floor: int = 0,
    ) -> ops.Reply:
        """Take over."""
        return self.ask(ops.Adopt(ROOM, fence, ticket, adopter, ttl_ms, floor, f"news@{adopter}"))

    def resize(self, limit: int) -> ops.Reply:
        """Give a semaphore another limit."""
        return self.ask(ops.Resize(ROOM, limit))

    def watch(self, owner: str, *, pushable: bool = True) -> ops.View:
        """Look, and be told of changes."""
        reply = self.ask(ops.Watch(ROOM, owner, f"@{owner}" if pushable else ""))
        assert isinstance(reply, ops.View), reply
        return reply

    def look(self) -> ops.View:
        """Anybody's op: it advances the resource and changes nothing else."""
        reply = self.ask(ops.Inspect(ROOM))
        assert isinstance(reply, ops.View), reply
        return reply

    # ------------------------------------------------------------ looking, without a turn

    def holder(self) -> str:
        """The owner that the state names as holder."""
        return self.state.holders[0].owner if self.state.holders else ""

    def grant(self) -> Grant:
        """The only grant."""
        (grant,) = self.state.holders
        return grant

    def fence_of(self, owner: str) -> int:
        """Of one that holds."""
        return next(one.fence for one in self.state.holders if one.owner == owner)

    def holding(self) -> list[str]:
        """The owners that hold, in the order of their fences."""
        return [one.owner for one in self.state.holders]

    def slots(self) -> dict[str, tuple[int, ...]]:
        """Who fills which."""
        return {one.owner: one.slots for one in self.state.holders}

    def waiting(self) -> list[str]:
        """The owners in the queue, in order."""
        return [waiter.owner for waiter in self.state.queue]

    def waiter(self, owner: str) -> Waiter:
        """One of the queue."""
        return next(one for one in self.state.queue if one.owner == owner)

    def pushed(self) -> list[tuple[str, str, int]]:
        """Whom the last op told what: owner, event, beat."""
        return [(push.owner, push.event, push.beat) for push in self.pushes]

    def last_fence(self) -> int:
        """The last fence given, as it is stored."""
        return self.state.fence

    def lose_memory(self) -> State:
        """FLUSHALL: everything that the store kept is gone."""
        before, self.state = self.state, ledger.EMPTY
        return before
