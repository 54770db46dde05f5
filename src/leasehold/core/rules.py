"""Who may hold together. A rule looks at the holders and says which slots the next claim fills, or none.

The ledger asks the rule of the first live waiter, and stops at the first that does not fit: nobody overtakes.
A new rule is a new row of the table; queue, expiry, handoff and fences stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leasehold.core.types import Grant, Waiter

Rule = Callable[[Sequence[Grant], Waiter], tuple[int, ...] | None]

ONLY_SLOT = (0,)


def mutex(holders: Sequence[Grant], claim: Waiter) -> tuple[int, ...] | None:
    """One holder, one slot."""
    return None if holders else ONLY_SLOT


RULES: dict[str, Rule] = {"mutex": mutex}
