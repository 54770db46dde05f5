"""An attempt: one acquire that is under way, and what it has claimed, as which owners."""

from __future__ import annotations

from leasehold._core.light_typing import TYPE_CHECKING, Any
from leasehold._core.ops import Withdraw
from leasehold._core.policy import tombstone_ms
from leasehold._runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold._core.flows import Ask
    from leasehold._runtime.story import Story


class Attempt:
    """Known to the engine from before its first claim until it has come to its end."""

    __slots__ = ("_pushes", "ask", "claims", "story")

    def __init__(self, ask: Ask, story: Story | None, pushes: dict[str, Any] | None = None) -> None:
        self.ask = ask
        self.story = story  # for those who observe, if anybody does
        self.claims: list[tuple[Ask, str]] = []
        self._pushes = pushes  # where what comes for its owners is kept; for threads their mailbox does that

    def new_owner(self, ask: Ask | None = None) -> str:
        """A new owner, known to whoever must clean up or wake it: a push may overtake the reply of its claim."""
        owner = new_owner()
        self.claims.append((ask or self.ask, owner))
        if self._pushes is not None:
            self._pushes[owner] = None
        return owner

    def expect_no_more(self) -> None:
        """It is over."""
        if self._pushes is not None:
            for _, owner in self.claims:
                self._pushes.pop(owner, None)

    def is_of(self, owner: str) -> bool:
        """Has it claimed as this one?"""
        return any(one == owner for _, one in self.claims)

    def withdrawals(self) -> list[Withdraw]:
        """What takes back all that it may have claimed, also what is still on its way."""
        return [Withdraw(ask.name.text, owner, tombstone_ms(ask.ttl_ms)) for ask, owner in list(self.claims)]
