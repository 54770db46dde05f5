"""What a turn requests of a server that keeps records, as data; and what such a server offers.

A resource is one record, a text, and an ordered queue of places, one for each claim that waits. A record is changed
only on condition that it is still at the revision that was read. A place belongs to the session of the process that
made it (a lease of etcd, a session of ZooKeeper) and goes with it, at any time: nothing is concluded from that but that
the claim waits no longer.

    request   reply      meaning
    Look      Sight      the records as they are; linearizable
    Change    Outcome    all parts or none; if none, the records as they are
    List      Listed     the next records in the order of the server
    Tell      bool       whether somebody listens at that address
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold._core.light_typing import Any, NamedTuple, Protocol, TypeAlias

ANY = -1  # no condition on the record: for a part that only makes or removes places


class Offer(NamedTuple):
    """What a place says of its claim, so that whoever frees the resource can grant it in the same step. The claim was
    sent once, and is pushed to. Without the token of its owner."""

    owner: str  # its ``owner_id``
    ttl_ms: int
    floor: int
    since_us: int  # when it was made, on the server's wall clock as its process knew it
    holder_address: str = ""
    delay_ms: int = 0


class Place(NamedTuple):
    """A claim that waits. ``number`` orders the places of a resource, and is given once."""

    owner: str  # the digest of its token
    number: int
    key: str  # the server's own name for it
    ours: bool  # made by the session that this process has now
    text: str = ""  # what it says of itself; empty unless it was requested
    offer: Offer | None = None  # None: its claim takes the resource itself


class Record(NamedTuple):
    """One resource, as a server showed it."""

    resource: str
    text: str | None = None  # None: there is no record
    revision: int = 0  # of the record, not of its places; 0: there is no record; ANY: it was not read
    places: tuple[Place, ...] | None = ()  # in their order; None: not read
    queue: int = 0  # changes with every place that is made, where the server needs it to know that nobody waits


class Join(NamedTuple):
    """A place to make, at the end of the queue."""

    owner: str  # the digest of its token
    text: str
    offer: Offer | None = None
    behind: Place | None = None  # a further condition: this place is there. Then the new one is not the first


class Part(NamedTuple):
    """A change of one resource, on condition that its record is still at ``revision`` (0: that there is none; ANY: no
    condition, and then the record stays as it is)."""

    resource: str
    revision: int
    text: str | None = None  # of the record; None: it stays as it is; empty: it is removed
    nobody_waits: bool = False  # a further condition; ``queue`` is that of the record that was read
    queue: int = 0
    first: Place | None = None  # a further condition: this place is there, and the first; it is removed
    # Only where places keep offers. Further conditions: this place is there; it is removed, or those who watch it are
    # woken, by writing its text anew.
    place: Place | None = None
    touch: Place | None = None
    join: Join | None = None  # a further condition: there is no place of this owner yet, and it is not buried
    leave: tuple[Place, ...] = ()  # places to remove; those that are gone already do not matter
    bury: str = ""  # the digest of an owner: it has no place afterwards, nor can one be made that is under way


class Look(NamedTuple):
    resources: tuple[str, ...]
    texts: bool = False  # with the text of each place


class Sight(NamedTuple):
    """The records with their places, in the order in which they were requested. The places of a record may be older
    than the record, and are never newer: who has no place there any more because it was granted the resource finds the
    grant in the record."""

    records: tuple[Record, ...]


class Change(NamedTuple):
    parts: tuple[Part, ...]


class Outcome(NamedTuple):
    """One record for each part. ``done``: as they are now. Places are given for parts that made one, and where places
    keep offers also for those that removed one of ours as the first; the record itself need not be given if a place was
    made that is not the first. Of one that was made behind another no more than that place is given. Else as they were
    read after the refusal, with their places."""

    done: bool
    records: tuple[Record, ...]


class List(NamedTuple):
    """Records in the server's own order, after the one that ``cursor`` stands for; without their places. ``brief``:
    with few requests, so that a page may have none; and from anywhere, if there is no cursor."""

    cursor: str
    most: int
    brief: bool = False


class Listed(NamedTuple):
    """``cursor`` for the next ones; empty after the last. Records may be missing that were made or removed meanwhile.
    ``unreadable``: names that are none of ours, as well as they can be shown."""

    records: tuple[Record, ...]
    cursor: str
    unreadable: tuple[str, ...] = ()


class Tell(NamedTuple):
    """Send a text to whoever listens at this address. It is a hint: it may be lost."""

    address: str
    text: str


Request: TypeAlias = Look | Change | List | Tell


class Watching(Protocol):
    """A watch that was set."""

    def close(self) -> None:
        """From any thread, also after it has fired. ``changed`` may still be called once."""


class Server(Protocol):
    """Where records are kept. Implemented for etcd and ZooKeeper, and by the simulator."""

    most_parts: int  # of one Change
    offers: bool  # do places keep what their claims offer?
    server: str  # as errors name it
    url: str  # the same as a URL, without login and options

    def perform(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        """Each has its own reply or error: StoreUnavailable, nothing was done; OutcomeUnknown, it may have been or may
        be yet. They are sent together where that is possible, and none is sent twice. On the calling thread, until
        ``time.monotonic()`` is ``give_up`` at the latest."""

    async def perform_async(self, requests: Sequence[Request], give_up: float) -> list[Any]:
        """The same, without blocking the running event loop."""

    def versions(self, give_up: float) -> list[str]:
        """The name and version of the server that answers, as far as it tells; on the calling thread. Raises
        nothing."""

    def wall_us(self) -> int:
        """The server's wall clock as well as it is known from the last reply, in microseconds; asks nothing. Within
        seconds of the truth."""

    def watch_record(self, record: Record, changed: Callable[[Record | None], None]) -> Watching:
        """Call ``changed`` once, on any thread, when the record is no longer at that revision; with the new record
        where it came with the news (its places are None) or was read since. Also when that cannot be known any
        longer."""

    def watch_place(self, resource: str, place: Place, changed: Callable[[Record | None], None]) -> Watching:
        """The same when this place is gone, or was touched."""

    def hear(self, address: str, receive: Callable[[str], None]) -> Watching:
        """Call ``receive`` with each text that is sent to this address, on any thread, until it is closed."""

    def forked(self) -> None:
        """In a child: drop what belongs to the parent, sending nothing. It must be usable afterwards."""

    def close(self) -> None:
        """End the session, and with it all places of this process. Idempotent; the next request begins another."""
