"""What is asked about a resource by those who do not hold it: operators look, take a lease away or ask its holder for
it, and watchers are told of changes. Flows, like those of a client."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any, NamedTuple
from leasehold._core.names import Name, parse_name
from leasehold._core.policy import SHORT_BEAT_MS, WATCH_EVERY_MS, WATCH_POLL_MS
from leasehold._core.types import Grant, Unreadable, public_owner
from leasehold.errors import InvalidRequest, NotHeld, OutcomeUnknown, StoreUnavailable

MOST_TRIES = 3  # of what goes unanswered and can be repeated
# What a listing says of a resource that nobody can ask for.
NAMELESS = ops.View((), (), 0, 0, 0, unreadable=(Unreadable("its name", "is no UTF-8"),))


async def inspect_resource(resource: str, queue: bool = True) -> ops.View:
    """For those who decide by it: StoreUnavailable when somebody may hold by a record that cannot be read."""
    view = await _view(resource, queue)
    for one in view.unreadable:
        if one.blocks:
            raise StoreUnavailable(
                f"who holds {parse_name(resource).shown} is not known: {one.what.replace(resource, '...')} {one.why}. "
                "`leasehold inspect` shows it; delete it when nobody works by it",
                resource=resource,
            )
    return view


async def _view(resource: str, queue: bool = True) -> ops.View:
    """All that can be read, for people."""
    view: ops.View = await _seen(ops.Inspect(resource, queue=queue))
    return view


async def _seen(op: ops.Inspect | ops.Scan | ops.Leaks) -> Any:
    """What the store says to an op that changes nothing. It can be asked again: mostly the connection was old, and its
    server had closed it. When it goes unanswered, nothing was done to anybody."""
    try:
        answer: ops.TimedReply[Any]
        try:
            answer = await op
        except OutcomeUnknown:
            answer = await op
    except OutcomeUnknown as error:
        raise StoreUnavailable(str(error), resource=getattr(op, "resource", None)) from error
    return answer.reply


async def inspect(names: list[Name], queue: bool = True) -> tuple[Name, ops.View]:
    """The resource that is meant: of two names, the first that the store knows anything of."""
    for name in names:
        view = await _view(name.text, queue)
        if any(view._replace(now_ms=0)):
            return name, view
    return names[0], view


async def scan(here: str, pattern: str, cursor: str, seen: set[str]) -> tuple[list[tuple[str, ops.View]], str]:
    """One page of the resources here that match, each as the store sees it and once; and where the next page begins.
    A namespace may have a star in it, and is none of the pattern's. What one of them is hides none of the others."""
    page: ops.Page = await _seen(ops.Scan(pattern, cursor))
    new = [resource for resource in dict.fromkeys(page.items) if resource.startswith(here) and resource not in seen]
    seen.update(new)
    found = [(resource, await _view(resource)) for resource in new]
    for name in page.unreadable:
        if name.startswith(here) and name not in seen:
            seen.add(name)
            found.append((name, NAMELESS))
    return found, page.cursor


async def leaks(pattern: str) -> list[str]:
    """Every key that matches and has no end."""
    found: set[str] = set()
    cursor = ""
    while True:
        page: ops.Page = await _seen(ops.Leaks(pattern, cursor))
        found.update(page.items)
        cursor = page.cursor
        if not cursor:
            return sorted(found)


async def evict(
    names: list[Name], fence: int, request: str, delay_ms: int | None, force: bool, note: str
) -> tuple[Name, Grant, ops.Evicted]:
    """Take the lease with that fence away, from whoever it is. The victim is named by owner and fence: who holds by the
    time that this arrives is not hit by accident."""
    name, (victim, *_) = await _holders(names, fence)
    op = ops.Evict(name.text, victim.owner, fence, request, delay_ms, force, note)
    reply = await _until_answered(op)
    if isinstance(reply, ops.Rejected):
        raise InvalidRequest(reply.why, resource=name.text)
    if isinstance(reply, ops.NotYours):
        raise _not_there(name, fence, f"its lease is over ({reply.reason})")
    return name, victim, reply


async def _until_answered(op: ops.Evict | ops.Resize) -> Any:
    """A few times: an eviction is the same one by its request, and a limit that is set twice is set."""
    unanswered = 0
    while True:
        try:
            answer: ops.TimedReply[Any] = await op
            return answer.reply
        except OutcomeUnknown:
            unanswered += 1
            if unanswered == MOST_TRIES:
                raise
        except StoreUnavailable as error:
            if not unanswered:
                raise
            raise OutcomeUnknown(str(error), resource=op.resource) from error  # "nothing happened" would not be true


async def resize(resource: str, limit: int) -> None:
    """Store how many permits there are."""
    await _until_answered(ops.Resize(resource, limit))


async def revoke(names: list[Name], fence: int | None) -> bool:
    """Ask the holder with that fence for it, or all who hold; False when not everybody listens. Whoever has given back
    meanwhile need not be asked."""
    name, holders = await _holders(names, fence)
    told: list[bool] = []
    for holder in holders:
        answer: ops.TimedReply[ops.HolderAsked | ops.NotYours] = await ops.Revoke(name.text, holder.owner, holder.fence)
        if isinstance(answer.reply, ops.HolderAsked):
            told.append(answer.reply.reached)
    if not told:
        raise _not_there(name, fence, "what was held is given back, or over")
    return all(told)


async def _holders(names: list[Name], fence: int | None) -> tuple[Name, list[Grant]]:
    """Those with that fence: there is one, or none. Without one, all; there may be several who share it."""
    name, view = await inspect(names, queue=False)
    meant = [grant for grant in view.holders if fence is None or grant.fence == fence]
    if meant:
        return name, meant
    now = ", ".join(f"{public_owner(one.owner)} with fence {one.fence}" for one in view.holders)
    raise _not_there(name, fence, f"it is held by {now}" if now else "nobody holds it")


def _not_there(name: Name, fence: int | None, why: str) -> NotHeld:
    whose = "nobody" if fence is None else f"nobody with fence {fence}"
    return NotHeld(f"{whose} holds {name.shown} now: {why}", resource=name.text, fence=fence)


# ---------------------------------------------------------------- watching
#
# Watching a resource: who holds it, and what it says of itself, each time that changes. A flow.
#
# The store tells a watcher of each change; a watcher that shows up now and then finds out by itself what it was not
# told.


BEARABLE = 10.0  # seconds without an answer, before whoever watches is told


class WatchRequest(NamedTuple):
    """Who watches what, and where it can be told."""

    resource: str
    owner: str
    address: str


async def next_change(watching: WatchRequest, known: tuple[Grant, ...] | None, now: float) -> ops.View:
    """Wait until others hold it than those who are known, and show it; at once when nothing is known yet."""
    trouble: float | None = None
    while True:
        pause_ms = WATCH_EVERY_MS
        try:
            answer = await ops.Watch(watching.resource, watching.owner, watching.address)
        except (StoreUnavailable, OutcomeUnknown) as error:
            trouble = now if trouble is None else trouble
            if now - trouble > BEARABLE or known is None:
                raise StoreUnavailable(str(error), resource=watching.resource) from error
        else:
            trouble, now, view = None, answer.at, answer.reply
            if known is None or visible_holders(view.holders) != visible_holders(known):
                return view
            pause_ms = _pause_ms(view, watching.address != "")
        now = (await ops.Park(watching.owner, now + pause_ms / 1000)).at


async def end_watch(watching: WatchRequest) -> None:
    """It is over: nobody is to be told any more."""
    await ops.Defer(ops.Withdraw(watching.resource, watching.owner), WATCH_EVERY_MS / 1000)


def visible_holders(holders: tuple[Grant, ...]) -> list[tuple[str, int, str, str]]:
    """What makes a change: not every renewal."""
    return [(one.owner, one.fence, one.rule, one.meta) for one in holders]


def _pause_ms(view: ops.View, pushable: bool) -> int:
    """Nobody tells that a lease has expired unless somebody looks."""
    ends = min([one.expires_ms - view.now_ms for one in view.holders], default=WATCH_EVERY_MS)
    return min(WATCH_EVERY_MS if pushable else WATCH_POLL_MS, max(ends, SHORT_BEAT_MS))
