"""Errors of the server and of the network, as errors of ours.

A statement that the server refuses has changed nothing, and neither has a transaction before its COMMIT was sent. A
connection that breaks after that leaves the outcome unknown.
"""

from __future__ import annotations

from leasehold.errors import LeaseholdError, OutcomeUnknown, StoreUnavailable
from leasehold.stores.postgresql.session import Broken, Refused

STOOD_STILL = "25P03"  # idle in a transaction for too long: the server ended the session, and undid it
# Another transaction was faster, and a new attempt may succeed: serialization, deadlock, a key that exists by now.
PASSING = ("40001", "40P01", "23505")
LOCKED = "55P03"
FORBIDDEN = "42501"

DAMAGED_ROW = (
    "has a damaged row for this resource, so that its holder is unknown. `leasehold inspect` shows it; delete the row "
    "when no one uses it"
)
# By SQLSTATE, or its class.
TEXTS = {
    "25006": "is read-only: a standby, or a database that allows no writes. Connect to the primary "
    "(target_session_attrs=read-write)",
    "28P01": "does not accept this user and password",
    "28": "does not accept this user",
    "3D000": "has no database of that name",
    FORBIDDEN: "does not allow this user what a lease needs; `leasehold store sql --dialect postgresql --role NAME` "
    "prints the GRANT",
    "42P01": "has no table of Leasehold: `leasehold store sql --dialect postgresql` prints what makes it",
    "42703": "has a table of another version, or of somebody else",
    "53100": "has no space left on its disk",
    "53200": "has no memory left",
    "53300": "has no connection left (max_connections)",
    "53": "lacks resources",
    "57P03": "is starting up or shutting down",
    "57014": "cancelled the statement: its statement_timeout is over, or an operator cancelled it",
    LOCKED: "has the row of this resource locked by another transaction for too long",
}


def passing(sqlstate: str) -> bool:
    """Is it worth another attempt at once?"""
    return sqlstate in PASSING


def refusal(server: str, error: Refused) -> LeaseholdError:
    """Nothing was changed."""
    state = error.sqlstate
    text = TEXTS.get(state) or TEXTS.get(state[:2])
    if text is None:
        return StoreUnavailable(f"{server} refused ({state}): {str(error)[:200]}")
    detail = f"{str(error)[:200]}, " if state == FORBIDDEN else ""  # what is forbidden
    return StoreUnavailable(f"{server} {text} ({detail}{state})")


def broken(server: str, error: Broken) -> LeaseholdError:
    """It was sent, and may or may not have been done."""
    return OutcomeUnknown(f"{server} did not answer: {str(error)[:200]}")


def unreachable(server: str, error: BaseException) -> StoreUnavailable:
    """Nothing was done."""
    line = " ".join(str(error).split())
    return StoreUnavailable(f"{server} cannot be reached: {line[:200] or type(error).__name__}")
