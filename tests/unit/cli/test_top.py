"""``leasehold top``, driven key by key on a screen of 80 × 24 over a store in memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from textual.widgets import Input

import leasehold
from leasehold import Inspection, InvalidRequest, Leasehold, LeaseholdError, StoreUnavailable
from leasehold.cli.clear import operator
from leasehold.cli.top import overview, screen
from leasehold.cli.top.actions import revoke
from leasehold.cli.top.screen import Top
from leasehold.stores.clock import ManualClock
from leasehold.stores.memory import MemoryStore
from tests.support.cli.typed import typed
from tests.support.tables import each

pytestmark = pytest.mark.slow  # a key takes as long as a screen to draw
SIZE = (80, 24)
LONG = "a-very-long-kind-of-resource"


class Stage:
    """A store whose clock stands, two coordinators, and the screen of a third."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall=time.time())
        self.store = MemoryStore(self.clock)
        self.hold = leasehold.connect(self.store, namespace="acme")
        self.operator = Shaky(self.store, namespace="acme")
        self.top = Top(self.operator, "memory://stage, namespace acme", "*", "name", 0.1)
        self.pilot: Any = None

    def lines(self) -> list[str]:
        """The screen as it is now."""
        strips = self.top.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    async def until(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Wait until the screen shows it."""
        give_up = time.monotonic() + 60
        while not condition(self.lines()):
            assert time.monotonic() < give_up, "\n".join(self.lines())
            await self.pilot.pause(0.03)  # drawing the lines takes a while, too
        return self.lines()

    async def shows(self, text: str) -> list[str]:
        """Wait until the text is somewhere on the screen."""
        return await self.until(lambda lines: any(text in line for line in lines))

    async def gives(self, reason: str) -> None:
        """Types a reason into the open dialog, and enter."""
        self.top.screen.query_one("#reason", Input).value = reason
        await self.pilot.press("enter")

    def rows(self) -> list[str]:
        """The names in the table."""
        return [line.split()[0] for line in self.lines()[4:-2] if line.strip() and line.startswith(" acme/")]


class Shaky(Leasehold):
    """A coordinator whose store is away when the test says so."""

    trouble: LeaseholdError | None = None

    def ping(self) -> float:
        """Or not."""
        if self.trouble is not None:
            raise self.trouble
        return super().ping()


@asynccontextmanager
async def playing(stage: Stage) -> Any:
    """The screen, from its first picture on."""
    async with stage.top.run_test(size=SIZE) as pilot:
        stage.pilot = pilot
        yield pilot


@pytest.fixture
def stage() -> Iterator[Stage]:
    """With nothing held."""
    made = Stage()
    yield made
    made.operator.close()
    made.hold.close()


async def test_a_picture(stage: Stage) -> None:
    """Where it is, how much is held and waited for, a line for each with a bar, the whole name below, and the keys."""
    leases = [stage.hold.lock(LONG, "x" * 30, ttl="1m").acquire(), stage.hold.lock("job", 7).acquire()]
    async with playing(stage):
        await stage.shows("2 held  0 waiting")
        lines = await stage.shows("q Quit")
    assert lines[0].strip() == "leasehold top  memory://stage, namespace acme"
    assert lines[3].split() == ["RESOURCE", "HOLDER", "AGE", "EXPIRES", "IN", "WAITING"]
    assert "…" in lines[4] and "######## 1m 00s" in lines[4] and "acme/job:7 " in lines[5]
    assert lines[-2].strip() == f"acme/{LONG}:{'x' * 30}"
    assert lines[-1].strip() == "i Inspect r Revoke c Clear s Sort / Filter a All p Pause q Quit"
    assert len(lines) == 24 and {len(line) for line in lines} == {80} and all(leases)


async def test_nothing_is_held(stage: Stage) -> None:
    """It says so; keys about a resource do nothing."""
    async with playing(stage) as pilot:
        await stage.shows("nothing is held")
        for key, said in (("r", "nobody to ask"), ("c", "nothing to clear")):
            await pilot.press(key)
            await stage.shows(said)
        await pilot.press("i")
        assert stage.top.screen is stage.top.screen_stack[0]


async def test_what_changes_is_seen(stage: Stage) -> None:
    """A lease that is granted or released; grants are counted; the cursor stays on its resource."""
    async with playing(stage) as pilot:
        with stage.hold.lock("b"):
            await stage.shows("acme/b ")
            with stage.hold.lock("a"):
                lines = await stage.shows("acme/a ")
                assert lines[-2].strip() == "acme/b"
            await stage.shows("1 held")
            await pilot.press("p")
            await stage.shows("PAUSED")
        assert stage.rows() == ["acme/b"]
        await pilot.press("p")
        await stage.shows("nothing is held")


async def test_orders_and_filters(stage: Stage) -> None:
    """``s`` takes the next order, ``/`` keeps what has a text in its name or its holder's, or matches a pattern as a
    whole, ``esc`` shows all again."""
    leases = [stage.hold.lock(name, ttl=ttl).acquire() for name, ttl in (("bee", 60), ("sea", 20), ("ant", 40))]
    async with playing(stage) as pilot:
        await stage.until(lambda _: stage.rows() == ["acme/ant", "acme/bee", "acme/sea"])
        for order in ("by age", "by remaining"):
            await pilot.press("s")
            await stage.shows(order)
        assert stage.rows() == ["acme/sea", "acme/ant", "acme/bee"]
        await pilot.press("slash")
        stage.top.query_one("#filter", Input).value = "SEA"
        await pilot.press("enter")
        await stage.until(lambda _: stage.rows() == ["acme/sea"])
        await stage.shows("with 'SEA'")
        for pattern, names in (("*e?", ["sea", "bee"]), ("acme/b*", ["bee"]), ("b*", ["bee"]), ("b?", [])):
            stage.top.query_one("#filter", Input).value = pattern
            await stage.until(lambda _, names=names: stage.rows() == [f"acme/{name}" for name in names])  # type: ignore[misc]  # bound now
        stage.top.query_one("#filter", Input).value = "sea"
        await pilot.press("slash", "z")
        await stage.shows("nothing matches   (3 more)")
        await pilot.press("escape")
        await stage.until(lambda _: len(stage.rows()) == 3)
    assert all(leases)


def test_what_a_key_has_changed_is_not_cut_off() -> None:
    """The second line of a screen of 80 columns shows a pause, the order and a filter, whatever else is in it."""
    sums = overview.Sums(held=120, waiting=45, closed=0, longest_wait=754.0, grants=123.4)
    line = overview.headline(sums, 0.0123, "remaining", "report", paused=True)
    assert all(part in line[:78] for part in ("PAUSED", "by remaining", "with 'report'")), line


async def test_the_keys_of_a_filter(stage: Stage) -> None:
    """While it is typed, only what then works is shown at the bottom; while it is kept, how all are shown again."""
    with stage.hold.lock("job"):
        async with playing(stage) as pilot:
            usual = (await stage.shows("q Quit"))[-1].strip()
            await pilot.press("slash")
            await stage.until(lambda lines: lines[-1].strip() == "enter Keep it esc Show all")
            await pilot.press("e", "slash", "j")  # a slash is a letter of names
            await stage.shows("with 'e/j'")
            await pilot.press("enter")
            await stage.until(lambda lines: lines[-1].strip() == f"{usual} esc Show all")
            await pilot.press("escape")
            await stage.until(lambda lines: lines[-1].strip() == usual)


async def test_details(stage: Stage) -> None:
    """All that is known of one, kept up to date until it is free; ``esc`` closes it."""
    lease = stage.hold.lock("job", 7, meta={"run": 3}).acquire()
    assert lease is not None
    async with playing(stage) as pilot:
        await stage.shows("acme/job:7 ")
        await pilot.press("enter")
        lines = await stage.shows(f"fence      {lease.fence}")
        assert any("store      memory://stage, namespace acme" in line for line in lines)
        assert any("meta       run: 3" in line for line in lines)
        lease.release()
        await stage.shows("is free by now")
        await pilot.press("escape")
        await stage.shows("nothing is held")


async def test_details_are_those_of_inspect(stage: Stage) -> None:
    """Metadata as JSON, and notes with their fence, also one without a reason."""
    with stage.hold.lock("job", meta={"dry": True, "after": None}) as lease:
        stage.hold.revoke("job", by="alice")
        shown = overview.details(stage.hold.inspect("job"), "memory://stage").splitlines()
    assert "meta       dry: true" in shown and "meta       after: null" in shown
    assert shown[-1].startswith("history ") and shown[-1].endswith(f"(fence {lease.fence}) by alice")
    assert "nobody holds it" in overview.details(stage.hold.inspect("never"), "memory://stage").splitlines()


async def test_revoke(stage: Stage) -> None:
    """After a yes the holder is asked, and not after a no."""
    lease = stage.hold.lock("job").acquire()
    assert lease is not None
    async with playing(stage) as pilot:
        await stage.shows("acme/job ")
        await pilot.press("r")
        await stage.shows("to release acme/job?")
        await pilot.press("n")
        assert not lease.revoked.is_set()
        await pilot.press("r", "y")
        await stage.shows("The holder of acme/job ")
    assert stage.hold.inspect("job").held


async def test_several_holders(stage: Stage) -> None:
    """All of them are asked; which of them is evicted, the screen cannot know."""
    pool = stage.hold.semaphore("pool", limit=3, ttl=30, renew=False)
    permits = [pool.acquire(), pool.acquire()]
    async with playing(stage) as pilot:
        await stage.shows("acme/pool ")
        await pilot.press("c")
        await stage.shows("Several hold it")
        await stage.shows("leasehold clear acme/pool")
        await pilot.press("r")
        await stage.shows("Ask all 2 holders to release acme/pool?")
        await pilot.press("y")
        await stage.shows("of the 2 holders of acme/pool are asked")
        assert len(stage.hold.inspect("pool").holders) == 2
        asked = {note.fence for note in stage.hold.inspect("pool").notes if note.event == "asked"}
        first, second = [permit for permit in permits if permit is not None]
        assert asked == {first.fence, second.fence}
        assert first.release()
    assert "Not asked" not in revoke(stage.hold, "pool", [first.fence, second.fence])
    assert revoke(stage.hold, "pool", [first.fence]).startswith("Not asked: ")


async def test_clear(stage: Stage) -> None:
    """It needs a reason, and a second enter when the holder renewed lately; the audit trail says who, and why."""
    lease = stage.hold.lock("job", ttl=30, renew=False).acquire()
    assert lease is not None
    async with playing(stage) as pilot:
        await stage.shows("acme/job ")
        await pilot.press("c", "enter")
        await stage.shows("It needs a reason.")
        await stage.gives("frozen")
        await stage.shows("it seems alive, and works")
        assert stage.hold.inspect("job").held
        await pilot.press("enter")
        await stage.shows("no longer holds acme/job. Nobody gets it for 30s.")
        await stage.shows("1 closed")
    (note,) = stage.hold.inspect("job").notes
    assert (note.event, note.fence, note.reason) == ("evicted", lease.fence, "frozen")
    assert note.by == operator() and "@" in note.by


async def test_clear_of_a_silent_holder(stage: Stage) -> None:
    """One enter is enough; ``esc`` changes nothing."""
    lease = stage.hold.lock("job", ttl=30, renew=False).acquire()
    stage.clock.advance(15)
    async with playing(stage) as pilot:
        await stage.shows("acme/job ")
        await pilot.press("c", "escape")
        assert stage.hold.inspect("job").held
        await pilot.press("c")
        await stage.gives("gone")
        await stage.shows("Nobody gets it for 15s.")
    assert lease is not None and lease.state == "lost"


async def test_somebody_was_quicker(stage: Stage) -> None:
    """Only the lease that was shown is taken away."""
    lease = stage.hold.lock("job", renew=False, ttl=30).acquire()
    stage.clock.advance(15)
    async with playing(stage) as pilot:
        await stage.shows("acme/job ")
        await pilot.press("p", "c")
        assert lease is not None and lease.release()
        with stage.hold.lock("job"):
            await stage.gives("why")
            await stage.shows("Not cleared: nobody with fence")
            assert stage.hold.inspect("job").held


async def test_a_store_that_is_away(stage: Stage) -> None:
    """It is said in full, the last picture stays, and when it is back the line goes."""
    with stage.hold.lock("job"):
        async with playing(stage):
            await stage.shows("acme/job ")
            stage.operator.trouble = StoreUnavailable("Redis at nowhere:1 cannot be reached")
            lines = await stage.shows("The store is unavailable, and is tried again: Redis at nowhere:1")
            assert any("acme/job " in line for line in lines)
            reason = "Redis at cache-1.internal.example:6379 cannot be reached: Name or service not known"
            stage.operator.trouble = StoreUnavailable(reason)
            await stage.until(lambda lines: reason in " ".join(" ".join(lines).split()))
            stage.operator.trouble = None
            await stage.until(lambda lines: not any("unavailable" in line for line in lines))
    assert stage.top.trouble is None


async def test_a_store_that_is_away_from_the_beginning(stage: Stage) -> None:
    """Nothing is claimed about it; quitting works, and why it was never reached is kept for the exit code."""
    stage.operator.trouble = StoreUnavailable("nobody is there")
    async with playing(stage) as pilot:
        lines = await stage.shows("nobody is there")
        assert lines[1].strip() == "looking ..." and not any("nothing is held" in line for line in lines)
        await pilot.press("q")
    assert stage.top.return_code == 0 and stage.top.trouble is stage.operator.trouble


@each(("trouble", "code"), [(None, 0), (StoreUnavailable("nobody is there"), 69), (InvalidRequest("no pattern"), 2)])
def test_what_it_exits_with(trouble: LeaseholdError | None, code: int) -> None:
    """0 after a look at the store; else with the code of what was wrong all the time, which is said."""
    terminal = SimpleNamespace(isatty=lambda: True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leasehold.cli.top.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
        patch.setattr(Top, "run", lambda top: setattr(top, "trouble", trouble))
        done = typed("top", "--url", "memory://")
    assert (done.code, str(trouble or "") in done.err, bool(done.err)) == (code, True, bool(code))


async def test_the_first_and_the_last_row(stage: Stage) -> None:
    """Home and End go there."""
    leases = [stage.hold.lock(name).acquire() for name in ("a", "b", "c")]
    async with playing(stage) as pilot:
        await stage.shows("acme/c ")
        for key, name in (("end", "acme/c"), ("home", "acme/a")):
            await pilot.press(key)
            await stage.until(lambda lines, name=name: lines[-2].strip() == name)  # type: ignore[misc]  # bound now
    assert all(leases)


async def test_a_message_goes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next key, or after some seconds."""
    async with playing(stage) as pilot:
        for next_key in ("s", "p"):
            await pilot.press("r")
            await stage.shows("nobody to ask")
            await pilot.press(next_key)
            await stage.until(lambda lines: not any("nobody to ask" in line for line in lines))
        monkeypatch.setattr(screen, "MESSAGE_SECONDS", 0.2)
        await pilot.press("c")
        await stage.until(lambda lines: not any("nothing to clear" in line for line in lines))


async def test_what_is_free_and_has_a_history(stage: Stage) -> None:
    """Is shown when somebody asks for it."""
    lease = stage.hold.lock("job", ttl=30, renew=False).acquire()
    assert lease is not None
    stage.hold.evict("job", fence=lease.fence, reason="frozen", delay=0, force=True)
    async with playing(stage) as pilot:
        await stage.shows("nothing is held")
        await pilot.press("a")
        lines = await stage.shows("acme/job ")
        assert any("free" in line for line in lines[4:])
        await pilot.press("a")
        await stage.shows("nothing is held")


async def test_hostile_names(stage: Stage) -> None:
    """What others wrote into the store is text: neither markup nor control characters."""
    with stage.hold.lock("[bold red]x", "\x1b]0;gotcha", meta={"[link]": "\x1b[2J"}):
        async with playing(stage) as pilot:
            await stage.shows("acme/[bold red]x:")
            await pilot.press("i")
            lines = await stage.shows("[link]")
    assert "\x1b" not in "".join(lines)


async def test_a_narrow_and_a_wide_screen(stage: Stage) -> None:
    """The columns take what there is."""
    with stage.hold.lock(LONG, "x" * 30):
        async with playing(stage) as pilot:
            await pilot.resize_terminal(140, 30)
            await stage.until(lambda lines: f"acme/{LONG}:{'x' * 30}" in lines[4])
            await pilot.resize_terminal(50, 12)
            await stage.until(lambda lines: len(lines[4]) == 50 and "…" in lines[4])


# ---------------------------------------------------------------- without a screen


def seen(fence: int, held: bool = True) -> list[Inspection]:
    """One resource with this fence."""
    holders = leasehold.Holder("h:1", fence, 30, 20, None, {}) if held else None
    return [Inspection("job", (holders,) if holders else (), (), fence, 0, ())]


def test_rates() -> None:
    """Fences that have grown, a second, over half a minute; what was there at the first look is not counted."""
    rates = overview.Rates()
    assert rates.add(seen(5), 100.0) == 0
    assert rates.add(seen(6), 102.0) == 0.5
    assert rates.add(seen(6), 104.0) == 0.25
    assert rates.add(seen(7, held=False), 105.0) == 0.2  # an eviction raises the fence, and grants nothing
    assert rates.add(seen(6), 140.0) == pytest.approx(0)


@each(
    ("text", "columns", "expected"),
    [("short", 5, "short"), ("report-export:42", 9, "repo…t:42"), ("漢字漢字漢字", 7, "漢字…字"), ("abc", 2, "a…")],
)
def test_cutting(text: str, columns: int, expected: str) -> None:
    """The beginning and the end stay; ideographs take two columns."""
    assert overview.cut(text, columns) == expected


def test_it_needs_a_terminal() -> None:
    """For programs there is another command."""
    for words in (["top"], ["top", "--json"]):
        done = typed(*words, "--url", "memory://")
        assert (done.code, done.out, "leasehold ls --watch --json" in done.err) == (2, "", True)


def test_without_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install: 78."""
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("leasehold.cli.top.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    monkeypatch.delitem(sys.modules, "leasehold.cli.top.screen")
    monkeypatch.setitem(sys.modules, "textual", None)
    done = typed("top", "--url", "memory://")
    assert (done.code, done.err) == (78, "leasehold: top needs textual. Please type:  pip install 'leasehold[top]'\n")
    done = typed("top", "--url", "memory://", "--every", "soon")
    assert (done.code, "--every 'soon' is not a duration" in done.err) == (2, True)


@each("every", ["0", "0s", "-1", "nan"])
def test_it_leaves_the_store_alone_between_two_looks(every: str) -> None:
    """No pause is 2, before anything is sent."""
    terminal = SimpleNamespace(isatty=lambda: True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leasehold.cli.top.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
        done = typed("top", "--url", "memory://", f"--every={every}")
    assert (done.code, done.out, "--every must " in done.err) == (2, "", True), done


@each(
    ("pattern", "why"),
    [
        ("", "the pattern is empty, and would match nothing: '*' matches everything"),
        ("x" * 513, "the pattern has 513 characters, and no name more than 512: shorten it with a *"),
    ],
)
def test_a_pattern_that_is_none(pattern: str, why: str) -> None:
    """2, with what to type, before anything is drawn: the store has nothing to do with it, and is not called
    unavailable."""
    terminal = SimpleNamespace(isatty=lambda: True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leasehold.cli.top.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
        patch.setattr(Top, "run", lambda _: pytest.fail("the screen is opened"))
        done = typed("top", pattern, "--url", "redis://127.0.0.1:1")
    assert (done.code, done.out, why in done.err, "unavailable" in done.err) == (2, "", True, False), done
