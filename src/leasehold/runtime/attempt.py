"""An attempt: one acquire that is under way, and the owners that it has claimed as."""

from __future__ import annotations

from leasehold.core.ops import Withdraw
from leasehold.core.policy import tombstone_ms
from leasehold.core.typed import TYPE_CHECKING, Any
from leasehold.runtime.identity import new_owner

if TYPE_CHECKING:
    from leasehold.core.flows import Ask
    from leasehold.runtime.story import Story


class Attempt:
    """Known to the engine from before its first claim until it has come to its end."""

    __slots__ = ("_pushes", "ask", "owners", "story")

    def __init__(self, ask: Ask, story: Story | None, pushes: dict[str, Any] | None = None) -> None:
        self.ask = ask
        self.story = story  # for those who observe, if anybody does
        self.owners: list[str] = []
        self._pushes = pushes  # where what comes for its owners is kept; for threads their mailbox does that

    def new_owner(self) -> str:
        """A new owner, known to whoever must clean up or wake it: a push may overtake the reply of its claim."""
        owner = new_owner()
        self.owners.append(owner)
        if self._pushes is not None:
            self._pushes[owner] = None
        return owner

    def expect_no_more(self) -> None:
        """It is over."""
        if self._pushes is not None:
            for owner in self.owners:
                self._pushes.pop(owner, None)

    def withdrawals(self) -> list[Withdraw]:
        """What takes back all that it may have claimed, also what is still on its way."""
        forget_ms = tombstone_ms(self.ask.ttl_ms)
        return [Withdraw(self.ask.name.text, owner, forget_ms) for owner in list(self.owners)]
