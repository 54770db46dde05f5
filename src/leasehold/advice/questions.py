"""The questions in their order: the field that each fills, its wording, and the possible answers."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """The question for one field. ``choices``: each answer and its meaning; empty for a duration, a number or names."""

    field: str
    text: str
    choices: tuple[tuple[str | bool, str], ...] = ()
    example: str = ""


YES_NO = ((True, ""), (False, ""))

QUESTIONS = (
    Question(
        "protects",
        "If two run at once, or a stale one writes: what is harmed?",
        (
            ("efficiency", "time or money for work that is done twice"),
            ("correctness", "something is wrong afterwards: state, money, law, what cannot be undone"),
        ),
    ),
    Question(
        "work",
        "What is the work?",
        (
            ("cache", "a value that can be made again"),
            ("schedule", "something that the clock starts"),
            ("task", "one job of many, from a queue or a table"),
            ("transition", "a row of a database changes its state"),
            ("section", "rows of one database are read and then written"),
            ("command", "a command or request that is to be processed once"),
            ("message", "messages of a broker"),
            ("external", "an effect outside of our database: a payment, a mail, a device"),
            ("workflow", "many steps, over hours or days"),
            ("general", "none of these: mutual exclusion in business code"),
        ),
    ),
    Question(
        "duplicates",
        "What is a duplicate?",
        (("harmless", "no one minds"), ("costly", "wasted work, nothing worse"), ("wrong", "it must not happen")),
    ),
    Question("idempotent", "Can the effect be made idempotent, so that doing it again changes nothing?", YES_NO),
    Question("downstream_fences", "Can the system that is written to refuse a stale fence?", YES_NO),
    Question(
        "durable_state",
        "Is there durable state that can decide: a conditional update or a unique constraint of a database?",
        YES_NO,
    ),
    Question("unique", "Which columns tell one piece of the work from another?", example="such as customer, period"),
    Question("row", "Does one row stand for the work, so that it can be locked?", YES_NO),
    Question("survives_failover", "Must the state of the lock survive a failover, or the loss of its store?", YES_NO),
    Question("duration", "How long can the work take?", example="such as 200ms, 5m, 3h"),
    Question("steps", "Can it be split into smaller durable steps, each recorded when it is done?", YES_NO),
    Question("limit", "How many may run at once, for each tenant or in total?", example="such as 3"),
    Question("audit", "Is an audit trail required?", YES_NO),
    Question("regions", "Are partitions between regions expected?", YES_NO),
    Question(
        "availability",
        "How long may the work stand still because the store of the lease is away?",
        (
            ("hours", "until somebody brings it back"),
            ("seconds", "as long as a failover takes"),
            ("none", "it must go on meanwhile"),
        ),
    ),
    Question("metrics", "Is it measured, with alerts, how leases are acquired, lost and released too late?", YES_NO),
    Question(
        "recovery",
        "Is there a procedure for clearing a lease, and for repairing what two at once have done?",
        YES_NO,
    ),
)
CHOICES = {one.field: tuple(value for value, _ in one.choices) for one in QUESTIONS if one.choices}


# ---------------------------------------------------------------- answers as text


def answer_text(value: object) -> str:
    """An answer as text: yes or no for a bool, a duration with its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return duration_text(value) if isinstance(value, float) else str(value)


def duration_text(seconds: float) -> str:
    """A length of time, in the form in which durations are given: 250ms, 12s, 1.5s, 90m, 2h."""
    ms = round(seconds * 1000)
    if ms < 1000:
        return f"{seconds * 1000:g}ms" if ms < 1 else f"{ms}ms"
    for unit, size in (("h", 3_600_000), ("m", 60_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms / 1000:.10g}s"
