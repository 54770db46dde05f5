"""The records of the ledger: what one resource's state is made of.

Everything here is an immutable tuple: cheap to make, safe to share, and a JSON array when written down.
"""

from __future__ import annotations

from leasehold._core.light_typing import Any, Iterable, Mapping, NamedTuple, lru_cache
from leasehold._core.policy import MAX_TTL_MS
from leasehold.errors import InvalidRequest

MOST_SHOWN = 256  # characters of an owner: a host name has 64 at most, but a user may name an instance anything


class Instant(NamedTuple):
    """One reading of the store's clocks. Expiry runs on ``ms``, which never steps; fences on the wall."""

    ms: int
    wall_us: int


class Grant(NamedTuple):
    """A claim that holds: an owner, a fence, an end. ``slots`` are the numbered places that it fills. ``ttl_ms`` is the
    length that its end was set with, so that no end lies further ahead than that."""

    owner: str
    fence: int
    ttl_ms: int
    expires_ms: int
    rule: str = "mutex"
    slots: tuple[int, ...] = (0,)
    since_us: int = 0
    meta: str = ""
    holder_address: str = ""  # where the holder gets pushes about eviction
    delay_ms: int = 0  # lock-delay: how long the door stays closed after an unclean end
    ticket: str = ""  # set by transfer: a process that knows it may adopt
    closed_until_ms: int = 0  # at_least: no other grant before this, also after a release
    renewals: int = 0  # the highest number of a Renew that arrived
    limit: int = 0  # of a permit: how many its claim went by
    repeated: bool = False  # its claim may have been sent more than once, so a late copy of it may still arrive
    tell: bool = False  # push to the holder, once, when a claim has to wait: it may be keeping the lease unused

    def outlives_its_end(self) -> bool:
        """Is it remembered after it has expired? A plain grant is not, as a key with a TTL leaves nothing behind: a
        copy of its claim that arrives after that takes the resource once more, with a higher fence."""
        return bool(self.repeated or self.delay_ms or self.closed_until_ms or self.ticket)


class Waiter(NamedTuple):
    """A claim that waits. ``beat`` numbers its last sign of life, ``beat_ms`` when that arrived."""

    owner: str
    ttl_ms: int
    beat: int
    beat_ms: int
    address: str = ""  # where a grant can be pushed; empty: it must poll
    floor: int = 0
    rule: str = "mutex"
    permits: int = 1
    limit: int = 1  # of a semaphore; for others, how many fences its grant may bring
    since_us: int = 0
    meta: str = ""
    holder_address: str = ""
    delay_ms: int = 0
    repeated: bool = False  # as of a grant


class Door(NamedTuple):
    """A place that is not held and may not be taken yet: what ``at_least``, a lock-delay or an eviction leaves of a
    grant that others can share. To a new claim it is as good as held. ``length_ms`` is how far ahead its end was when
    it was set; 0: not recorded."""

    rule: str
    slots: tuple[int, ...]
    until_ms: int
    length_ms: int = 0


class Watcher(NamedTuple):
    """A client that gets a push for every change of holders, and last beat at ``beat_ms``."""

    owner: str
    address: str
    beat_ms: int


class Tombstone(NamedTuple):
    """A tombstone: this owner's only grant is over, and how. A late claim of that owner finds it and gets nothing."""

    owner: str
    fence: int
    outcome: str  # released withdrawn expired evicted adopted
    until_ms: int
    detail: str = ""  # evicted: the request's id; adopted: by whom


class AuditNote(NamedTuple):
    """What an operator did here, for later inspection. It holds no secret: ``owner`` is the public part of the victim's
    token."""

    at_us: int
    event: str  # evicted asked
    owner: str
    fence: int
    text: str = ""  # the operator and the reason, as the operator's client wrote them


class Unreadable(NamedTuple):
    """A record of a resource that is none of ours, or is damaged. ``blocks``: it may be a holder's, so there is no
    grant until it is gone."""

    what: str  # the key, or the row
    why: str
    blocks: bool = False


class State(NamedTuple):
    """All that a store keeps for one resource."""

    holders: tuple[Grant, ...] = ()
    queue: tuple[Waiter, ...] = ()
    fence: int = 0  # the last one that was minted
    fence_until_us: int = 0  # wall time after which it may be forgotten
    closed_until_ms: int = 0  # the door that keeps every claim out
    ended: tuple[Tombstone, ...] = ()
    notes: tuple[AuditNote, ...] = ()
    doors: tuple[Door, ...] = ()
    limit: int = 0  # of a semaphore that was resized; 0: each claim goes by its own
    limit_until_us: int = 0
    watchers: tuple[Watcher, ...] = ()
    closed_length_ms: int = 0  # how far ahead ``closed_until_ms`` was when it was set; 0: not recorded


class Capabilities(NamedTuple):
    """What a store promises. A store states its differences here, tests read them, nothing is skipped."""

    fair: bool = True  # FIFO between claims
    push: bool = True  # a waiter is woken directly
    per_claim_ttl: bool = True
    durable_fences: bool = True  # fences grow across a restart by record, not only by the clock
    processes: bool = True  # several processes can share it
    hosts: bool = False
    durability: bool = False  # ``durability=``: a renewal can wait until replicas, or the disk, have confirmed it
    shared: bool = True  # several may hold together: read-write locks and semaphores
    groups: bool = True  # several resources in one step: ``all``
    one_slot: bool = False  # ``all`` takes only those that are in one slot of a Cluster
    handover: bool = True  # transfer and adopt
    evictions: bool = True  # evict and revoke
    reservations: bool = True  # fences can be reserved, so that a lease passes between the waiters of one process
    lingering: bool = True  # what a process keeps unused (``linger=``) is given back when a claim of another waits
    keyspace: bool = False  # keys of other programs are beside ours, and may lack an end: see ``leaks``
    longest_ttl_ms: int = MAX_TTL_MS  # of a lease, and of ``extend``


def visible_holders(holders: Iterable[Grant]) -> list[tuple[str, int, str, str]]:
    """What a watcher sees of the holders: a change of this is worth a push, a renewal is not."""
    return [(one.owner, one.fence, one.rule, one.meta) for one in holders]


def public_owner(owner: str) -> str:
    """The public part of an owner token, or of an ``owner_id``: ``<instance>:<pid>``. Not every token is ours, and it
    ends up in logs and on terminals: so what cannot be printed there is escaped, and what is long is cut."""
    prefix, known = _split_id(owner)
    shown = prefix if known else owner.rsplit(":", 1)[0] if owner.count(":") >= 2 else "?"
    if len(shown) > MOST_SHOWN:
        shown = shown[:MOST_SHOWN] + "..."
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode("ascii")


@lru_cache(maxsize=1024)
def owner_digest(owner: str) -> str:
    """128 bits of BLAKE2b in hex: enough to recognise an owner, and of no use to a reader. An ``owner_id`` has the
    digest of its token."""
    known = _split_id(owner)[1]
    if known:
        return known
    from hashlib import blake2b

    return blake2b(owner.encode(), digest_size=16).hexdigest()


def owner_id(owner: str) -> str:
    """An owner as others may know it: ``<instance>:<pid>#<digest>``. Guards take it in place of the token."""
    return f"{public_owner(owner)}#{owner_digest(owner)}"


def _split_id(owner: str) -> tuple[str, str]:
    shown, _, known = owner.rpartition("#")
    return (shown, known) if len(known) == 32 and not known.strip("0123456789abcdef") else (owner, "")


# ---------------------------------------------------------------- metadata
#
# What a holder publishes about itself: a JSON object of bounded size, kept with its grant and shown by ``inspect``.


MOST_META_BYTES = 4096


def meta_text(meta: object) -> str:
    """The text that is stored; InvalidRequest when it is no mapping or cannot be stored."""
    if not isinstance(meta, Mapping):
        raise InvalidRequest(f"meta must be a mapping, not {type(meta).__name__}")
    return json_text(dict(meta), "meta")


def json_text(thing: Any, what: str) -> str:
    """A value as JSON; ``what`` names it in errors."""
    import json

    try:
        text = json.dumps(thing, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{what} cannot be written as JSON: {type(error).__name__}") from None
    if size > MOST_META_BYTES:
        raise InvalidRequest(f"{what} takes at most {MOST_META_BYTES} bytes as JSON")
    return text
