"""The rule that every guard applies, and what may be presented to a guard. No database, no lock client.

    a fence above the last            accepted, and remembered with its owner
    the last fence, from its owner    accepted: one holder may write many times
    the last fence, from another      refused: two owners with one fence means that something is badly wrong
    a fence below the last            refused: a stale owner

A lease that may only read is checked *shared*: by the same rule, and nothing is remembered. A permit of a semaphore is
one of several that are valid side by side: it is checked under the name of its slot.

Guards remember a digest of the owner and never the token itself: the token is enough to release the lease. The third
line needs a remembered owner: there is none for bare fences without an owner, nor for ``update`` in SQL without an
``owner_column``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

from leasehold._core.names import MAX_NAME_BYTES
from leasehold._core.types import owner_digest, public_owner
from leasehold.errors import InvalidRequest, StaleOwner

MAX_FENCE = 2**63 - 1  # what a BIGINT column holds
UNKNOWN_OWNER = ""


class Fenced(Protocol):
    """What a guard needs of a lease.

    Two more members are optional: ``shared`` is True for a lease that may only read, and ``slot_resource`` is the name
    under which a permit of a semaphore is checked; a permit with several slots has all their names in
    ``slot_resources``."""

    @property
    def resource(self) -> str: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def owner(self) -> str | None: ...


class Presented(NamedTuple):
    """A fence with its resource and owner, checked. ``owner`` is a digest, ``shown`` the public part of the token.

    ``shared``: the caller only reads, and nothing is remembered."""

    resource: str
    fence: int
    owner: str = UNKNOWN_OWNER
    shown: str | None = None
    shared: bool = False

    def follows(self, last_fence: int | None, last_owner: str) -> bool:
        """Is this accepted after the last fence and owner? ``last_fence`` is None when nothing was presented yet."""
        return accept(last_fence, last_owner, self.fence, self.owner)


def accept(last_fence: int | None, last_owner: str, fence: int, owner: str) -> bool:
    """The rule. ``last_fence`` is None when nothing was presented yet; owners are digests.

    The guards for databases apply the same rule in SQL, inside one statement, and the one for Redis in Lua; tests
    compare both with this function."""
    if last_fence is None or fence > last_fence:
        return True
    return fence == last_fence and owner == last_owner


def presented(
    lease_or_fence: Fenced | int, resource: str | None = None, owner: str | None = None, shared: bool = False
) -> Presented:
    """A lease, or a bare fence with its resource and, where it is known, its owner."""
    if not isinstance(shared, bool):
        raise InvalidRequest(f"shared is True or False, not {type(shared).__name__}")
    if isinstance(lease_or_fence, int):
        check_fence(lease_or_fence)
        if resource is None:
            raise InvalidRequest("a bare fence needs resource=: fences grow for each resource on its own")
        return _checked(lease_or_fence, resource, owner, shared)
    kind = type(lease_or_fence)
    if not (hasattr(kind, "_show_to_guard") or all(hasattr(lease_or_fence, one) for one in _MEMBERS)):
        raise InvalidRequest(
            f"a guard checks a lease or a fence, which is an int, not {kind.__name__}{_hint(lease_or_fence)}"
        )
    if owner is not None:
        raise InvalidRequest("a lease brings its own resource and owner: leave resource= and owner= out")
    if (getattr(lease_or_fence, "shared", False) is True) is not shared:
        raise _wrong_mode(lease_or_fence, shared)
    # The name comes first: if it raises, no guard has seen the lease.
    if resource is None and getattr(lease_or_fence, "slot_resource", None) is None:
        name = lease_or_fence.resource
    else:
        name = _slot(lease_or_fence, resource)
    return _checked(_fence(lease_or_fence), name, lease_or_fence.owner, shared)


_MEMBERS = ("resource", "fence", "owner")


def _hint(given: object) -> str:
    """A hint at what the caller may have meant."""
    if given is None:
        return ": lock.acquire() gives None when it was not its turn"
    if isinstance(given, str):
        return ": make an int of it where it comes in"
    return ": pass what its acquire() or `with` gave" if hasattr(given, "try_acquire") else ""


def _wrong_mode(lease: Fenced, shared: bool) -> InvalidRequest:
    """A reader must not write, and a writer presents its fence before its first read (trap 46)."""
    if shared:
        return InvalidRequest(
            f"the lease on {label(lease.resource)} is exclusive: leave shared= out, so that the guard remembers its "
            "fence before you read what you are going to change"
        )
    return InvalidRequest(
        f"the lease on {label(lease.resource)} is shared: it may read and not write. Before you read, check it "
        "with shared=True; to write, acquire an exclusive one"
    )


def _slot(lease: Fenced, resource: str | None) -> str:
    """The name to check for a permit: one of its slots, which the caller must name (trap 47). Each slot of a permit may
    get another owner later, so a write is refused by the slot in whose name it is checked."""
    slot = getattr(lease, "slot_resource", None)
    if slot is None:
        raise InvalidRequest("a lease brings its own resource and owner: leave resource= and owner= out")
    if resource is None or resource not in getattr(lease, "slot_resources", (slot,)):
        raise InvalidRequest(
            f"a permit of {label(lease.resource)} is one of several that are valid side by side, and fences grow for "
            "each slot: check it with resource=permit.slot_resource, or another of its slot_resources"
        )
    return resource


def _fence(lease: Fenced) -> object:
    """The fence of a lease. Our own leases note that a guard has seen it, which is more than a read of ``.fence``."""
    show = getattr(lease, "_show_to_guard", None)
    fence = lease.fence if show is None else show()
    if fence is None:
        raise InvalidRequest(
            f"the lease on {label(lease.resource)} has no fence, and a guard cannot tell it from a stale one"
        )
    return fence


def _checked(fence: object, resource: object, owner: object, shared: bool) -> Presented:
    if type(fence) is int and type(resource) is str and (owner is None or type(owner) is str):
        return _remembered(fence, resource, owner, shared)
    return _validated(fence, resource, owner, shared)  # a subclass may be equal to something that is accepted


def _validated(fence: object, resource: object, owner: object, shared: bool) -> Presented:
    number, name = check_fence(fence), check_resource(resource)
    if owner is None:
        return Presented(name, number, shared=shared)
    token = check_owner(owner)
    return Presented(name, number, owner_digest(token), shown_owner(token), shared)


_remembered = lru_cache(maxsize=256)(_validated)  # a holder presents its fence many times


def shown_owner(owner: str) -> str | None:
    """The part of an owner token that people may see, if there is one."""
    shown = public_owner(owner)
    return None if shown == "?" else shown


def refusal(attempt: Presented, seen: int | None, why: str = "") -> StaleOwner:
    """The error that tells a stale owner what happened and what to do. ``why`` replaces the usual reason."""
    return StaleOwner(
        f"stale owner of {label(attempt.resource)}: {why or _reason(attempt, seen)}",
        seen=seen,
        resource=attempt.resource,
        owner=attempt.shown,
        fence=attempt.fence,
    )


STOP = "The guard has changed nothing. Roll back and stop the work: another owner does it now"


def _reason(attempt: Presented, seen: int | None) -> str:
    fence = attempt.fence
    if fence != seen:
        return f"fence {fence} is older than {seen}, which a later owner has presented: this lease has ended. {STOP}"
    if attempt.owner == UNKNOWN_OWNER:
        return (
            f"fence {fence} was presented before by an owner with a name, and now by another owner or without its "
            "name. The guard has changed nothing. Roll back; the same holder passes owner=, as lease.headers() has it"
        )
    return f"fence {fence} was presented by another owner before. {STOP}"


def label(resource: object) -> str:
    """The part of a resource that messages may show: namespace and kind, never the ids."""
    return str(resource).partition(":")[0][:100]


def check_fence(fence: object) -> int:
    """A fence that a store can have minted and a BIGINT column can hold."""
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise InvalidRequest(f"a fence is an int, not {type(fence).__name__}")
    if not 0 < fence <= MAX_FENCE:
        raise InvalidRequest("a fence is between 1 and 2**63 - 1: no store grants zero or less")
    return int(fence)


def check_resource(resource: object) -> str:
    """The text form of a resource, like ``lease.resource``: ``namespace/kind:id:id``."""
    if not isinstance(resource, str):
        raise InvalidRequest(f"resource must be text such as 'report-export:42', not {type(resource).__name__}")
    size = len(utf8(resource, "resource"))
    if not 0 < size <= MAX_NAME_BYTES or "\0" in resource:
        raise InvalidRequest(f"resource must have 1 to {MAX_NAME_BYTES} bytes and no NUL")
    return str.__str__(resource)  # str() of an Enum that is text would give another name


def check_owner(owner: object) -> str:
    """An owner token, or the form of it that ``lease.headers()`` sends."""
    if not isinstance(owner, str) or not owner:
        raise InvalidRequest("owner must be the owner token as text; leave it out when it is not known")
    utf8(owner, "owner")
    return str.__str__(owner)


def utf8(text: str, what: str) -> bytes:
    """The text in UTF-8. Raises InvalidRequest."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} holds a lone surrogate and cannot be written as UTF-8") from None
