"""What a database's errors mean to a pattern: those of a guard, in words that fit a table of the user's."""

from __future__ import annotations

from leasehold.errors import InvalidRequest, LeaseholdError
from leasehold.guards.sql.failures import UNFIT, Fail, says, translated

SPOILT = ("1064",)  # the statement is ours: MariaDB's connector writes a value that it does not know into it as it is


def table_errors(table: str) -> Fail:
    """Whatever went wrong with a statement on this table."""

    def found(error: BaseException) -> LeaseholdError:
        if not isinstance(error, LeaseholdError) and says(error, (*UNFIT, *SPOILT)):
            return InvalidRequest(
                f"a value does not fit its column in {table} ({type(error).__name__}): roll back, and give each column "
                "a value of its type. The cause says which one; a SQLAlchemy Table in place of the name knows its types"
            )
        return translated(error, table, ours=False)

    return found
