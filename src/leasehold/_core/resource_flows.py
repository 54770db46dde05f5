"""Flows of clients that do not hold a resource: operators inspect it, evict its holder or ask for the lease, and
watchers follow its changes."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any, NamedTuple
from leasehold._core.names import Name, parse_name
from leasehold._core.policy import SHORT_BEAT_MS, WATCH_EVERY_MS, WATCH_POLL_MS
from leasehold._core.types import Grant, Unreadable, json_text, public_owner, visible_holders
from leasehold.errors import InvalidRequest, NotHeld, OutcomeUnknown, StoreUnavailable

MOST_TRIES = 3  # of an op that goes unanswered and can be repeated
# The view of a resource in a listing whose name cannot be written in a request.
NAMELESS = ops.View((), (), 0, 0, 0, unreadable=(Unreadable("its name", "is no UTF-8"),))


async def inspect_resource(resource: str, queue: bool = True) -> ops.View:
    """For a caller that decides by it: StoreUnavailable when a record that cannot be read may be a holder's."""
    view = await _view(resource, queue)
    for one in view.unreadable:
        if one.blocks:
            raise StoreUnavailable(
                f"who holds {parse_name(resource).shown} is not known: {one.what.replace(resource, '...')} {one.why}. "
                "`leasehold inspect` shows it; delete it when no process works under it",
                resource=resource,
            )
    return view


async def _view(resource: str, queue: bool = True) -> ops.View:
    """All that can be read."""
    view: ops.View = await _read(ops.Inspect(resource, queue=queue))
    return view


async def _read(op: ops.Inspect | ops.Scan | ops.Leaks | ops.Ping) -> Any:
    """The reply to an op that changes nothing. It is sent again when it goes unanswered: usually the connection was old
    and the server had closed it. When there is still no answer, nothing was changed: StoreUnavailable."""
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
    """The resource that is meant: of two names, the first of which the store has any record."""
    for name in names:
        view = await _view(name.text, queue)
        if any(view._replace(now_ms=0)):
            return name, view
    return names[0], view


class Listed:
    """What the pages of one scan have shown so far."""

    __slots__ = ("names", "withheld")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.withheld = False


async def scan(here: str, pattern: str, cursor: str, listed: Listed) -> tuple[list[tuple[str, ops.View]], str]:
    """One page of the resources here that match, each as the store sees it and once; and where the next page begins.
    A star in the namespace is an ordinary character. One unreadable resource does not hide the others. A login for
    some of the names sees these alone; where it may read none of those that there are, nobody is told that there are
    none: StoreUnavailable."""
    page: ops.Page = await _read(ops.Scan(pattern, cursor))
    seen = listed.names
    listed.withheld = listed.withheld or page.withheld
    new = [resource for resource in dict.fromkeys(page.items) if resource.startswith(here) and resource not in seen]
    seen.update(new)
    found = [(resource, await _view(resource)) for resource in new]
    for name in page.unreadable:
        if name.startswith(here) and name not in seen:
            seen.add(name)
            found.append((name, NAMELESS))
    if listed.withheld and not seen and not page.cursor:
        raise StoreUnavailable(
            "this login may read none of the names that match: what is held there cannot be seen. `leasehold doctor` "
            "prints the rights that it needs, and a login for one namespace needs that namespace"
        )
    return found, page.cursor


async def leaks(pattern: str) -> list[str]:
    """Every key that matches and has no end."""
    found: set[str] = set()
    cursor = ""
    while True:
        page: ops.Page = await _read(ops.Leaks(pattern, cursor))
        found.update(page.items)
        cursor = page.cursor
        if not cursor:
            return sorted(found)


async def ping(now: float, namespace: str) -> float:
    """The seconds of a round trip to the store, with the rights of this namespace; of several servers, the longest."""
    longest, cursor = 0.0, ""
    while True:
        try:
            answer = await ops.Ping(cursor=cursor, namespace=namespace)
        except OutcomeUnknown as error:  # nothing was to be changed
            raise StoreUnavailable(str(error)) from error
        longest, now, cursor = max(longest, answer.at - now), answer.at, answer.reply.cursor
        if not cursor:
            return longest


async def versions() -> list[str]:
    """The names and versions of the servers, each once. Those that may not tell are left out."""
    found: list[str] = []
    cursor = ""
    while True:
        try:
            page: ops.Page = await _read(ops.Ping(versions=True, cursor=cursor))
        except StoreUnavailable:
            return sorted(set(found))
        found += page.items
        cursor = page.cursor
        if not cursor:
            return sorted(set(found))


async def evict(
    names: list[Name],
    fence: int,
    request: str,
    delay_ms: int | None,
    force: bool,
    note: dict[str, Any],
    owner: str | None = None,
) -> tuple[Name, Grant, ops.Evicted]:
    """Take the lease with that fence, and that owner if one is given, away from its holder. The victim is named by
    owner and fence, so that a later holder is not hit by accident. The note gets what remained of the lease."""
    name, view, (victim, *_) = await _holders(names, fence, owner)
    remaining = max(victim.expires_ms - view.now_ms, 0) / 1000
    op = ops.Evict(
        resource=name.text,
        owner=victim.owner,
        fence=fence,
        request=request,
        delay_ms=delay_ms,
        force=force,
        note=json_text({**note, "remaining": remaining}, "the note"),
    )
    reply = await _until_answered(op)
    if isinstance(reply, ops.Rejected):
        raise InvalidRequest(reply.why, resource=name.text)
    if isinstance(reply, ops.NotYours):
        raise _not_there(name, fence, f": its lease is over ({reply.reason})")
    return name, victim, reply


async def _until_answered(op: ops.Evict | ops.Resize) -> Any:
    """Send it a few times: an eviction is idempotent by its request, and a limit can be set twice."""
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


async def revoke(names: list[Name], fence: int | None, note: str) -> bool:
    """Ask the holder with that fence to give back, or all holders. False when not all of them listen. A holder that has
    given back meanwhile does not count."""
    name, _, holders = await _holders(names, fence)
    reached: list[bool] = []
    for holder in holders:
        op = ops.Revoke(name.text, holder.owner, holder.fence, note)
        answer: ops.TimedReply[ops.HolderAsked | ops.NotYours] = await op
        if isinstance(answer.reply, ops.HolderAsked):
            reached.append(answer.reply.reached)
    if not reached:
        raise _not_there(name, fence, ": what was held is given back, or over")
    return all(reached)


async def _holders(
    names: list[Name], fence: int | None, owner: str | None = None
) -> tuple[Name, ops.View, list[Grant]]:
    """The holder with that fence and owner; without either all holders, which may be several that share it."""
    name, view = await inspect(names, queue=False)
    meant = [one for one in view.holders if fence in (None, one.fence) and owner in (None, one.owner)]
    if meant:
        return name, view, meant
    now = ", ".join(f"{public_owner(one.owner)} with fence {one.fence}" for one in view.holders)
    raise _not_there(name, fence, f": it is held by {now}" if now else "")


def _not_there(name: Name, fence: int | None, why: str) -> NotHeld:
    whose = "nobody" if fence is None else f"nobody with fence {fence}"
    return NotHeld(f"{whose} holds {name.shown} now{why}", resource=name.text, fence=fence)


# ---------------------------------------------------------------- watches
#
# Following a resource: its holders and their metadata, each time they change. The store pushes to a watcher at each
# change; a watcher also beats now and then, and so finds changes whose push was lost.


BEARABLE = 10.0  # seconds without an answer, before the watcher gets an error


class WatchRequest(NamedTuple):
    """A watcher, its resource, and the address for its pushes."""

    resource: str
    owner: str
    address: str


async def next_change(watching: WatchRequest, known: tuple[Grant, ...] | None, now: float) -> ops.View:
    """Wait until the holders differ from those that are known, and return the view; at once when none are known."""
    failing_since: float | None = None
    while True:
        pause_ms = WATCH_EVERY_MS
        try:
            answer = await ops.Watch(watching.resource, watching.owner, watching.address)
        except (StoreUnavailable, OutcomeUnknown) as error:
            failing_since = now if failing_since is None else failing_since
            if now - failing_since > BEARABLE or known is None:
                raise StoreUnavailable(str(error), resource=watching.resource) from error
        else:
            failing_since, now, view = None, answer.at, answer.reply
            if known is None or visible_holders(view.holders) != visible_holders(known):
                return view
            pause_ms = _pause_ms(view, watching.address != "")
        now = (await ops.Park(watching.owner, now + pause_ms / 1000)).at


def end_watch(watching: WatchRequest) -> ops.Defer:
    """The op that ends a watch, in the background: no more pushes are wanted."""
    return ops.Defer(ops.Withdraw(watching.resource, watching.owner), WATCH_EVERY_MS / 1000)


def _pause_ms(view: ops.View, pushable: bool) -> int:
    """How long to park. The store pushes nothing when a lease expires, so the watcher beats at the end of each."""
    ends = min([one.expires_ms - view.now_ms for one in view.holders], default=WATCH_EVERY_MS)
    return min(WATCH_EVERY_MS if pushable else WATCH_POLL_MS, max(ends, SHORT_BEAT_MS))
