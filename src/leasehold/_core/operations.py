"""What operators do: look at a resource, take a lease away, ask its holder for it. Flows, like those of a client."""

from __future__ import annotations

from leasehold._core import ops
from leasehold._core.light_typing import Any
from leasehold._core.names import Name, parse_name
from leasehold._core.types import Grant, Unreadable, public_owner
from leasehold.errors import InvalidRequest, NotHeld, OutcomeUnknown, StoreUnavailable

MOST_TRIES = 3  # of what goes unanswered and can be repeated
# What a listing says of a resource that nobody can ask for.
NAMELESS = ops.View((), (), 0, 0, 0, unreadable=(Unreadable("its name", "is no UTF-8"),))


async def look(resource: str, queue: bool = True) -> ops.View:
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
        answer: ops.Answer[Any]
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
    if isinstance(reply, ops.Refused):
        raise InvalidRequest(reply.why, resource=name.text)
    if isinstance(reply, ops.NotYours):
        raise _not_there(name, fence, f"its lease is over ({reply.reason})")
    return name, victim, reply


async def _until_answered(op: ops.Evict | ops.Resize) -> Any:
    """A few times: an eviction is the same one by its request, and a limit that is set twice is set."""
    unanswered = 0
    while True:
        try:
            answer: ops.Answer[Any] = await op
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
        answer: ops.Answer[ops.Told | ops.NotYours] = await ops.Revoke(name.text, holder.owner, holder.fence)
        if isinstance(answer.reply, ops.Told):
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
