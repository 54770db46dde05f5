"""An attempt: one acquire that is under way, and the owners that it has claimed as."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leasehold.core.ops import Withdraw
from leasehold.core.policy import tombstone_ms
from leasehold.runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold.core.flows import Ask


class Attempt:
    """Known to the engine from before its first claim until it has come to its end."""

    __slots__ = ("_expect", "ask", "owners")

    def __init__(self, ask: Ask, expect: Callable[[str], None] | None = None) -> None:
        self.ask = ask
        self.owners: list[str] = []
        self._expect = expect

    def new_owner(self) -> str:
        """A new owner, known to whoever must clean up or wake it."""
        owner = new_owner()
        self.owners.append(owner)
        if self._expect is not None:
            self._expect(owner)
        return owner

    def withdrawals(self) -> list[Withdraw]:
        """What takes back all that it may have claimed, also what is still on its way."""
        forget_ms = tombstone_ms(self.ask.ttl_ms)
        return [Withdraw(self.ask.name.text, owner, forget_ms) for owner in list(self.owners)]
