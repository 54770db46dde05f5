"""Plain turns: the ledger's decisions, or none."""

from __future__ import annotations

from hypothesis import settings

from leasehold._core import ledger, ops, plain
from leasehold._core.policy import DAY_US
from leasehold._core.types import Instant, State
from tests.support.examples import examples
from tests.support.tables import each
from tests.unit.core.desk import ROOM, TTL, WALL
from tests.unit.core.test_ledger_machine import LedgerMachine

NOW = Instant(5_000_000, WALL)
LATER = Instant(NOW.ms + 4_000, WALL + 4_000_000)
OVER = Instant(NOW.ms + TTL, WALL + TTL * 1000)
SET_BACK = Instant(NOW.ms - 1, WALL)
CLAIM = ops.Claim(ROOM, "host:1:a", TTL, address="@a", holder_address="@news", meta='{"a":1}', delay_ms=5)
HELD, GRANTED, _ = ledger.apply(ledger.EMPTY, NOW, CLAIM)
FENCE = HELD.fence
RENEW, RELEASE = ops.Renew(ROOM, CLAIM.owner, FENCE, TTL, number=3), ops.Release(ROOM, CLAIM.owner, FENCE)
FREE = ledger.apply(HELD, NOW, RELEASE).state


def after(*done: ops.ResourceOp) -> State:
    """What these make of it while it is held."""
    state = HELD
    for op in done:
        state = ledger.apply(state, NOW, op).state
    return state


WAITED_FOR = after(ops.Claim(ROOM, "host:1:b", TTL, address="@b"))
WATCHED = after(ops.Watch(ROOM, "host:1:w", "@w"))
SHARED = HELD._replace(holders=(*HELD.holders, HELD.holders[0]._replace(owner="host:1:b", fence=FENCE + 1)))


@each(
    "state, now, op",
    [
        (ledger.EMPTY, NOW, CLAIM),
        (FREE, NOW, CLAIM),
        (FREE, LATER, CLAIM._replace(rule="write", floor=FENCE + 10**9, enqueue=False)),
        (FREE, Instant(LATER.ms, WALL - 10**9), CLAIM),
        (FREE, Instant(LATER.ms, WALL + 2 * DAY_US), CLAIM),
        (FREE._replace(fence_until_us=2 * WALL), LATER, CLAIM),
        (HELD, LATER, RENEW),
        (after(RENEW), LATER, RENEW._replace(number=1)),
        (HELD, LATER, RENEW._replace(ttl_ms=3 * TTL, number=0)),
        (HELD, LATER, RELEASE),
        (HELD, LATER, RELEASE._replace(again=True)),
    ],
)
def test_what_is_plain(state: State, now: Instant, op: ops.ResourceOp) -> None:
    """A claim of what is free, the renewal and the release of the only lease: as the ledger decides."""
    outcome = ledger.apply(state, now, op)
    assert plain.turn(state, now, op) == (outcome.state, outcome.reply)
    assert outcome.pushes == ()


@each(
    "state, now, op",
    [
        (HELD, NOW, CLAIM),
        (HELD, NOW, CLAIM._replace(owner="host:1:b")),
        (HELD, OVER, CLAIM._replace(owner="host:1:b")),
        (FREE, NOW, CLAIM._replace(rule="read")),
        (FREE, NOW, CLAIM._replace(rule="semaphore", limit=3)),
        (FREE, NOW, CLAIM._replace(rule="no such rule")),
        (FREE, NOW, CLAIM._replace(floor=-1)),
        (FREE, NOW, CLAIM._replace(floor=2**53)),
        (FREE, NOW, CLAIM._replace(floor=WALL * 2)),
        (after(ops.Withdraw(ROOM, CLAIM.owner, 60_000)), NOW, CLAIM),
        (after(RENEW._replace(closed_ms=900), RELEASE), NOW, CLAIM),
        (after(ops.Resize(ROOM, 2), RELEASE), NOW, CLAIM),
        (after(ops.Evict(ROOM, CLAIM.owner, FENCE, "r", 0, True)), NOW, CLAIM),
        *[(state, NOW, op) for state in (WAITED_FOR, WATCHED, SHARED, FREE) for op in (RENEW, RELEASE)],
        *[(HELD, now, op) for now in (OVER, SET_BACK) for op in (RENEW, RELEASE)],
        *[(HELD, NOW, op._replace(fence=FENCE + 1)) for op in (RENEW, RELEASE)],
        *[(HELD, NOW, op._replace(owner="host:1:b")) for op in (RENEW, RELEASE)],
        (HELD, NOW, RENEW._replace(ttl_ms=TTL - 1)),
        (HELD, NOW, RENEW._replace(exact=True)),
        (HELD, NOW, RENEW._replace(closed_ms=1)),
        (HELD, NOW, RENEW._replace(ticket="t")),
        (HELD, NOW, RENEW._replace(shared=True)),
        (HELD, NOW, RENEW._replace(meta="{}")),
        (HELD, NOW, RELEASE._replace(forget_ms=60_000)),
        (after(RENEW._replace(closed_ms=900)), NOW, RELEASE),
        (HELD, NOW, ops.Withdraw(ROOM, CLAIM.owner)),
        (HELD, NOW, ops.Inspect(ROOM)),
        (HELD, NOW, ops.Group((RELEASE,))),
        (HELD, NOW, ops.Scan("*")),
    ],
)
def test_what_is_left_to_the_ledger(state: State, now: Instant, op: ops.StoreOp) -> None:
    """Whatever waits, watches, is closed, is remembered or is over, and all that is asked for besides."""
    assert plain.turn(state, now, op) is None


class PlainMachine(LedgerMachine):
    """The ledger's machine, with a plain turn beside each of its turns."""

    def turn(self, op: ops.ResourceOp) -> ops.Reply:
        """What is decided plainly is the ledger's decision, in reply and state."""
        quick = plain.turn(self.state, Instant(self.ms, self.wall_us), op)
        reply = super().turn(op)
        if quick is not None:
            assert quick == (self.state, reply) and type(quick[1]) is type(reply), f"{op} on {self.before}"
            assert self.pushes == ()
        return reply


TestPlainMachine = PlainMachine.TestCase
TestPlainMachine.__doc__ = "A plain turn is the ledger's, after every step of a random life."
TestPlainMachine.settings = settings(max_examples=examples(40), stateful_step_count=40)
