"""The rule that every guard keeps, and what may be presented to one. No database, no lock client.

    a fence above the last            accepted, and remembered with its owner
    the last fence, from its owner    accepted: one holder may write many times
    the last fence, from another      refused: two owners with one fence means that something is badly wrong
    a fence below the last            refused: a stale owner

Guards remember a digest of the owner and never the token itself: whoever has the token can release the lease.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Protocol

from leasehold.core.names import MAX_NAME_BYTES, parse_name
from leasehold.core.types import public_owner
from leasehold.errors import InvalidRequest, StaleOwner
from leasehold.observe.audience import Audience

MAX_FENCE = 2**63 - 1  # what a BIGINT column holds
UNKNOWN_OWNER = ""


class Fenced(Protocol):
    """What a guard needs of a lease."""

    @property
    def resource(self) -> str: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def owner(self) -> str: ...


class Presented(NamedTuple):
    """Who wants to write what, checked. ``owner`` is a digest, ``shown`` the part of the token people may see."""

    resource: str
    fence: int
    owner: str = UNKNOWN_OWNER
    shown: str | None = None


def accept(last_fence: int | None, last_owner: str, fence: int, owner: str) -> bool:
    """The rule. ``last_fence`` is None when nothing was presented yet; owners are digests.

    Databases apply the same rule in SQL, inside one statement; a test compares the two."""
    if last_fence is None or fence > last_fence:
        return True
    return fence == last_fence and owner == last_owner


def presented(lease_or_fence: Fenced | int, resource: str | None = None, owner: str | None = None) -> Presented:
    """A lease, or a bare fence with its resource and, where it is known, its owner."""
    if isinstance(lease_or_fence, int):
        check_fence(lease_or_fence)
        if resource is None:
            raise InvalidRequest("a bare fence needs resource=: fences grow for each resource on its own")
        return _checked(lease_or_fence, resource, owner)
    if not all(hasattr(lease_or_fence, member) for member in ("resource", "fence", "owner")):
        kind = type(lease_or_fence).__name__
        raise InvalidRequest(f"a guard checks a lease or a fence, which is an int, not {kind}")
    if resource is not None or owner is not None:
        raise InvalidRequest("a lease brings its own resource and owner: leave resource= and owner= out")
    if lease_or_fence.fence is None:
        raise InvalidRequest(
            f"the lease on {label(lease_or_fence.resource)} was acquired with fenced=False: it has no fence, and a "
            "guard cannot tell it from a stale one"
        )
    return _checked(lease_or_fence.fence, lease_or_fence.resource, lease_or_fence.owner)


def announce(lease_or_fence: Fenced | int, attempt: Presented, seen: int | None, downstream: str, to: Audience) -> None:
    """Tell those who observe: whoever observes the lease, else whoever observes the guard."""
    tell = getattr(lease_or_fence, "_fenced_off", None)  # a lease of ours: its coordinator's observers
    if tell is not None:
        tell(seen, downstream, to.observers)
        return
    from leasehold.observe.events import FencedOff, Subject

    name = parse_name(attempt.resource)
    lease = Subject(name.kind, name.id_hash, attempt.shown or "", attempt.fence, 0)
    to.tell(FencedOff(lease, downstream, seen))


def refusal(attempt: Presented, seen: int | None) -> StaleOwner:
    """The error that tells a stale owner what happened and what to do."""
    if attempt.fence == seen:
        what = f"fence {attempt.fence} was presented by another owner before"
    else:
        what = f"fence {attempt.fence} is older than {seen}, which a later owner has presented: this lease has ended"
    return StaleOwner(
        f"stale owner of {label(attempt.resource)}: {what}. The guard has changed nothing. Roll back and stop the "
        "work: somebody else does it now",
        seen=seen,
        resource=attempt.resource,
        owner=attempt.shown,
        fence=attempt.fence,
    )


def label(resource: object) -> str:
    """The part of a resource that messages may show: namespace and kind, never the ids."""
    return str(resource).partition(":")[0][:100]


def _checked(fence: object, resource: object, owner: object) -> Presented:
    number, name = check_fence(fence), check_resource(resource)
    if owner is None:
        return Presented(name, number)
    shown = public_owner(owner) if isinstance(owner, str) else "?"
    return Presented(name, number, digest(owner), None if shown == "?" else shown)


def check_fence(fence: object) -> int:
    """A fence that a store can have minted, and a BIGINT column can hold."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise InvalidRequest(f"a fence is an int, not {type(fence).__name__}")
    if not 0 < fence <= MAX_FENCE:
        raise InvalidRequest("a fence is between 1 and 2**63 - 1: zero or less was never granted to anybody")
    return int(fence)


def check_resource(resource: object) -> str:
    """The text form of a resource, as ``lease.resource`` says it: ``namespace/kind:id:id``."""
    if not isinstance(resource, str):
        raise InvalidRequest(f"resource must be text such as 'report-export:42', not {type(resource).__name__}")
    size = len(_utf8(resource, "resource"))
    if not 0 < size <= MAX_NAME_BYTES or "\0" in resource:
        raise InvalidRequest(f"resource must have 1 to {MAX_NAME_BYTES} bytes and no NUL")
    return str(resource)


def digest(owner: object) -> str:
    """128 bits of BLAKE2b in hex: enough to recognise an owner, of no use to whoever reads the table."""
    if not isinstance(owner, str) or not owner:
        raise InvalidRequest("owner must be the owner token as text; leave it out when it is not known")
    return hashlib.blake2b(_utf8(owner, "owner"), digest_size=16).hexdigest()


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate and cannot be written as UTF-8") from None
