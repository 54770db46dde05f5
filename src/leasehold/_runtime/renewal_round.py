"""A round of renewals: everything that is due is sent once, in as few requests as possible, and no request may take
longer than what it carries can wait.

1. What is pressing, because earlier renewals failed, goes first, with what time it has left.
2. The others go by their budgets, the shortest first: a lease of a second must not wait for one of an hour, and must
   not make the request of ten thousand others end after a sixth of a second either.
3. Plain renewals travel together, several requests in one write; what is not plain, or was not renewed, travels alone.

A store that left a whole request unanswered is not asked again in the same round: with ten thousand leases each of
forty requests would wait for its time to be over. All that is left fails with the same error, and is tried again soon.
When all leases of a request need replicas, the store may have answered and lack those: then only what needs the same
``durability`` fails with it. A store on several servers (``fails_in_parts``) sees to that itself, for each of them.
"""

from __future__ import annotations

from leasehold._core.holding import ALIVE, NEVER
from leasehold._core.light_typing import TYPE_CHECKING, Any, Iterator, Sequence
from leasehold._core.ops import NotYours, Renew, Renewed
from leasehold._core.policy import renewal_budget_ms
from leasehold._core.renewals import (
    apply_replies,
    confirm_plain,
    due_renewals,
    fail,
    last_try_at,
    plain,
)
from leasehold._runtime.held_lease import HeldLease
from leasehold._runtime.schedule import FEW
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from leasehold._core.ports import RenewsMany, Store

MANY = 8 * FEW  # leases that are sent before their replies are read: each such part has a budget of its own
LEAST_MS = 20  # the shortest budget: less would not reach any server


class RenewalRound:
    """One round over what is due now, and its outcome."""

    def __init__(self, store: Store, lock: AbstractContextManager[Any], observed: bool) -> None:
        self._store = store
        self._many: RenewsMany | None = getattr(store, "renew_many", None) and store  # type: ignore[assignment]  # it has the method
        self._fails_in_parts: bool = getattr(store, "fails_in_parts", False)
        self._clock = store.clock
        self._lock = lock
        self._observed = observed
        self._unanswered: dict[str, tuple[int, LeaseholdError]] = {}  # by durability: the longest budget in vain
        self._back_by = NEVER  # when another lease, or one whose renewal has failed, needs its last try
        self.steady: dict[int, list[HeldLease]] = {}  # confirmed, by ttl: due again at one time
        self.failed: list[tuple[HeldLease, LeaseholdError]] = []
        self.refused: list[tuple[HeldLease, NotYours]] = []
        self.renewed: list[tuple[HeldLease, float]] = []  # with the seconds that were left; only where it is observed

    def renew(self, due: Sequence[HeldLease], others: Sequence[HeldLease] = ()) -> None:
        """Renew what is due. ``others`` are leases that may need the watchdog before this is over."""
        self._back_by = min([last_try_at(held) for held in others], default=NEVER)
        now = self._clock.now()
        pressing, classes = _sorted(due, now)
        for _, leases in sorted(_by_time_left(pressing, now).items()):
            self._renew_each(leases)
        for budget_ms, leases in classes:
            for start in range(0, len(leases), MANY):
                self._renew_together(leases[start : start + MANY], budget_ms)

    # ------------------------------------------------------------ plain ones

    def _renew_together(self, leases: list[HeldLease], budget_ms: int) -> None:
        if self._many is None:
            self._renew_each(leases)
            return
        now = self._clock.now()
        parts: list[list[HeldLease]] = []
        alone: list[HeldLease] = []
        for few in _slices(len(leases)):
            some = leases[few]
            together = plain(some, now, self._lock)
            parts.append(together)
            if len(together) < len(some):
                alone += set(some).difference(together)
        alone += self._send_together([part for part in parts if part], budget_ms)
        self._renew_each(alone)

    def _send_together(self, parts: list[list[HeldLease]], budget_ms: int) -> list[HeldLease]:
        """Returns those that were not renewed, for a reason that the store has not given."""
        if not parts or self._many is None:
            return []
        stops = [[held.stop_at for held in leases] for leases in parts] if self._observed else []
        sent = self._clock.now()
        budget_ms = self._bounded(budget_ms, sent)
        wanted = [""] * len(parts)  # what is durable is not plain
        outcomes = self._given_up(budget_ms, wanted) or self._many.renew_many(parts, budget_ms)
        self._note(outcomes, budget_ms, wanted)
        at = self._clock.now()
        alone: list[HeldLease] = []
        for number, outcome in enumerate(outcomes):
            leases = parts[number]
            if isinstance(outcome, LeaseholdError):
                self._add_failed([(held, outcome) for held in fail(leases, sent, outcome, self._lock)])
                continue
            left_out = set(outcome)
            if left_out:
                alone += [leases[place] for place in outcome]
                leases = _without(leases, left_out)
            steady = confirm_plain(leases, sent, at, self._lock)
            if steady:
                self.steady.setdefault(steady[0].ttl_ms, []).extend(steady)
            if stops:
                slacks = [stop - at for stop in _without(stops[number], left_out)]
                self.renewed += [one for one in zip(leases, slacks, strict=True) if one[0].phase in ALIVE]
        return alone

    # ------------------------------------------------------------ each with a Renew

    def _renew_each(self, leases: Sequence[HeldLease]) -> None:
        now = self._clock.now()
        due: list[HeldLease] = []
        renews: list[Renew] = []
        for few in _slices(len(leases)):
            some, theirs = due_renewals(leases[few], now, self._lock)
            due += some
            renews += theirs
        if not due:
            return
        stops = [held.stop_at for held in due] if self._observed else []
        shortest_ms = min([renew.budget_ms for renew in renews])
        budget_ms = self._bounded(shortest_ms, now)
        if budget_ms < shortest_ms:
            renews = [renew._replace(budget_ms=budget_ms) for renew in renews]
        wanted = [renew.durability for renew in renews]
        replies = self._given_up(budget_ms, wanted) or self._store.execute_many(renews)
        self._note(replies, budget_ms, wanted)
        at = self._clock.now()
        for few in _slices(len(due)):
            self._add_failed(apply_replies(due[few], renews[few], now, replies[few], at, self._lock))
        self.refused += [(held, reply) for held, reply in zip(due, replies, strict=True) if isinstance(reply, NotYours)]
        if stops:
            self.renewed += [
                (held, stop - at)
                for held, stop, reply in zip(due, stops, replies, strict=True)
                if isinstance(reply, Renewed) and held.phase in ALIVE
            ]

    # ------------------------------------------------------------ time

    def _bounded(self, budget_ms: int, now: float) -> int:
        """What this request may take: the thread that waits for it has other leases to renew, and must declare their
        loss in time."""
        if self._back_by < now + budget_ms / 1000:
            return max(min(budget_ms, int((self._back_by - now) * 1000)), min(budget_ms, LEAST_MS))
        return budget_ms

    def _add_failed(self, failed: list[tuple[HeldLease, LeaseholdError]]) -> None:
        self.failed += failed
        self._back_by = min([self._back_by, *(last_try_at(held) for held, _ in failed)])

    def _note(self, outcomes: Sequence[object], budget_ms: int, wanted: Sequence[str]) -> None:
        if not self._fails_in_parts and all(isinstance(outcome, LeaseholdError) for outcome in outcomes):
            for durability, error in zip(wanted, outcomes, strict=True):
                self._unanswered[durability] = (budget_ms, error)  # type: ignore[assignment]  # all are errors

    def _given_up(self, budget_ms: int, wanted: Sequence[str]) -> list[Any]:
        """An error for each, when the store left a request unanswered that might take as long as this one."""
        if not self._unanswered:
            return []
        silent = self._unanswered.get("")
        found = [silent or self._unanswered.get(durability) for durability in wanted]
        errors = [one[1] for one in found if one is not None and budget_ms <= one[0]]
        return errors if len(errors) == len(wanted) else []


def _sorted(due: Sequence[HeldLease], now: float) -> tuple[list[HeldLease], list[tuple[int, list[HeldLease]]]]:
    """What is pressing; and the others in classes of similar budgets, the shortest first. The shortest budget of a
    class is that of all: at least half of what each may take."""
    by_ttl: dict[int, list[HeldLease]] = {}
    for held in due:
        by_ttl.setdefault(held.ttl_ms, []).append(held)
    pressing: list[HeldLease] = []
    classes: list[tuple[int, list[HeldLease]]] = []
    for ttl_ms in sorted(by_ttl):
        leases = by_ttl[ttl_ms]
        budget_ms = renewal_budget_ms(ttl_ms)
        soon = now + 2 * budget_ms / 1000  # no time for another try after this one
        late = [held for held in leases if held.stop_at < soon]
        if late:
            pressing += late
            leases = [held for held in leases if held.stop_at >= soon]
        if classes and budget_ms <= 2 * classes[-1][0]:
            classes[-1][1].extend(leases)
        elif leases:
            classes.append((budget_ms, leases))
    return pressing, classes


def _by_time_left(leases: Sequence[HeldLease], now: float) -> dict[int, list[HeldLease]]:
    """By powers of two of the milliseconds."""
    found: dict[int, list[HeldLease]] = {}
    for held in leases:
        found.setdefault(int((held.stop_at - now) * 1000).bit_length(), []).append(held)
    return found


def _slices(count: int) -> Iterator[slice]:
    for start in range(0, count, FEW):
        yield slice(start, start + FEW)


def _without(items: Sequence[Any], places: set[int]) -> list[Any]:
    return [item for place, item in enumerate(items) if place not in places] if places else list(items)
