"""Events: what happened to a lease, as plain data for observers.

An observer is a callable that takes one event: ``connect(url, observers=[print])``. It is called on the thread or loop
where the event happened, after it happened and outside every lock: so it must be quick, must not block and should not
call the coordinator back. An observer that raises affects neither the lease nor other observers.

    Contended        an acquire found the resource held: it waits in the queue, or was refused
    Acquired         a lease was granted
    Refused          an acquire came to nothing: busy timeout cancelled unavailable unknown
    Renewed          a renewal or an extend was confirmed
    NotRenewed       a renewal or an extend was not confirmed: not_owner (the lease is lost) or failed (it is unsure)
    Downgraded       a writer became a reader: others may read beside it
    Lost             the lease ended while its holder still used it
    Released         the lease was given back
    StaleRelease     it was given back too late: another holder had it, or it had expired
    ReleaseUnknown   whether it was given back is not known; it ends with its ttl at the latest
    FencedOff        a guard refused an older fence
    Unguarded        protects="correctness", and the fence was neither checked by a guard nor read
    LimitDiffers     others use another limit for the same semaphore; reported once for each limit found
    Leaking          how many keys without a TTL ``leaks()`` has found

What patterns report, beside the events of their leases:

    FlightServed     single_flight: hit stale shared error_hit; and each rebuild: rebuilt error
    OnceServed       once: first again replay conflict
    CronRan          cron: a run of this process has ended: ok error lost
    CronPassedOver   cron: ticks that were not run (missed skipped), and runs that died
    CronSucceeded    cron: when a run of the whole fleet was last a success
    JobMoved         jobs: claimed taken_over completed failed dead released refused
    JobsCounted      jobs: how many are in each state, as ``counts()`` has found them
    Candidacy        election: a candidate of this process stands, follows a leader, leads, or has left
    AntiPattern      the events of a kind show a known mistake; once for each kind and process

Every acquire ends with ``Acquired`` or ``Refused``, and every ``Acquired`` is followed by ``Released``,
``StaleRelease``, ``ReleaseUnknown`` or ``Lost`` with the same number. The first of these ends the lease; another may
come after it, such as a ``StaleRelease`` after ``Lost``. A forked child gets no events of its parent's leases: they
end in the parent.

The leases of patterns have the events of any lease as well. A reader of events must ignore those that it does not know:
later versions may add some.

An observer may have two more members. ``wants_holder = True``: the ``Contended`` of an acquire that waits carries the
metadata of the holder, which costs one request to the store. ``carry(number)`` returns a small mapping that is stored
in the metadata of the lease that is about to be claimed, such as the context of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold._core.holding import Holding
from leasehold._core.light_typing import Any, NamedTuple, TypeAlias
from leasehold._core.names import Name
from leasehold._core.types import public_owner

__all__ = [
    "Acquired",
    "AntiPattern",
    "Candidacy",
    "Contended",
    "CronPassedOver",
    "CronRan",
    "CronSucceeded",
    "Downgraded",
    "Event",
    "FencedOff",
    "FlightServed",
    "JobMoved",
    "JobsCounted",
    "Leaking",
    "LimitDiffers",
    "Lost",
    "NotRenewed",
    "OnceServed",
    "Refused",
    "ReleaseUnknown",
    "Released",
    "Renewed",
    "StaleRelease",
    "Subject",
    "Unguarded",
]


class Subject(NamedTuple):
    """The lease that an event is about. All of it may be shown: it has no owner token, and no full id unless the
    coordinator was made with ``show_ids=True``; then ``resource`` is its whole name. ``renews`` and
    ``rule`` (mutex read write semaphore) are known once it is granted."""

    kind: str
    id_hash: str
    owner_prefix: str
    fence: int | None
    ttl_ms: int
    store: str = ""
    number: int = 0  # counts the acquires of this process: the same in every event of one lease
    resource: str = ""
    renews: bool = True
    rule: str = "mutex"


class HolderMeta(dict[str, Any]):
    """The metadata of a holder. Its content is for the observer, not for logs: ``repr`` does not show it."""

    def __repr__(self) -> str:
        return f"<{len(self)} fields>"


class Contended(NamedTuple):
    """``queued``: the acquire waits now. ``waited``: the seconds that it took to learn this. ``holder_meta`` is filled
    in for an observer with ``wants_holder``, when the acquire waits."""

    lease: Subject
    holder: str
    queued: bool
    waited: float
    holder_meta: Mapping[str, Any]


class Acquired(NamedTuple):
    """``waited`` is in seconds, from the call to the grant."""

    lease: Subject
    waited: float
    contended: bool


class Refused(NamedTuple):
    """``outcome``: busy (one try), timeout, cancelled, unavailable (nothing was taken) or unknown."""

    lease: Subject
    outcome: str
    waited: float
    holder: str
    contended: bool


class Renewed(NamedTuple):
    """``slack``: the seconds that were left until the work would have had to stop."""

    lease: Subject
    slack: float


class NotRenewed(NamedTuple):
    """``outcome``: not_owner or failed. ``again``: the renewal before it failed as well."""

    lease: Subject
    outcome: str
    error: str
    again: bool = False


class Downgraded(NamedTuple):
    lease: Subject


class Lost(NamedTuple):
    """``held`` is in seconds, as in every event; ``reason`` as in LeaseLost."""

    lease: Subject
    reason: str
    held: float


class Released(NamedTuple):
    lease: Subject
    held: float


class StaleRelease(NamedTuple):
    lease: Subject
    held: float


class ReleaseUnknown(NamedTuple):
    lease: Subject
    held: float


class FencedOff(NamedTuple):
    """``downstream`` is the guard's name for what it protects; ``seen`` the newer fence."""

    lease: Subject
    downstream: str
    seen: int | None


class Unguarded(NamedTuple):
    """``again``: the same was reported of a lease of this kind before."""

    lease: Subject
    again: bool = False


class LimitDiffers(NamedTuple):
    """``asked`` is the limit of this claim, ``found`` the one that ``resize`` stored or, without one, that of other
    claims."""

    lease: Subject
    asked: int
    found: int


class Leaking(NamedTuple):
    keys: int


# ---------------------------------------------------------------- patterns


class FlightServed(NamedTuple):
    """What a call of a ``single_flight`` function came to. ``outcome``: hit (a fresh value was cached), stale (an old
    value was served), shared (the outcome of a rebuild that another caller made) or error_hit (a cached error). Each
    call of the function itself is rebuilt or error."""

    kind: str
    id_hash: str
    outcome: str


class OnceServed(NamedTuple):
    """``outcome``: first (the work begins), again (it begins, and an earlier attempt left no outcome), replay (a stored
    outcome was returned) or conflict (the key was used with another request)."""

    kind: str
    id_hash: str
    outcome: str


class CronRan(NamedTuple):
    """A run of this process has ended: ok, error or lost. ``took`` is in seconds."""

    kind: str
    id_hash: str
    outcome: str
    took: float


class CronPassedOver(NamedTuple):
    """``outcome``: missed or skipped, with the number of ticks (1000 stands for more); or died: a run whose process was
    gone. Reported once, by the process that records it."""

    kind: str
    id_hash: str
    outcome: str
    ticks: int


class CronSucceeded(NamedTuple):
    """The last run that ended with ok, of any process, ended at this time: seconds since 1970, by the clock of that
    process. Reported whenever a process reads the history."""

    kind: str
    id_hash: str
    ended: float


class JobMoved(NamedTuple):
    """What happened to a job of this table. ``outcome``: claimed, taken_over (claimed, and the lease of another worker
    had run out), completed, failed (it is tried again), dead, released, or refused: a worker was too late, another has
    the job, and nothing was changed. What is part of a transaction of yours (``tx``) is reported when it is written,
    before you commit."""

    kind: str
    outcome: str


class JobsCounted(NamedTuple):
    """How many jobs of this table are in each state. ``expired`` are those of the running ones whose lease has run
    out."""

    kind: str
    counts: Mapping[str, int]


class Candidacy(NamedTuple):
    """A candidate of this process in an election. ``state``: stands (it knows of no leader), follows (another leads),
    leads, or left."""

    kind: str
    id_hash: str
    state: str


# ---------------------------------------------------------------- anti-patterns


class AntiPattern(NamedTuple):
    """The events of a kind show a known mistake; ``lease`` is the one at which it showed, ``advice`` says what to do.
    ``pattern``: ttl_too_long ttl_too_short no_id retry_loop unguarded. Reported once for each kind and process."""

    lease: Subject
    pattern: str
    advice: str


Event: TypeAlias = (
    Contended
    | Acquired
    | Refused
    | Renewed
    | NotRenewed
    | Downgraded
    | Lost
    | Released
    | StaleRelease
    | ReleaseUnknown
    | FencedOff
    | Unguarded
    | LimitDiffers
    | Leaking
    | FlightServed
    | OnceServed
    | CronRan
    | CronPassedOver
    | CronSucceeded
    | JobMoved
    | JobsCounted
    | Candidacy
    | AntiPattern
)
Observer: TypeAlias = Callable[[Event], object]


def subject(holding: Holding, store: str = "", number: int = 0) -> Subject:
    """The part of a lease that may be shown."""
    base = subject_of(holding.name, public_owner(holding.owner), holding.fence, holding.ttl_ms, store, number)
    return base._replace(renews=holding.renews, rule=holding.rule)


def subject_of(
    name: Name, owner_prefix: str, fence: int | None, ttl_ms: int, store: str = "", number: int = 0
) -> Subject:
    """The same for a lease that is not granted yet, or of which only this is known."""
    shown = name.text if name.open else ""
    return Subject(name.kind, name.id_hash, owner_prefix, fence, ttl_ms, store, number, shown)
