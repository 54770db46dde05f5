"""Batches: how a client acquires or releases many independent resources in one round trip. Flows, like those of one.

Nothing ties the claims of a batch together: each is one try, and is granted, refused or fails by itself. Those that are
granted by their first reply, and releases that are confirmed by it, need no more than that. Every other one goes on in
the flow of a single resource (``flows``), from what came of its first op, so that each decision exists once. These
flows run in step: what they request of the store at the same time leaves together, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial

from leasehold._core import ops
from leasehold._core.claims import AcquireRequest, claim, immediate_grant
from leasehold._core.flows import FirstClaim, FirstRelease, acquire, release
from leasehold._core.group import defer, withdrawals
from leasehold._core.holding import Holding, LocalGrant, without_frames
from leasehold._core.light_typing import Any, NamedTuple, Protocol, TypeAlias
from leasehold._core.policy import BUDGET_MS, LEAST_BUDGET_MS
from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable

MOST_TOGETHER = 250  # ops in one request: the store answers others before the next
EACH_MS = 10  # of the time that a request of claims may take, for each of them

UNSENT = "it was not sent: the store did not answer those before it"

Outcome: TypeAlias = ops.Reply | LeaseholdError


class Batch(NamedTuple):
    """Ops of different resources that leave together: in one round trip where the store can, else one after the other.
    The answer has an outcome for each, in order: its reply, or StoreUnavailable (it did not happen) or OutcomeUnknown
    (it may have)."""

    steps: tuple[ops.StoreOp, ...]

    @property
    def budget_ms(self) -> int:
        """How long it may take: no longer than any of them."""
        return min([op.budget_ms for op in self.steps])

    def __await__(self) -> Generator[Any, ops.TimedReply[Sequence[Outcome]], ops.TimedReply[Sequence[Outcome]]]:
        return (yield self)


class BatchCaller(Protocol):
    """The caller that wants many. A place is a number in the order of the requests."""

    def new_owner(self, place: int) -> str:
        """An owner for the claim of that place, recorded for clean-up."""

    def keep(self, place: int, grant: LocalGrant) -> Holding:
        """It was granted: have it renewed from now on."""


def budget_ms(count: int) -> int:
    """How long a request of so many claims may take, which nobody wants to wait for."""
    return min(LEAST_BUDGET_MS + EACH_MS * count, BUDGET_MS)


# ---------------------------------------------------------------- acquiring


async def acquire_many(
    requests: Sequence[AcquireRequest], caller: BatchCaller, floor: Callable[[], int], now: float
) -> list[Holding | LeaseholdError]:
    """One try for each. Returns for each what was granted, or why not. A store that leaves a whole request unanswered
    is not asked for the rest. However this ends otherwise, nothing is left of what was not granted yet; what the caller
    has kept is the caller's to give back."""
    outcomes: list[Any] = []
    requests = [request._replace(wait=0) if request.wait != 0 else request for request in requests]
    for start in range(0, len(requests), MOST_TOGETHER):
        some = requests[start : start + MOST_TOGETHER]
        if start and _silent(outcomes[start - MOST_TOGETHER :]):
            outcomes += [StoreUnavailable(UNSENT, resource=request.name.text) for request in some]
        else:
            now = await Claims(some, start, caller, floor, now).acquire(outcomes)
    return outcomes


def _silent(outcomes: Sequence[object]) -> bool:
    """True when the store has answered none of these."""
    return all(isinstance(one, (StoreUnavailable, OutcomeUnknown)) for one in outcomes)


class Claims:
    """The claims of one request. What may be in the store, and is neither kept nor cleaned up by the flow of its own,
    is in ``pending``."""

    def __init__(
        self,
        requests: Sequence[AcquireRequest],
        start: int,
        caller: BatchCaller,
        floor: Callable[[], int],
        sent: float,
    ) -> None:
        self.requests = requests
        self.start = start  # the place of the first of them
        self.caller = caller
        self.floor = floor
        self.sent = sent
        self.pending: dict[int, tuple[AcquireRequest, str]] = {}

    async def acquire(self, outcomes: list[Any]) -> float:
        """Append the outcome of each. Returns the time of the last reply."""
        try:
            return await self._acquire(outcomes)
        except GeneratorExit:
            raise
        except BaseException:
            await defer(withdrawals(list(self.pending.values())))
            raise

    async def _acquire(self, outcomes: list[Any]) -> float:
        caller, start, sent, floor = self.caller, self.start, self.sent, self.floor()
        budget, pending = budget_ms(len(self.requests)), self.pending
        for at, request in enumerate(self.requests):
            pending[at] = request, caller.new_owner(start + at)
        answer = await Batch(tuple([claim(request, owner, 1, floor, budget) for request, owner in pending.values()]))
        now = answer.at
        found: list[Any] = [None] * len(self.requests)
        rest: dict[int, Any] = {}
        for at, reply in enumerate(answer.reply):
            request, owner = pending[at]
            grant = immediate_grant(request, owner, sent, reply, now)  # type: ignore[arg-type]  # an error is none
            if grant is None:
                rest[at] = reply
            else:
                found[at] = caller.keep(start + at, grant)
                del pending[at]
        if rest:
            now = await self._go_on(rest, found, now)
        outcomes += found
        return now

    def _single(self, at: int, reply: Any, now: float) -> Coroutine[Any, Any, LocalGrant]:
        """The flow of a single acquire, from what came of its claim."""
        request, owner = self.pending[at]
        failed = isinstance(reply, LeaseholdError)
        first = FirstClaim(owner, None, reply) if failed else FirstClaim(owner, ops.TimedReply(reply, now))
        return acquire(request, partial(self._new_owner, at), self.floor, self.sent, first)

    def _new_owner(self, at: int) -> str:
        owner = self.caller.new_owner(self.start + at)
        self.pending[at] = self.requests[at], owner
        return owner

    async def _go_on(self, rest: dict[int, Any], found: list[Any], now: float) -> float:
        """What is not plainly granted: refused, failed, or granted and still to be confirmed."""
        step = InStep(now)
        try:
            for at, reply in rest.items():
                step.flows[at] = self._single(at, reply, now)
            await step.run()
            for at, result in step.results.items():
                found[at] = self.caller.keep(self.start + at, result) if isinstance(result, LocalGrant) else result
                self.pending.pop(at, None)
        finally:
            step.close()
            for at in step.cleaned_up():
                self.pending.pop(at, None)
        return step.now


# ---------------------------------------------------------------- releasing


async def release_many(holdings: Sequence[Holding], now: float) -> list[bool | LeaseholdError]:
    """Give all of them back. Returns for each whether it was ours until now, or OutcomeUnknown: that release is
    repeated in the background, and may be repeated by the caller."""
    outcomes: list[Any] = []
    for start in range(0, len(holdings), MOST_TOGETHER):
        silent = bool(start) and _silent(outcomes[start - MOST_TOGETHER :])
        now = await Releases(holdings[start : start + MOST_TOGETHER], now, silent).release(outcomes)
    return outcomes


class Releases:
    """The releases of one request. Those that were begun, and are not repeated by the flow of its own, are in
    ``pending``. ``silent``: the store does not answer, and all of them go on in the background at once."""

    def __init__(self, holdings: Sequence[Holding], sent: float, silent: bool) -> None:
        self.holdings = holdings
        self.sent = sent
        self.silent = silent
        self.pending: dict[int, ops.Release] = {}

    async def release(self, outcomes: list[Any]) -> float:
        """Append the outcome of each. Returns the time of the last reply."""
        try:
            return await self._release(outcomes)
        except GeneratorExit:
            raise
        except BaseException:
            left = [(self.holdings[at], op._replace(again=True)) for at, op in self.pending.items()]
            await defer([ops.Defer(op, holding.ttl_ms / 1000) for holding, op in left])
            raise

    async def _release(self, outcomes: list[Any]) -> float:
        found: list[Any] = [False] * len(self.holdings)
        pending, now = self.pending, self.sent
        for at, holding in enumerate(self.holdings):
            op = holding.begin_release(now)
            if op is not None:
                pending[at] = op
        replies: Sequence[Any] = ()
        if self.silent:
            replies = [StoreUnavailable(UNSENT) for _ in pending]
        elif pending:
            answer = await Batch(tuple(pending.values()))
            replies, now = answer.reply, answer.at
        rest: dict[int, Any] = {}
        for at, reply in zip(tuple(pending), replies, strict=True):
            if type(reply) is ops.Released and reply.found:
                found[at] = self.holdings[at].end_release(pending[at], reply, now)
                del pending[at]
            else:
                rest[at] = reply
        if rest:
            now = await self._go_on(rest, found, now)
        outcomes += found
        return now

    async def _go_on(self, rest: dict[int, Any], found: list[Any], now: float) -> float:
        """What is not plainly released: it was not ours any more, or the store has not answered."""
        step = InStep(now)
        try:
            for at, reply in rest.items():
                failed = isinstance(reply, LeaseholdError)
                op = self.pending[at]
                first = FirstRelease(op, None, reply) if failed else FirstRelease(op, ops.TimedReply(reply, now))
                step.flows[at] = release(self.holdings[at], self.sent, first)
            await step.run()
            for at, result in step.results.items():
                found[at] = result
        finally:
            step.close()
            for at in step.cleaned_up():
                self.pending.pop(at, None)
        return step.now


# ---------------------------------------------------------------- flows in step


class InStep:
    """Several flows that are run together, in turns. In each turn all that they request of the store leaves as one
    batch. ``results`` has what each returned, or the error of ours that it raised. What interrupts them is raised at
    once: then the caller cleans up for all that have not ended."""

    def __init__(self, now: float) -> None:
        self.flows: dict[int, Coroutine[Any, Any, Any]] = {}
        self.now = now
        self.results: dict[int, Any] = {}

    def cleaned_up(self) -> list[int]:
        """Those that left nothing behind: they failed, or were refused."""
        return [at for at, result in self.results.items() if isinstance(result, LeaseholdError)]

    def close(self) -> None:
        """End those that have not ended: none awaits anything more."""
        for flow in self.flows.values():
            flow.close()

    async def run(self) -> None:
        """To their ends."""
        answers: dict[int, Any] = dict.fromkeys(self.flows)
        while self.flows:
            answers = await self._perform(self._requests(answers))

    def _requests(self, answers: dict[int, Any]) -> dict[int, Any]:
        """Give each flow its answer. Returns what those request that have not ended."""
        requests: dict[int, Any] = {}
        for at, flow in tuple(self.flows.items()):
            answer = answers[at]
            try:
                requests[at] = flow.throw(answer) if isinstance(answer, LeaseholdError) else flow.send(answer)
                continue
            except StopIteration as end:
                self.results[at] = end.value
            except LeaseholdError as error:
                self.results[at] = without_frames(error)  # it is kept, and must not keep the caller's lease alive
            del self.flows[at]
        return requests

    async def _perform(self, requests: dict[int, Any]) -> dict[int, Any]:
        """The answer to each."""
        answers: dict[int, Any] = {}
        sent = {at: op for at, op in requests.items() if not isinstance(op, (ops.Defer, ops.Park))}
        for at, op in requests.items():
            if at not in sent:
                answers[at] = await op
                self.now = max(self.now, answers[at].at)
        if sent:
            answer = await Batch(tuple(sent.values()))
            self.now = max(self.now, answer.at)
            for at, reply in zip(sent, answer.reply, strict=True):
                answers[at] = reply if isinstance(reply, LeaseholdError) else ops.TimedReply(reply, answer.at)
        return answers
