"""What ``leasehold top`` shows, computed from what the store lists: order and filter, sums and rates, rows, details."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from leasehold._core.names import matches
from leasehold.cli.inspection import history_of, meta_text
from leasehold.cli.listing import ORDERS
from leasehold.cli.output import printable, width
from leasehold.cli.terminal import elapsed
from leasehold.primitives.inspection import Holder, Inspection

WINDOW = 30.0  # seconds over which rates are computed
BAR = 8  # characters
NEXT = dict(zip(ORDERS, [*list(ORDERS)[1:], next(iter(ORDERS))], strict=True))  # the order that follows each


class Sums(NamedTuple):
    """Of everything that was listed, filtered or not."""

    held: int
    waiting: int
    closed: int
    longest_wait: float  # seconds; 0 when nobody waits
    grants: float  # a second, as far as they were seen


class Rates:
    """How often leases are granted, from the fences: what is granted twice between two looks counts once."""

    def __init__(self) -> None:
        self._fences: dict[str, int] | None = None
        self._looks: deque[tuple[float, int]] = deque()  # when, and how many grants were new

    def add(self, found: Iterable[Inspection], now: float) -> float:
        """Another look; returns grants a second."""
        fences = {one.resource: max(holder.fence for holder in one.holders) for one in found if one.holders}
        known = self._fences
        new = 0 if known is None else sum(fence > known.get(name, 0) for name, fence in fences.items())
        self._fences = fences  # one that was released meanwhile gets a higher fence when it is granted again
        self._looks.append((now, new))
        while now - self._looks[0][0] > WINDOW:
            self._looks.popleft()
        began = self._looks[0][0]
        return sum(count for at, count in self._looks if at > began) / (now - began) if now > began else 0.0


def sums(found: Iterable[Inspection], grants: float) -> Sums:
    held = waiting = closed = 0
    longest = 0.0
    for one in found:
        held += len(one.holders)
        waiting += len(one.waiters)
        closed += bool(one.closed_for)
        longest = max(longest, longest_wait(one))
    return Sums(held, waiting, closed, longest, grants)


def longest_wait(seen: Inspection) -> float:
    """How long the first in its queue has waited, in seconds."""
    return max([age(one.since) for one in seen.waiters], default=0.0)


def chosen(found: Iterable[Inspection], order: str, text: str) -> list[Inspection]:
    """In this order, those that have the text in their name or their holder's. With ``*`` or ``?`` it is a pattern, as
    PATTERN is, for the whole name, with its namespace or without, or the whole holder."""
    wanted = text.casefold()
    return sorted([one for one in found if _has(one, wanted)], key=ORDERS[order])


def _has(seen: Inspection, wanted: str) -> bool:
    texts = [one.casefold() for one in (seen.resource, *[holder.owner for holder in seen.holders])]
    if not set("*?") & set(wanted):
        return any(wanted in one for one in texts)
    return any(matches(wanted, one) for one in (*texts, texts[0].rpartition("/")[2]))


def age(since: datetime | None) -> float:
    return 0.0 if since is None else max(time.time() - since.timestamp(), 0.0)


# ---------------------------------------------------------------- texts


def headline(total: Sums, round_trip: float, order: str, text: str, paused: bool) -> str:
    """One line for all of it. What is cut off on a narrow screen are figures, not what a key has changed."""
    waits = f"{total.waiting} waiting" + (f", longest {elapsed(total.longest_wait)}" if total.waiting else "")
    parts = ["PAUSED"] if paused else []
    parts += [f"{total.held} held", waits]
    if total.closed:
        parts.append(f"{total.closed} closed")
    parts.append(f"by {order}")
    if text:
        parts.append(f"with {printable(text)!r}")
    return "  ".join([*parts, f"{total.grants:.1f} grants/s", f"{round_trip * 1000:.2g} ms"])


def cells(seen: Inspection, name_columns: int, holder_columns: int) -> tuple[str, str, str, str, str]:
    """A row: resource, holder, age, what is left, who waits."""
    holder = seen.holder
    waits = f"{len(seen.waiters)}  {elapsed(longest_wait(seen))}" if seen.waiters else "-"
    name = cut(printable(seen.resource), name_columns)
    if holder is None:
        return name, cut(_unheld(seen), holder_columns), "-", "-", waits
    more = f" +{len(seen.holders) - 1}" if len(seen.holders) > 1 else ""
    who = cut(printable(holder.owner), holder_columns - len(more)) + more
    since = "-" if holder.since is None else elapsed(age(holder.since))
    return name, who, since, f"{bar(holder)} {elapsed(holder.expires_in)}", waits


def _unheld(seen: Inspection) -> str:
    if seen.unreadable:
        return "unreadable"
    return f"closed {elapsed(seen.closed_for)}" if seen.closed_for else "free"


def bar(holder: Holder) -> str:
    """How much of a lease is left; full right after a renewal."""
    share = min(holder.expires_in / holder.ttl, 1.0) if holder.ttl > 0 else 0.0
    full = min(round(share * BAR + 0.499), BAR)
    return "#" * full + "." * (BAR - full)


def urgency(seen: Inspection) -> str:
    """The colour of a row: a lease that is about to expire was not renewed, and its holder may be gone."""
    if seen.holder is None:
        return "yellow" if seen.closed_for or seen.unreadable else ""
    share = seen.holder.expires_in / seen.holder.ttl if seen.holder.ttl > 0 else 0.0
    return "red" if share <= 0.2 else "yellow" if share <= 0.5 else "green"


def cut(text: str, columns: int) -> str:
    """The text, or its beginning and its end with … between them: both tell more than the middle."""
    if width(text) <= columns:
        return text
    head, tail = "", ""
    while width(head + tail) < columns - 1:
        if len(head) <= len(tail):
            head = text[: len(head) + 1]
        else:
            tail = text[-len(tail) - 1 :]
    while width(head + tail) > columns - 1:
        head = head[:-1]
    return f"{head}…{tail}"


def details(seen: Inspection, where: str) -> str:
    """One resource, with all that is known of it."""
    lines = [printable(seen.resource), f"store      {printable(where)}"]
    for one in seen.holders:
        how = "" if one.mode == "exclusive" else f", {one.mode} {', '.join(map(str, one.slots))}".rstrip()
        since = "" if one.since is None else f" for {elapsed(age(one.since))}"
        lines += [
            f"held by    {printable(one.owner)}{since}{how}",
            f"fence      {one.fence or '-'}",
            f"expires in {bar(one)} {elapsed(one.expires_in)} of {elapsed(one.ttl)}",
            *[printable(f"meta       {key}: {meta_text(value)}") for key, value in sorted(one.meta.items())],
        ]
    if not seen.holders:
        lines.append("nobody holds it" + (f"; the last fence was {seen.fence}" if seen.fence else ""))
    if seen.closed_for:
        lines.append(f"closed     for {elapsed(seen.closed_for)}: no claim is granted before")
    for number, waiter in enumerate(seen.waiters, 1):
        silent = "" if waiter.live else ", silent"
        lines.append(printable(f"waiting    {number}. {waiter.owner} for {elapsed(age(waiter.since))}{silent}"))
    lines += [f"history    {history_of(note)}" for note in seen.notes]
    return "\n".join([*lines, *[printable(f"unreadable {one}") for one in seen.unreadable]])
