"""What is said about an answer, and what else is to be heeded: sentences, and when they are true."""

from __future__ import annotations

from typing import NamedTuple

ANSWERS: dict[tuple[str, object], str] = {
    ("protects", "efficiency"): (
        "Efficiency is at stake: if two run at once, work is done twice and nothing else; so a lease may decide."
    ),
    ("protects", "correctness"): (
        "Correctness is at stake: a lease can end before the work does, whichever store it lives in; so the write "
        "itself must be refused where it happens."
    ),
    ("duplicates", "harmless"): "Duplicates are harmless: two at once, after a pause or a failover, can be borne.",
    ("duplicates", "costly"): (
        "Duplicates are costly: a lease saves nearly all of them; the rare one must not replace a newer result."
    ),
    ("duplicates", "wrong"): (
        "Duplicates are wrong: what must not happen twice is refused by the state that it changes, not by a lease."
    ),
    (
        "idempotent",
        True,
    ): ("The effect can be made idempotent: after an unclear end it can be done again, and nothing changes."),
    ("idempotent", False): (
        "The effect cannot be made idempotent: after an unclear end nobody knows whether it may be done again."
    ),
    ("downstream_fences", True): (
        "What is written to can refuse a stale fence: a stale owner is stopped there, so a late write does no harm."
    ),
    ("downstream_fences", False): (
        "What is written to cannot refuse a stale fence: a stale owner is not recognised where the effect happens."
    ),
    ("durable_state", True): (
        "There is durable state that can decide: the database does so in one statement, without a clock."
    ),
    ("durable_state", False): (
        "There is no durable state that can decide: no row and no constraint could refuse the second one."
    ),
    ("survives_failover", True): (
        "The lock must survive a failover: a replica may not have the last grant when it takes over; a majority has."
    ),
    ("regions", True): (
        "Regions can be cut off from each other: then only a majority can go on, and one region waits."
    ),
}
UNKNOWN = {
    "duplicates": "What a duplicate is",
    "idempotent": "Whether the effect can be made idempotent",
    "downstream_fences": "Whether what is written to can refuse a stale fence",
    "durable_state": "Whether there is durable state that can decide",
    "survives_failover": "Whether the lock must survive a failover",
    "duration": "How long the work can take",
    "audit": "Whether an audit trail is required",
    "regions": "Whether partitions between regions are expected",
}
"""How an answer that nobody gave is named, in the order in which they are told."""
UNKNOWN_WORK = (
    "The kind of work is not known, and counts as general mutual exclusion: say it, and the verdict may be closer."
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
        "Whether an audit trail is required is not known, and counts as yes: write an entry in the same transaction as "
        "the change.",
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
