"""Statements for PostgreSQL that are wrong on purpose, each in one way that somebody could write by mistake.

Left out are a lock that is not taken, which one op after the other cannot show, and a notification that is not sent,
which is only a hint."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.stores.postgresql.statements import Statements

LISTENS = "NOT pg_try_advisory_xact_lock_shared(listener)"
NOT_OVER = "AND expires > us / 1000 "

# Which statement, what it says, and what it says instead.
WRONG_STATEMENTS: dict[str, tuple[str, str, str]] = {
    "a claim takes what is held": ("claim", "known.owner IS NULL AND ", ""),
    "a claim passes the queue": ("claim", " AND known.state IS NULL", ""),
    "the next fence is the last one": ("claim", "known.fence + 1", "known.fence"),
    "the floor is forgotten (trap 14)": ("claim", "GREATEST(us, $2::bigint + 1)", "us"),
    "a claim forgets what a holder says of itself": ("claim", "details = excluded.details", "details = known.details"),
    "release compares the owner alone": ("release", "fence = $3::bigint", "$3::bigint > 0"),
    "what has ended is released": ("release", NOT_OVER, ""),
    "a renewal compares the owner alone": ("renew", "fence = $3::bigint", "$3::bigint > 0"),
    "what has ended is renewed": ("renew", NOT_OVER, ""),
    "a late renewal shortens (trap 44)": ("renew", "AND expires <= us / 1000 + $4::bigint", ""),
    "a renewal forgets its ttl": ("renew", ", ttl = $4::bigint", ""),
    "the queue is not written": ("_change", "state = $8", "state = NULLIF($8, $8)"),
}
WORST = (  # these break exclusion or the order of fences
    "a claim takes what is held",
    "a claim passes the queue",
    "the next fence is the last one",
    "release compares the owner alone",
    "what has ended is renewed",
)
# The same for what only a crowd shows.
WRONG_FOR_CROWDS: dict[str, tuple[str, str, str]] = {
    "one who does not listen is granted (trap 25)": ("_lock", LISTENS, "true"),
    "one who listens is passed over": ("_lock", LISTENS, "false"),
}


def break_statement(monkeypatch: pytest.MonkeyPatch, name: str, right: str, wrong: str) -> None:
    """Until the end of the test it is wrong, in every store that is made."""
    real = Statements.__init__

    def make(self: Statements, *given: Any) -> None:
        real(self, *given)
        text: bytes = getattr(self, name)
        assert text.count(right.encode()) == 1, f"{name} does not say {right!r} once: {text!r}"
        setattr(self, name, text.replace(right.encode(), wrong.encode()))

    monkeypatch.setattr(Statements, "__init__", make)
