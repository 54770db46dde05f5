"""Ops: everything a flow can request, as plain data. ``await op`` hands the op to the driver of the flow.

A driver answers each op with a :class:`TimedReply`: the reply, and the local time at which it was known.
Because ops are data, batching, tracing, fault injection and simulation need no code in the flows.

    op         sent to    replies
    Claim      store      Granted | Queued | Busy | NoClaim | Rejected
    Beat       store      Granted | Queued | NoClaim | Rejected
    Renew      store      Renewed | NotYours
    Release    store      Released | NotYours
    Withdraw   store      Withdrawn
    Inspect    store      View
    Watch      store      View               and a push for every change from here on
    Resize     store      Resized
    Evict      store      Evicted | NotYours | Rejected
    Revoke     store      HolderAsked | NotYours
    Adopt      store      Granted | NotYours | Rejected
    Group      store      Replies            several claims or releases in one step
    Scan       store      Page               which resources there are
    Leaks      store      Page               which keys never end
    Ping       store      Page               whether its servers answer, and which versions they have
    Park       driver     Push | None        wait for a push, until a local time
    Defer      driver     None               do this in the background, for a while
"""

from __future__ import annotations

from leasehold._core.light_typing import Generator, Generic, NamedTuple, TypeAlias, TypeVar
from leasehold._core.policy import BUDGET_MS
from leasehold._core.types import AuditNote, Door, Grant, Unreadable, Waiter

R = TypeVar("R", covariant=True)


class TimedReply(Generic[R]):
    """What a driver answers an op with: the reply, and the local time after it came."""

    __slots__ = ("at", "reply")

    def __init__(self, reply: R, at: float) -> None:
        self.reply = reply
        self.at = at


# ---------------------------------------------------------------- replies


class Granted(NamedTuple):
    """The resource is the owner's for ``remaining_ms`` from when the claim was sent. A repeated claim gets the same
    grant (trap 42). ``limit``: the one that others go by, when it differs from the claim's."""

    fence: int
    remaining_ms: int
    slots: tuple[int, ...] = (0,)
    limit: int = 0
    rule: str = "mutex"


class Queued(NamedTuple):
    """The claim waits: ``ahead`` live claims come before it (counted up to MOST_AHEAD), and the holder's time ends in
    ``free_in_ms``. Unless it is ``pushable`` no push will come: the first in the queue beats often. ``limit`` as in
    Granted."""

    ahead: int
    free_in_ms: int
    holder: str
    pushable: bool = True
    limit: int = 0


class Busy(NamedTuple):
    """Refused, and not put into the queue. After ``retry_in_ms`` at the latest another try is worth it. ``limit`` as in
    Granted. ``again_ms``: the store has no queue, and a claim that waits is to be made anew after that long, by a new
    owner; 0 where there is a queue."""

    holder: str
    retry_in_ms: int
    limit: int = 0
    again_ms: int = 0


class NoClaim(NamedTuple):
    """This owner has no claim here (any more): claim again with a new owner."""

    outcome: str


class Renewed(NamedTuple):
    """``first`` to ``last``: the fences that were reserved; none when ``last`` is 0. ``others``: claims wait here, or
    may wait; said only where fences were requested."""

    remaining_ms: int
    first: int = 0
    last: int = 0
    others: bool = False


class Released(NamedTuple):
    """``found`` is False when there was nothing to release and the op says that an earlier release may have arrived."""

    found: bool = True


class NotYours(NamedTuple):
    """No grant has that owner and fence: ``expired``, ``taken``, ``deleted``, ``evicted``, ``released`` ..."""

    reason: str


class Withdrawn(NamedTuple):
    """Nothing of that owner is left. ``found`` says what there was: ``held``, ``queued`` or ``nothing``."""

    found: str


class View(NamedTuple):
    """One resource as the store sees it now."""

    holders: tuple[Grant, ...]
    queue: tuple[Waiter, ...]
    fence: int
    closed_ms: int
    now_ms: int
    notes: tuple[AuditNote, ...] = ()
    doors: tuple[Door, ...] = ()
    limit: int = 0  # what a semaphore was resized to
    unreadable: tuple[Unreadable, ...] = ()


class Evicted(NamedTuple):
    """The victim is out, the door stays closed for ``closed_ms``, and ``fence`` is above the victim's."""

    fence: int
    closed_ms: int


class HolderAsked(NamedTuple):
    """The holder was asked to give back. ``reached``: a process listens at its address."""

    reached: bool


class Resized(NamedTuple):
    """From here on every claim goes by the new limit. ``before``: the one that was stored, or 0."""

    before: int


class Page(NamedTuple):
    """Some of what was requested. ``cursor`` is for the next page; an empty one means that this was the last.
    What comes or goes meanwhile may be missing, and an item may be on two pages. ``unreadable``: names that are no
    text, as well as they can be shown. ``withheld``: there is more that this login may not read."""

    items: tuple[str, ...]
    cursor: str
    unreadable: tuple[str, ...] = ()
    withheld: bool = False


class Rejected(NamedTuple):
    """The request itself is wrong."""

    why: str


class Replies(NamedTuple):
    """One for each step that was tried, in order."""

    replies: tuple[Granted | Queued | Busy | NoClaim | Rejected | Released | NotYours, ...]


class Push(NamedTuple):
    """What a store sends unasked, a hint: a waiter was ``granted``, a holder was ``evicted`` or is asked to give back
    (``revoke``) or that a claim has to wait (``wanted``), a watcher should inspect again (``changed``).

    ``beat`` names the sign of life that the grant answers: the deadline counts from the moment that beat
    was sent, neither from the last one sent nor from the arrival of the push (trap 41).

    ``last``: the grant brings the fences up to this one, for those who follow in its process; 0: its own alone."""

    address: str
    event: str
    resource: str
    owner: str
    fence: int
    beat: int
    remaining_ms: int
    slots: tuple[int, ...] = (0,)
    last: int = 0


WAKE = Push("", "wake", "", "", 0, 0, 0)  # for every waiter: nothing was granted, but beat now


ClaimReply: TypeAlias = Granted | Queued | Busy | NoClaim | Rejected
BeatReply: TypeAlias = Granted | Queued | NoClaim | Rejected
Reply: TypeAlias = (
    Granted
    | Queued
    | Busy
    | NoClaim
    | Renewed
    | Released
    | NotYours
    | Withdrawn
    | View
    | Resized
    | Evicted
    | HolderAsked
    | Page
    | Rejected
    | Replies
)

# ---------------------------------------------------------------- ops for a store


class Claim(NamedTuple):
    """Request a place. Creates one; a repeated claim returns what the first one got. ``limit``: of a semaphore, how
    many permits there are; of one that holds alone, how many fences its grant may bring, if it comes in a push."""

    resource: str
    owner: str
    ttl_ms: int
    beat: int = 1
    floor: int = 0
    enqueue: bool = True
    rule: str = "mutex"
    permits: int = 1
    limit: int = 1
    address: str = ""
    holder_address: str = ""
    meta: str = ""
    delay_ms: int = 0
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Claim, TimedReply[ClaimReply], TimedReply[ClaimReply]]:
        return (yield self)


class Beat(NamedTuple):
    """A waiter's sign of life. Never creates (trap 26)."""

    resource: str
    owner: str
    beat: int
    floor: int = 0
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Beat, TimedReply[BeatReply], TimedReply[BeatReply]]:
        return (yield self)


class Renew(NamedTuple):
    """Keep the lease for ``ttl_ms`` from now; never shortens unless ``exact`` (extend). ``number`` counts the Renews of
    one grant from its first change on: an exact one that a later one overtook shortens nothing (trap 44).
    ``closed_ms`` keeps others out for that long even after a release; ``ticket`` allows its bearer to adopt; ``shared``
    makes a reader of a writer; ``meta`` replaces the holder's metadata. With ``durability`` the store raises
    StoreUnavailable unless that many copies have confirmed it: it is done at the primary then, and may be lost.
    ``fences``: reserve up to so many above the last one that was minted, for those to whom the holder, who is alone,
    passes the lease on; never beyond the store's clock, which later fences go by. ``tell``, with fences: push
    ``wanted`` to the holder when the next claim has to wait; not where claims wait already, which the reply says."""

    resource: str
    owner: str
    fence: int
    ttl_ms: int
    exact: bool = False
    number: int = 0
    closed_ms: int = 0
    ticket: str = ""
    budget_ms: int = BUDGET_MS
    shared: bool = False
    meta: str = ""
    durability: str = ""
    fences: int = 0
    tell: bool = False

    def __await__(self) -> Generator[Renew, TimedReply[Renewed | NotYours], TimedReply[Renewed | NotYours]]:
        return (yield self)


class Release(NamedTuple):
    """Give back. ``forget_ms``: leave a tombstone; ``again``: an earlier Release of this grant went unanswered, so
    finding it cleanly gone means that one arrived, or that the grant has expired (trap 11)."""

    resource: str
    owner: str
    fence: int
    forget_ms: int = 0
    again: bool = False
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Release, TimedReply[Released | NotYours], TimedReply[Released | NotYours]]:
        return (yield self)


class Withdraw(NamedTuple):
    """Whatever this owner has here, waiting, granted or watching, ends. ``forget_ms`` as in Release."""

    resource: str
    owner: str
    forget_ms: int = 0
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Withdraw, TimedReply[Withdrawn], TimedReply[Withdrawn]]:
        return (yield self)


class Inspect(NamedTuple):
    """Read the resource, without a claim. Without ``queue`` the waiters are left out, which may be many."""

    resource: str
    budget_ms: int = BUDGET_MS
    queue: bool = True

    def __await__(self) -> Generator[Inspect, TimedReply[View], TimedReply[View]]:
        return (yield self)


class Watch(NamedTuple):
    """Read the resource, and get a push at ``address`` for every change of holders for a while. To be repeated: a
    watcher that is silent for WATCH_MS is forgotten. It ends with Withdraw."""

    resource: str
    owner: str
    address: str = ""
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Watch, TimedReply[View], TimedReply[View]]:
        return (yield self)


class Resize(NamedTuple):
    """Set how many permits a semaphore has, whatever its claims say; 0: each claim goes by its own again. No
    holder loses a permit by it."""

    resource: str
    limit: int
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Resize, TimedReply[Resized], TimedReply[Resized]]:
        return (yield self)


class Evict(NamedTuple):
    """Take a grant away. ``delay_ms`` None: the door stays closed for what remained of the victim's time;
    less than that needs ``force``. Idempotent by ``request``. ``note`` is the operator and the reason, and is kept
    with the resource: at most MAX_NOTE_BYTES."""

    resource: str
    owner: str
    fence: int
    request: str
    delay_ms: int | None = None
    force: bool = False
    note: str = ""
    budget_ms: int = BUDGET_MS

    def __await__(
        self,
    ) -> Generator[Evict, TimedReply[Evicted | NotYours | Rejected], TimedReply[Evicted | NotYours | Rejected]]:
        return (yield self)


class Revoke(NamedTuple):
    """Ask the holder to give back. The holder decides; nothing is taken from it. ``note`` is the operator and the
    reason, and is kept with the resource: at most MAX_NOTE_BYTES."""

    resource: str
    owner: str
    fence: int
    note: str = ""
    budget_ms: int = BUDGET_MS

    def __await__(self) -> Generator[Revoke, TimedReply[HolderAsked | NotYours], TimedReply[HolderAsked | NotYours]]:
        return (yield self)


class Adopt(NamedTuple):
    """Take over the grant that a ticket names: a new owner, a new fence, in one step. The grant is found by its fence,
    because the adopter does not know the owner, whose token is a secret of the giver's process."""

    resource: str
    fence: int
    ticket: str
    adopter: str
    ttl_ms: int
    floor: int = 0
    holder_address: str = ""
    budget_ms: int = BUDGET_MS

    def __await__(
        self,
    ) -> Generator[Adopt, TimedReply[Granted | NotYours | Rejected], TimedReply[Granted | NotYours | Rejected]]:
        return (yield self)


class Scan(NamedTuple):
    """List the resources that are held, waited for or closed, or have notes; by the pattern of ``names.matches``, in
    pages."""

    pattern: str
    cursor: str = ""
    budget_ms: int = BUDGET_MS

    @property
    def resource(self) -> str:
        """No single one."""
        return ""

    def __await__(self) -> Generator[Scan, TimedReply[Page], TimedReply[Page]]:
        return (yield self)


class Leaks(NamedTuple):
    """List the keys that have no expiry, by the store's own pattern, in pages. Every key of ours has one."""

    pattern: str
    cursor: str = ""
    budget_ms: int = BUDGET_MS

    @property
    def resource(self) -> str:
        """No single one."""
        return ""

    def __await__(self) -> Generator[Leaks, TimedReply[Page], TimedReply[Page]]:
        return (yield self)


class Group(NamedTuple):
    """Several claims, or several releases, of different resources in one atomic step. Claims are tried in order, and
    none after the first that is not granted: clients that take several in one order, and wait for one at a time, cannot
    wait for each other in a circle."""

    steps: tuple[Claim, ...] | tuple[Release, ...]
    budget_ms: int = BUDGET_MS

    @property
    def resource(self) -> str:
        """The first of them."""
        return self.steps[0].resource

    def __await__(self) -> Generator[Group, TimedReply[Replies], TimedReply[Replies]]:
        return (yield self)


class Ping(NamedTuple):
    """Have the servers answer that decide about claims, as a claim would need them. Changes nothing. With ``versions``
    the page lists the name and version of each, as far as they tell; else it is empty. ``namespace``: that of
    the claims. ``keyless``: for a node of a Cluster, which may have no slot of ours."""

    versions: bool = False
    cursor: str = ""
    budget_ms: int = BUDGET_MS
    keyless: bool = False
    namespace: str = ""

    @property
    def resource(self) -> str:
        """No single one."""
        return ""

    def __await__(self) -> Generator[Ping, TimedReply[Page], TimedReply[Page]]:
        return (yield self)


LISTINGS = (Scan, Leaks, Ping)
ResourceOp: TypeAlias = Claim | Beat | Renew | Release | Withdraw | Inspect | Watch | Resize | Evict | Revoke | Adopt
StoreOp: TypeAlias = ResourceOp | Scan | Leaks | Ping | Group

# ---------------------------------------------------------------- ops for a driver


class Park(NamedTuple):
    """Wait until the local time ``until``, or until a push for this owner arrives."""

    owner: str
    until: float

    def __await__(self) -> Generator[Park, TimedReply[Push | None], TimedReply[Push | None]]:
        return (yield self)


class Defer(NamedTuple):
    """Do ``op`` in the background: at once, and again for ``seconds`` from now until it is answered."""

    op: Withdraw | Release
    seconds: float

    def __await__(self) -> Generator[Defer, TimedReply[None], TimedReply[None]]:
        return (yield self)


Op: TypeAlias = StoreOp | Park | Defer
