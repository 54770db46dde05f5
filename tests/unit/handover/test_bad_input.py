"""Bad input to adopt, evict, revoke and inspect: InvalidRequest that teaches, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import leasehold
from leasehold import InvalidRequest
from leasehold._core.tickets import MARK, Ticket, read
from leasehold.stores.memory import MemoryStore
from tests.support.lock import Spy
from tests.support.tables import each

NAN, INFINITE = float("nan"), float("inf")
GOOD = Ticket("job:7", 1_700_000_000_000_000, 30_000, "ab" * 16)

BAD_TICKETS: dict[str, Any] = {
    "None": None,
    "number": 7,
    "bytes": GOOD.text().encode(),
    "empty": "",
    "mark alone": MARK,
    "another mark": GOOD.text().replace("lh1.", "lh2."),
    "no mark": GOOD.text().removeprefix(MARK),
    "twice": GOOD.text() * 2,
    "two of them": f"{GOOD.text()} {GOOD.text()}",
    "quoted": f'"{GOOD.text()}"',
    "lower case": GOOD.text().lower(),
    "mistyped": GOOD.text()[:20] + ("A" if GOOD.text()[20] != "A" else "B") + GOOD.text()[21:],
    "not ASCII": GOOD.text()[:-1] + "é",
    "surrogate": GOOD.text()[:-1] + "\ud800",
    "NUL": GOOD.text() + "\0",
    "huge": MARK + "A" * 1_000_000,
    "no name": Ticket("", GOOD.fence, 30_000, GOOD.nonce).text(),
    "huge name": Ticket("j" * 513, GOOD.fence, 30_000, GOOD.nonce).text(),
    "name with braces": Ticket("job:{1}", GOOD.fence, 30_000, GOOD.nonce).text(),
    "name with a newline": Ticket("job:\n", GOOD.fence, 30_000, GOOD.nonce).text(),
    "name with an empty part": Ticket("job:", GOOD.fence, 30_000, GOOD.nonce).text(),
    "no ttl": Ticket("job:7", GOOD.fence, 0, GOOD.nonce).text(),
    "endless ttl": Ticket("job:7", GOOD.fence, 2**32 - 1, GOOD.nonce).text(),
}
BAD_DURATIONS: dict[str, Any] = {
    "zero": 0, "negative": -1, "nan": NAN, "infinite": INFINITE, "True": True, "text": "soon", "empty": "", "list": [1],
    "bytes": b"5", "negative delta": timedelta(seconds=-1),
}  # fmt: skip
BAD_FLAGS: dict[str, Any] = {"None": None, "1": 1, "0": 0, "text": "yes", "list": []}
BAD_RESOURCES: dict[str, Any] = {
    "None": None, "number": 7, "bytes": b"job", "empty": "", "True": True, "list": ["job"], "object": object(),
    "huge": "j" * 513, "surrogate": "\ud800", "empty id": "job:", "empty kind": ":7", "empty namespace": "/job",
    "braces": "job:{7}", "newline": "job:\n7", "slash in an id": "job:a/b", "percent": "job:100%", "lower": "job:%2f",
}  # fmt: skip
BAD_FENCES: dict[str, Any] = {
    "negative": -1, "True": True, "False": False, "text": "17", "float": 17.0, "nan": NAN, "bytes": b"17",
}  # fmt: skip
BAD_LINES: dict[str, Any] = {
    "None": None, "empty": "", "blank": "  ", "number": 7, "bytes": b"it hangs", "two lines": "it\nhangs",
    "return": "it\rhangs", "NUL": "it\0hangs", "tab": "it\thangs", "escape": "\x1b[31mred", "surrogate": "\ud800",
    "long": "x" * 301, "long in spaces": " " * 301 + "x", "list": ["it hangs"],
}  # fmt: skip


def rows(call: str, name: str, table: dict[str, Any], **more: Any) -> list[Any]:
    """One case for each bad value of one parameter."""
    return [pytest.param(call, {**more, name: bad}, id=f"{call}-{name}-{what}") for what, bad in table.items()]


ORDER = {"resource": "job:7", "fence": 17, "reason": "it hangs"}
ADOPT = {"ticket": GOOD.text()}
TABLE = [
    *rows("adopt", "ticket", BAD_TICKETS),
    *rows("adopt", "ttl", {**BAD_DURATIONS, "short": 0.049, "long": "25h", "object": object()}, **ADOPT),
    *rows("adopt", "renew", BAD_FLAGS, **ADOPT),
    *rows("adopt", "max_hold", BAD_DURATIONS, **ADOPT),
    *rows("adopt", "max_idle", BAD_DURATIONS, **ADOPT),
    *rows("adopt", "protects", {"text": "everything", "True": True, "list": []}, **ADOPT),
    *rows("inspect", "resource", BAD_RESOURCES),
    *rows("revoke", "resource", BAD_RESOURCES),
    *rows("revoke", "fence", BAD_FENCES, resource="job:7"),
    *rows("evict", "resource", BAD_RESOURCES, fence=17, reason="it hangs"),
    *rows("evict", "fence", {**BAD_FENCES, "None": None}, resource="job:7", reason="it hangs"),
    *rows("evict", "reason", BAD_LINES, resource="job:7", fence=17),
    *rows("evict", "by", {what: bad for what, bad in BAD_LINES.items() if what != "None"}, **ORDER),
    *rows("evict", "delay", {**{k: v for k, v in BAD_DURATIONS.items() if k != "zero"}, "long": "25h"}, **ORDER),
    *rows("evict", "force", BAD_FLAGS, **ORDER),
]


@pytest.fixture
def spy() -> Iterator[Spy]:
    """A store that counts what is sent: nothing."""
    spy = Spy(MemoryStore())
    yield spy
    assert not spy.ops and not spy.batches


@each(("call", "arguments"), TABLE)
def test_bad_input_is_refused(spy: Spy, call: str, arguments: dict[str, Any]) -> None:
    """In both flavours alike: one error, which neither repeats what was wrong at length nor shows a ticket."""
    with leasehold.connect(spy) as hold, pytest.raises(InvalidRequest) as info:
        getattr(hold, call)(**arguments)

    async def same() -> None:
        async with leasehold.aio.connect(spy) as hold:
            await getattr(hold, call)(**arguments)

    with pytest.raises(InvalidRequest) as again:
        asyncio.run(same())
    assert str(again.value) == str(info.value) and 10 < len(str(info.value)) < 200
    assert GOOD.nonce not in str(info.value) and GOOD.text() not in str(info.value)


def test_every_cut_off_ticket_is_refused(spy: Spy) -> None:
    """However much of it is missing, at either end: before anything is sent."""
    text = GOOD.text()
    with leasehold.connect(spy) as hold:
        for at in range(len(text)):
            for cut in (text[:at], text[at + 1 :], text[:at] + text[at + 1 :]):
                with pytest.raises(InvalidRequest, match="the whole text"):
                    hold.adopt(cut)


def test_space_around_a_ticket_is_nothing() -> None:
    """A line of a file, a variable that a shell has set: the newline is no part of it."""
    for text in (GOOD.text(), f"{GOOD.text()}\n", f"\t {GOOD.text()} \r\n"):
        assert read(text) == GOOD


def test_a_ticket_does_not_show_its_nonce() -> None:
    """What a debugger or an error report prints of it opens nothing."""
    assert GOOD.nonce not in repr(GOOD) and "job:7" not in repr(GOOD) and "job#" in repr(GOOD)


def test_a_long_ttl_is_warned_of(spy: Spy) -> None:
    """As with a lock: over an hour it is the wrong tool, and the warning points at the caller."""
    forged = Ticket("job:{}", GOOD.fence, 30_000, GOOD.nonce).text()
    with (
        leasehold.connect(spy) as hold,
        pytest.warns(UserWarning, match="over 1 h") as warned,
        pytest.raises(InvalidRequest),  # what else is wrong is said too
    ):
        hold.adopt(forged, ttl="2h")
    assert warned[0].filename == __file__
