"""What is said about an answer, and what else is to be heeded: sentences, and when they are true."""

from __future__ import annotations

from typing import NamedTuple

ANSWERS: dict[tuple[str, object], str] = {
    ("protects", "efficiency"): (
        "protects is efficiency: if two run at once, work is done twice and nothing else; so a lease may decide."
    ),
    ("protects", "correctness"): (
        "protects is correctness: a lease can end before the work does, whichever store it lives in; so the write "
        "itself must be refused where it happens."
    ),
    ("duplicates", "harmless"): "duplicates is harmless: two at once, after a pause or a failover, can be borne.",
    ("duplicates", "costly"): (
        "duplicates is costly: a lease saves nearly all of them; the rare one must not replace a newer result."
    ),
    ("duplicates", "wrong"): (
        "duplicates is wrong: what must not happen twice is refused by the state that it changes, not by a lease."
    ),
    ("idempotent", True): "idempotent is yes: after an unclear end it can be done again, and nothing changes.",
    ("idempotent", False): "idempotent is no: after an unclear end nobody knows whether it may be done again.",
    ("downstream_fences", True): (
        "downstream_fences is yes: a stale owner is refused where it writes, so a late write does no harm."
    ),
    ("downstream_fences", False): (
        "downstream_fences is no: a stale owner is not recognised where the effect happens, so no fence stops it."
    ),
    ("durable_state", True): "durable_state is yes: the database decides in one statement, without a clock.",
    ("durable_state", False): "durable_state is no: there is no row or constraint that could refuse the second one.",
    ("survives_failover", True): (
        "survives_failover is yes: a replica may not have the last grant when it takes over; a majority has."
    ),
    ("regions", True): (
        "regions is yes: when they are cut off from each other, only a majority can go on, and one region waits."
    ),
}
UNKNOWN_WORK = (
    "work is not known, and counts as general mutual exclusion: say what it is, and the verdict may be closer."
)


class Heed(NamedTuple):
    """A warning, and the facts and columns with which it is due."""

    due: dict[str, object]
    text: str


WARNINGS = (
    Heed(
        {"work": "schedule", "protects": "efficiency", "idempotent": False},
        "Make the work idempotent: a tick can run twice, when its holder pauses or the store forgets.",
    ),
    Heed(
        {"tool": "consumer group", "idempotent": False},
        "Make the handler idempotent: a broker delivers at least once, so the same message will come again.",
    ),
    Heed(
        {"work": "external", "protects": "correctness", "downstream_fences": False, "idempotent": False},
        "Nothing makes this effect happen exactly once. After a crash in the middle, ask the other side or a person.",
    ),
    Heed(
        {"tool": "once", "durable_state": False},
        "An idempotency key needs a durable home: a key that is forgotten protects nothing.",
    ),
    Heed(
        {"tool": "semaphore + jobs", "durable_state": False},
        "Give the jobs a table: a permit that ends forgets what was begun.",
    ),
    Heed(
        {"tool": "consensus store"},
        "A consensus store makes the grant certain, not the write: without a conditional write, a check of the fence "
        "or idempotency, a paused owner still writes late.",
    ),
    Heed(
        {"long": True},
        "Split it into smaller durable steps if you can: each of them may then be repeated, and a takeover loses less.",
    ),
    Heed(
        {"trail": True},
        "Write the audit entry in the same transaction as the change: events and logs of leases are no audit trail.",
    ),
    Heed(
        {"trail": None, "protects": "correctness"},
        "audit is not known, and counts as yes: write an entry in the same transaction as the change.",
    ),
    Heed(
        {"regions": True, "duplicates": "harmless"},
        "One store in each region is enough: a duplicate for each of them is harmless.",
    ),
    Heed(
        {"survives_failover": True, "duplicates": "harmless"},
        "A failover that forgets the lease costs one duplicate, which is harmless: you may not need a majority.",
    ),
)
