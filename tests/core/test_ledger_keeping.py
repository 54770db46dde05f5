"""What is kept of a resource: tidying, reboots, JSON, and that a turn is a pure function."""

from __future__ import annotations

import json

from leasehold._core import ledger, ops
from leasehold._core.policy import DAY_US
from leasehold._core.types import State, public_owner
from tests.core.desk import ROOM, TTL, Desk, tupled


def busy_desk() -> Desk:
    """A holder, two waiters, a tombstone, a closed door."""
    desk = Desk()
    fence = desk.granted("a")
    desk.renew("a", fence, closed_ms=2_000)
    desk.claim("b")
    desk.claim("c", pushable=False)
    desk.withdraw("d", forget_ms=60_000)
    return desk


def test_trap_37_tidy_gives_the_empty_state_when_everything_is_over() -> None:
    """A resource that nobody uses need not be kept."""
    desk = busy_desk()
    desk.later(120_000)
    desk.look()  # b and c were silent for ten patiences, a expired and was buried
    desk.later(DAY_US // 1000)
    assert ledger.tidy(desk.state, desk.now()) == ledger.EMPTY


def test_tidy_keeps_what_is_alive() -> None:
    """At the same moment nothing is over."""
    desk = busy_desk()
    assert ledger.tidy(desk.state, desk.now()) == desk.state


def test_tidy_hands_on_nothing() -> None:
    """It ends what is over and grants nobody: a grant needs a push, and tidy sends none."""
    desk = busy_desk()
    desk.later(TTL)
    tidied = ledger.tidy(desk.state, desk.now())
    assert tidied.holders == ()
    assert [waiter.owner for waiter in tidied.queue] == ["b", "c"]
    assert [ended.owner for ended in tidied.ended] == ["d", "a"]


def test_trap_37_tidy_buries_nobody_whose_tombstone_would_be_over() -> None:
    """A lease that expired long ago, unnoticed, leaves nothing but its fence."""
    desk = Desk()
    fence = desk.granted("a")
    desk.later(TTL + 60_000)
    assert ledger.tidy(desk.state, desk.now()) == State(fence=fence, fence_until_us=fence + DAY_US)


def test_tidy_keeps_a_fence_for_a_day() -> None:
    """Fences outlive their grants (trap 14)."""
    desk = Desk()
    fence = desk.granted("a")
    desk.release("a", fence)
    assert ledger.tidy(desk.state, desk.now()).fence == fence


def test_trap_14_a_reboot_keeps_the_fences_and_nothing_else() -> None:
    """Every process is gone and the clock began anew; the next fence is still higher."""
    desk = busy_desk()
    fence = desk.last_fence()
    desk.state = ledger.rebooted(desk.state)
    assert desk.state == State(fence=fence, fence_until_us=fence + DAY_US)
    desk.ms = 12
    assert desk.granted("z") > fence


def test_a_state_survives_json() -> None:
    """What a store writes down and reads back is the same state."""
    desk = busy_desk()
    assert tupled(json.loads(json.dumps(desk.state))) == desk.state


def test_a_turn_does_not_change_the_state_it_was_given() -> None:
    """A store that fails to write keeps the old one."""
    desk = busy_desk()
    before = json.dumps(desk.state)
    for op in (ops.Withdraw(ROOM, "a"), ops.Claim(ROOM, "z", TTL), ops.Beat(ROOM, "b", 2)):
        ledger.apply(desk.state, desk.now(), op)
        assert json.dumps(desk.state) == before


def test_the_same_input_gives_the_same_output() -> None:
    """No clock, no chance, no hidden state."""
    desk = busy_desk()
    op = ops.Withdraw(ROOM, "a", 60_000)
    assert ledger.apply(desk.state, desk.now(), op) == ledger.apply(desk.state, desk.now(), op)


def test_everybody_is_reachable_unless_told_otherwise() -> None:
    """The default suits a store whose waiters live in the same process."""
    assert ledger.always_reachable("@anybody")


def test_inspect_shows_the_resource_as_it_is_now() -> None:
    """Holders, queue, last fence, and how long the door stays closed."""
    desk = busy_desk()
    desk.later(500)
    view = desk.look()
    assert [grant.owner for grant in view.holders] == ["a"]
    assert [waiter.owner for waiter in view.queue] == ["b", "c"]
    assert (view.fence, view.now_ms) == (desk.last_fence(), desk.ms)
    desk.release("a", desk.last_fence())
    assert (desk.look().holders, desk.look().closed_ms) == ((), 1_500)


def test_the_public_part_of_an_owner() -> None:
    """Instance and process; of a token that is not ours, nothing."""
    assert public_owner("host:7:c2VjcmV0.1") == "host:7"
    assert public_owner("fe80::1:7:c2VjcmV0.1") == "fe80::1:7"
    assert public_owner("c2VjcmV0") == "?"
    assert public_owner("half:c2VjcmV0") == "?"
    assert public_owner("") == "?"
    assert public_owner("hôte:7:c2VjcmV0.1") == "hôte:7"
    assert public_owner("a\x1b[2J\nforged\x9b:7:c2VjcmV0.1") == "a\\x1b[2J\\nforged\\x9b:7"
