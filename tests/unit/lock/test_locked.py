"""``@hold.locked``: the name from the arguments, what happens when it is busy, and that the body really holds."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import leasehold
from leasehold import SKIPPED, InvalidRequest, LeaseLost, NotAcquired, StoreUnavailable
from leasehold._core.ops import Claim, Evict
from leasehold.coordinator.base import LockOptions
from tests.support.lock import (
    STORES,
    Spy,
    StillClock,
    async_scene,
    elsewhere,
    in_thread,
    look,
    nothing_left,
    open_store,
    sync_scene,
    tick,
)
from tests.support.tables import each
from tests.support.waiting import PATIENCE, until, until_async

Scene = tuple[Spy, leasehold.Leasehold]
AioScene = tuple[Spy, leasehold.AsyncLeasehold]
NIL = UUID(int=0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """A spied store whose clock only the test turns, and a coordinator over it."""
    spy, hold = sync_scene(StillClock())
    with hold:
        yield spy, hold


@pytest.fixture
def hold(scene: Scene) -> leasehold.Leasehold:
    """The coordinator alone. Tests that pass what a type checker refuses call it Any."""
    return scene[1]


@pytest.fixture
async def aio_scene() -> AsyncIterator[AioScene]:
    """The same for asyncio."""
    spy, hold = async_scene(StillClock())
    async with hold:
        yield spy, hold


def claimed(spy: Spy) -> list[str]:
    """The resources that were asked for, in order."""
    return [claim.resource for claim in spy.of(Claim)]


def never() -> None:
    """A body that may not run."""
    pytest.fail("it ran without its lock")


def evict(spy: Spy, hold: Any, resource: str) -> None:
    """Somebody evicts the holder, and the next renewal hears of it."""
    grant = look(spy, resource).holders[0]
    spy.inner.execute(Evict(resource, grant.owner, grant.fence, "test", delay_ms=0, force=True))
    tick(hold, grant.ttl_ms / 1000 / 2, step=grant.ttl_ms / 1000 / 10)


# ---------------------------------------------------------------- the name


def plain(site: str, *args: Any, page: Any = 7, **more: Any) -> None:
    """A function with every sort of parameter that callers name."""


NAMED: list[tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any], str]] = [
    ((), ("nl",), {}, "job"),
    (("all",), ("nl",), {}, "job:all"),
    ((42,), ("nl",), {}, "job:42"),
    ((NIL,), ("nl",), {}, f"job:{NIL}"),
    (("{site}",), ("nl",), {}, "job:nl"),
    (("{site}",), (), {"site": "nl"}, "job:nl"),
    (("{site}",), (42,), {}, "job:42"),
    (("{site}",), (NIL,), {}, f"job:{NIL}"),
    ((date(2026, 11, 16),), ("nl",), {}, "job:2026-11-16"),
    (("{site}",), (date(2026, 11, 16),), {}, "job:2026-11-16"),
    (("{site}",), ("a:b/c",), {}, "job:a%3Ab%2Fc"),
    (("{page}",), ("nl",), {}, "job:7"),
    (("{page}",), ("nl",), {"page": 8}, "job:8"),
    (("{site}", "{page}"), ("nl",), {}, "job:nl:7"),
    (("{site}-{page}",), ("nl",), {}, "job:nl-7"),
    (("site {site}",), ("nl",), {}, "job:site nl"),
    (("{{{site}}}",), ("nl",), {}, "job:%7Bnl%7D"),
    (("{args[1]}",), ("nl", "a", "b"), {}, "job:b"),
    (("{more[of]}",), ("nl",), {"of": "x"}, "job:x"),
    (("{of}",), ("nl",), {"of": "x"}, "job:x"),
    (("{site.id}",), (SimpleNamespace(id=5),), {}, "job:5"),
    (("{site.owner[name].id}",), (SimpleNamespace(owner={"name": SimpleNamespace(id=NIL)}),), {}, f"job:{NIL}"),
    (("{site[0]}",), (["x"],), {}, "job:x"),
]


@pytest.mark.parametrize(("templates", "args", "kwargs", "resource"), NAMED)
def test_the_name_comes_from_the_arguments(
    scene: Scene, templates: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], resource: str
) -> None:
    """Positional or by name, defaults, attributes, items, ``*args`` and ``**kwargs``."""
    spy, hold = scene
    hold.locked("job", *templates)(plain)(*args, **kwargs)
    assert claimed(spy) == [resource]
    assert nothing_left(spy, resource)


def ascii_or_type(value: object) -> str:
    """A short name for a value of a test."""
    return ascii(value) if isinstance(value, (str, bytes)) else type(value).__name__


@each("value", [None, True, 1.5, b"nl", "", "\ud800", ["nl"], {}, 1 << 1024], ids=ascii_or_type)
@each("template", ["{site}", "site-{site}"], ids=["alone", "in a text"])
def test_a_value_that_is_no_id_is_refused(scene: Scene, template: str, value: object) -> None:
    """The rules of ids hold for a field that stands alone and for one in a text; nothing is sent, nothing runs."""
    spy, hold = scene

    def job(site: object) -> None:
        pytest.fail("it ran")

    with pytest.raises(InvalidRequest, match=r"\{site\}: (an )?id "):
        hold.locked("job", template)(job)(value)
    assert not spy.ops


@pytest.mark.parametrize(
    ("template", "argument"),
    [("{site.id}", "nl"), ("{site[id]}", {}), ("{site[3]}", []), ("{site[id]}", 42), ("{more}", {})],
)
def test_a_field_that_leads_nowhere_is_refused(scene: Scene, template: str, argument: object) -> None:
    """What the arguments do not have is an InvalidRequest that names the field, before anything is sent."""
    spy, hold = scene

    def job(site: object, **others: object) -> None: ...

    with pytest.raises(InvalidRequest, match="is not in the arguments"):
        hold.locked("job", template)(job)(argument)
    assert not spy.ops


def test_an_error_of_the_users_own_property_comes_through(hold: Any) -> None:
    """What breaks inside an attribute is not a wrong template."""

    class Row:
        @property
        def id(self) -> int:
            raise OSError("the database is away")

    with pytest.raises(OSError, match="away"):
        hold.locked("job", "{row.id}")(lambda row: None)(Row())


@each(
    ("templates", "says"),
    [
        (["{sit}"], r"\{sit\} is no parameter of .*job\(\); there is: site"),
        (["{site!r}"], "as it is"),
        (["{site:>5}"], "as it is"),
        (["{site:{site}}"], "as it is"),
        (["{}"], "the name of a parameter"),
        (["{0}"], "the name of a parameter"),
        (["{site.}"], "the name of a parameter"),
        (["{site[]}"], "the name of a parameter"),
        (["{site + 1}"], "the name of a parameter"),
        (["{site"], "cannot be read"),
        (["site}"], "cannot be read"),
        ([""], "must not be empty"),
        ([None], "str, int, UUID or date"),
        ([True], "str, int, UUID or date"),
        ([1.5], "str, int, UUID or date"),
        (["x" * 600], "at most 512 bytes"),
    ],
)
def test_a_wrong_template_is_refused_where_it_is_written(hold: Any, templates: list[Any], says: str) -> None:
    """At decoration, not at the first call in the night."""

    def job(site: str) -> None: ...

    with pytest.raises(InvalidRequest, match=says):
        hold.locked("job", *templates)(job)


def test_the_namespace_and_hidden_ids_are_the_coordinators(scene: Scene) -> None:
    """A decorated function and a lock of the same coordinator mean the same resource."""
    spy = scene[0]
    with leasehold.connect(spy, namespace="acme", hide_ids="key") as hold:
        hold.locked("job", "{site}")(plain)("nl")
        assert claimed(spy) == [hold.lock("job", "nl").resource]


# ---------------------------------------------------------------- busy


def test_busy_raises_after_one_try(scene: Scene) -> None:
    """The default: NotAcquired at once, though the coordinator's wait is for ever, and the body does not run."""
    spy, hold = scene
    with hold.lock("job", "nl"), pytest.raises(NotAcquired) as busy:
        hold.locked("job", "nl")(never)()
    assert busy.value.retry_in is not None
    assert len(claimed(spy)) == 2


def test_busy_skips(scene: Scene) -> None:
    """``skip`` returns SKIPPED, which says when to come again; free again, the body runs."""
    _, hold = scene
    job = hold.locked("job", "{site}", on_busy="skip")(lambda site: f"rebuilt {site}")
    with hold.lock("job", "nl", ttl=30):
        result = job("nl")
        assert result is SKIPPED and not result
        assert result.retry_in == pytest.approx(30, abs=1)
        assert job("be") == "rebuilt be"
    assert job("nl") == "rebuilt nl"


@pytest.mark.parametrize("on_busy", ["raise", "skip", "wait"])
def test_busy_waits_as_long_as_it_is_told(scene: Scene, on_busy: Any) -> None:
    """With ``wait=`` every way of being busy waits in the queue, and runs when the holder is gone."""
    spy, hold = scene
    locked: Callable[..., Any] = hold.locked
    job = locked("job", on_busy=on_busy, wait=60)(lambda: "ran")
    lease = hold.lock("job").acquire(wait=0)
    assert lease
    with elsewhere(job) as result:
        until(lambda: look(spy, "job").queue, "it waits")
        lease.release()
        assert result() == "ran"


def test_a_wait_that_is_over() -> None:
    """When it is over: ``wait`` and ``raise`` raise, ``skip`` returns SKIPPED."""
    with leasehold.connect("memory://locked-wait", wait=0.01) as hold, hold.lock("job"):
        ways = [
            hold.locked("job", on_busy="wait"),
            hold.locked("job", on_busy="wait", wait=0),
            hold.locked("job", wait=0.01),
        ]
        for way in ways:
            with pytest.raises(NotAcquired):
                way(never)()
        assert hold.locked("job", on_busy="skip", wait=0.01)(never)() is SKIPPED


def test_a_refusal_inside_the_body_is_the_bodys(hold: leasehold.Leasehold) -> None:
    """``skip`` swallows only the refusal of its own lock."""

    @hold.locked("job", on_busy="skip")
    def job() -> None:
        with hold.lock("other", wait=0):
            pytest.fail("it is held")

    with hold.lock("other"), pytest.raises(NotAcquired, match="other"):
        job()
    assert not hold.lock("job").locked()


def test_a_store_out_of_reach_is_no_skip(scene: Scene) -> None:
    """That nobody answered does not mean that somebody else is at it."""
    spy, hold = scene

    def cut(op: object) -> None:
        raise StoreUnavailable("cut")

    spy.before = cut
    with pytest.raises(StoreUnavailable):
        hold.locked("job", on_busy="skip")(never)()


@pytest.mark.parametrize("on_busy", ["", "SKIP", "ignore", None, 0, ["skip"]])
def test_another_way_of_being_busy_is_refused(hold: Any, on_busy: object) -> None:
    """The error lists the three that there are."""
    with pytest.raises(InvalidRequest, match='"raise", "skip" or "wait"'):
        hold.locked("job", on_busy=on_busy)


# ---------------------------------------------------------------- the body holds


def test_the_body_holds_and_gives_back(scene: Scene) -> None:
    """The calling thread owns the lock while the function runs, and nobody afterwards, error or not."""
    spy, hold = scene

    @hold.locked("job", "{site}")
    def job(site: str) -> str:
        assert hold.lock("job", site).owned()
        assert in_thread(hold.lock("job", site).try_acquire) is None
        if site == "bad":
            raise KeyError(site)
        return site

    assert job("nl") == "nl"
    with pytest.raises(KeyError):
        job("bad")
    assert nothing_left(spy, "job:nl") and nothing_left(spy, "job:bad")


def test_recursion_needs_reentrant(scene: Scene) -> None:
    """A function that calls itself is busy with itself, unless it says ``reentrant=True``; then it claims once."""
    spy, hold = scene

    def count(call: Callable[[int], int], n: int) -> int:
        return n and 1 + call(n - 1)

    @hold.locked("job", reentrant=True)
    def deep(n: int) -> int:
        return count(deep, n)

    @hold.locked("job")
    def flat(n: int) -> int:
        return count(flat, n)

    assert deep(3) == 3
    assert claimed(spy) == ["job"]
    with pytest.raises(NotAcquired):
        flat(1)
    assert nothing_left(spy, "job")


def test_loss_comes_out_of_the_call(scene: Scene) -> None:
    """As out of a ``with`` body: LeaseLost in place of the result; the body's own error stays, with the loss beside."""
    spy, hold = scene

    @hold.locked("job", ttl=30)
    def job(error: Exception | None = None) -> str:
        evict(spy, hold, "job")
        if error:
            raise error
        return "done"

    with pytest.raises(LeaseLost) as lost:
        job()
    assert lost.value.reason == "evicted"
    with pytest.raises(KeyError) as own:
        job(KeyError("mine"))
    assert isinstance(own.value.__context__, LeaseLost)


def test_every_option_of_lock_is_taken(hold: leasehold.Leasehold) -> None:
    """``locked`` knows the keywords of ``lock``, all of them, and hands them on."""
    parameters = inspect.signature(leasehold.Leasehold.lock).parameters.values()
    assert set(LockOptions.__annotations__) == {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}

    @hold.locked(
        "job", ttl="9s", wait=1, renew=False, max_hold=60, max_idle=50, at_least="1s", reentrant=False,
        meta={"by": "test"}, lease_as="lease",
    )  # fmt: skip
    def job(*, lease: leasehold.Lease) -> None:
        assert lease.ttl == 9 and lease.meta == {"by": "test"}

    job()
    assert hold.lock("job").try_acquire() is None  # at_least keeps the door shut


@pytest.mark.parametrize(
    ("kind", "options"),
    [("", {}), (None, {}), ("j{site}", {}), ("job", {"ttl": 0}), ("job", {"wait": -1}), ("job", {"meta": 3})],
)
def test_wrong_options_are_refused_where_they_are_written(hold: Any, kind: Any, options: dict[str, Any]) -> None:
    """At ``hold.locked(...)``, before there is a function."""
    with pytest.raises(InvalidRequest):
        hold.locked(kind, "{site}", **options)


def test_an_option_that_lock_lacks_is_a_type_error(hold: Any) -> None:
    """As for any function."""
    with pytest.raises(TypeError, match="tll"):
        hold.locked("job", tll=3)


def test_a_long_ttl_warns_once_where_it_is_written(hold: Any) -> None:
    """At decoration, with the line of the program; calls are silent."""
    with pytest.warns(UserWarning, match="over 1 h") as warned:
        job = hold.locked("job", ttl="2h")(lambda: 1)
    assert [one.filename for one in warned] == [__file__]
    assert job() == 1


# ---------------------------------------------------------------- the lease


def test_the_lease_is_handed_over(hold: leasehold.Leasehold) -> None:
    """``lease_as`` names the parameter; callers neither give it nor see it."""

    @hold.locked("job", "{site}", lease_as="lease")
    def job(site: str, *, lease: leasehold.Lease, page: int = 1) -> int | None:
        """Works."""
        assert (lease.resource, lease.state) == (f"job:{site}", "held")
        return lease.fence

    first, second = job("nl"), job(site="nl", page=2)
    assert first and second and first < second
    assert str(inspect.signature(job)) == "(site: 'str', *, page: 'int' = 1) -> 'int | None'"
    assert "lease" not in job.__annotations__ and job.__doc__ == "Works."
    with pytest.raises(TypeError, match="'lease' from its lock"):
        job("nl", lease=None)
    with pytest.raises(TypeError, match=r"job\(\): too many positional"):
        job("nl", None)


def test_the_lease_beside_any_keywords(hold: leasehold.Leasehold) -> None:
    """``**kwargs`` does not let callers smuggle one in."""

    @hold.locked("job", lease_as="lease")
    def job(*, lease: leasehold.Lease, **more: object) -> object:
        return more

    assert job(a=1) == {"a": 1}
    with pytest.raises(TypeError, match="from its lock"):
        job(lease=1)
    with pytest.raises(InvalidRequest, match="no parameter"):
        hold.locked("job", "{lease}", lease_as="lease")(inspect.unwrap(job))


@pytest.mark.parametrize("lease_as", ["other", "", 3, ["lease"]])
def test_a_lease_that_nobody_takes_is_refused(hold: Any, lease_as: Any) -> None:
    """The function must have that parameter."""

    def job(*, lease: object) -> None: ...

    with pytest.raises(InvalidRequest, match="lease_as"):
        hold.locked("job", lease_as=lease_as)(job)


def test_the_lease_is_keyword_only(hold: Any) -> None:
    """A parameter that a positional argument could hit by accident is refused."""
    for job in (lambda lease: None, lambda lease, /: None, lambda *lease: None, lambda **lease: None):
        with pytest.raises(InvalidRequest, match="keyword-only"):
            hold.locked("job", lease_as="lease")(job)


# ---------------------------------------------------------------- what is decorated


class Site:
    """A class as people write them; ``dress`` decorates its methods."""

    def __init__(self, name: str) -> None:
        self.id = name

    @classmethod
    def dress(cls, hold: leasehold.Leasehold) -> type[Any]:
        """A subclass with decorated methods, in the natural order of the decorators."""

        class Dressed(cls):  # type: ignore[valid-type,misc] # a class made in a test
            @hold.locked("job", "{self.id}")
            def rebuild(self, pages: int = 1) -> str:
                """Rebuild."""
                return f"{self.id}{pages}"

            @staticmethod
            @hold.locked("job", "{pages}")
            def sweep(pages: int) -> int:
                return pages

            @classmethod
            @hold.locked("job", "{cls.__name__}")
            def count(cls) -> str:
                return cls.__name__

        return Dressed


def test_methods(scene: Scene) -> None:
    """Methods, static methods and class methods, through the instance and through the class."""
    spy, hold = scene
    dressed = Site.dress(hold)
    assert dressed("nl").rebuild(2) == "nl2" and dressed.rebuild(dressed("be")) == "be1"
    assert dressed.sweep(3) == dressed("nl").sweep(3) == 3
    assert dressed.count() == dressed("nl").count() == "Dressed"
    assert claimed(spy) == ["job:nl", "job:be", "job:3", "job:3", "job:Dressed", "job:Dressed"]


def test_it_looks_like_the_function(hold: Any) -> None:
    """Name, document, module, signature and ``__wrapped__``, for functions and methods."""

    def job(site: str, page: int = 1) -> None:
        """Works."""

    dressed = hold.locked("job", "{site}")(job)
    assert (dressed.__name__, dressed.__doc__, dressed.__module__) == ("job", "Works.", __name__)
    assert dressed.__wrapped__ is job and dressed.__qualname__ == job.__qualname__
    assert inspect.signature(dressed) == inspect.signature(job)
    assert list(inspect.signature(Site.dress(hold)("nl").rebuild).parameters) == ["pages"]


def test_a_partial(scene: Scene) -> None:
    """Works as the function that it stands for: what it binds by name is there, what it binds by place is gone."""
    spy, hold = scene

    def job(site: str, page: int) -> tuple[str, int]:
        """Works."""
        return site, page

    dressed = hold.locked("job", "{site}", "{page}")(partial(job, site="nl"))
    assert dressed(page=2) == ("nl", 2) and dressed.__name__ == "job" and dressed.__doc__ == "Works."
    assert hold.locked("job", "{page}")(partial(job, "nl"))(3) == ("nl", 3)
    assert claimed(spy) == ["job:nl:2", "job:3"]
    with pytest.raises(InvalidRequest, match="no parameter"):
        hold.locked("job", "{site}")(partial(job, "nl"))


def test_other_decorators_beside_it(hold: leasehold.Leasehold) -> None:
    """What keeps the signature keeps the fields; a cache below it is asked under the lock."""

    @hold.locked("job", "{site}", lease_as="lease")
    @hold.locked("outer", "{page}")
    def job(site: str, page: int, *, lease: leasehold.Lease) -> str:
        return lease.resource

    assert job("nl", 1) == "job:nl"
    assert hold.locked("job", "{site}")(lru_cache(lambda site: site))("nl") == "nl"
    assert hold.locked("job")(len)([1]) == 1


def test_wrong_arguments_are_a_type_error(scene: Scene) -> None:
    """As Python says it, with the name of the function, and nothing is sent."""
    spy, hold = scene

    def job(site: str) -> None: ...

    dressed: Any = hold.locked("job", "{site}")(job)
    for args in [(), ("nl", 2)]:
        with pytest.raises(TypeError, match=r"job\(\): "):
            dressed(*args)
    assert not spy.ops


async def coroutine_function() -> None:
    """Awaited."""


def function() -> None:
    """Called."""


def generator() -> Iterator[int]:
    """Iterated."""
    yield 1


async def async_generator() -> AsyncIterator[int]:
    """Iterated on a loop."""
    yield 1


def disguise() -> Any:
    """A coroutine function that looks plain."""
    return coroutine_function()


class Called:
    """An instance that can be called."""

    def __call__(self) -> None:
        """Nothing."""


NOT_FUNCTIONS = [Called(), Called, staticmethod(never), classmethod(ascii_or_type), property(ascii_or_type), 3, None]


@pytest.mark.parametrize("thing", NOT_FUNCTIONS, ids=lambda thing: type(thing).__name__)
def test_only_functions_are_decorated(hold: Any, thing: object) -> None:
    """For anything else the error says where the decorator stands."""
    with pytest.raises(InvalidRequest, match="directly above the def"):
        hold.locked("job")(thing)


@each("thing", [generator, async_generator, partial(generator)])
@each("connect", [leasehold.connect, leasehold.aio.connect])
def test_generators_are_refused(connect: Any, thing: object) -> None:
    """A call of one only makes the generator: its body would run without the lock."""
    with pytest.raises(InvalidRequest, match="take the lock inside"):
        connect("memory://locked").locked("job")(thing)


@pytest.mark.parametrize("thing", [coroutine_function, partial(coroutine_function)])
def test_a_coroutine_function_needs_asyncio(hold: Any, thing: object) -> None:
    """Threads would give the lock back before the coroutine begins."""
    with pytest.raises(InvalidRequest, match=r"leasehold\.aio"):
        hold.locked("job")(thing)


@pytest.mark.parametrize("thing", [function, partial(function), len, disguise])
async def test_a_function_needs_threads(aio_scene: AioScene, thing: Any) -> None:
    """And asyncio would block its loop."""
    with pytest.raises(InvalidRequest, match="async def"):
        aio_scene[1].locked("job")(thing)


def test_a_coroutine_in_disguise_is_refused_at_the_call(scene: Scene) -> None:
    """A plain function that returns a coroutine: its work would begin after the lock is given back."""
    spy, hold = scene
    with pytest.raises(InvalidRequest, match="returned a coroutine"):
        hold.locked("job")(disguise)()
    assert nothing_left(spy, "job")


def test_without_parentheses_is_refused(hold: Any) -> None:
    """``@hold.locked`` alone takes the function for the kind, and says so."""
    with pytest.raises(InvalidRequest, match="kind must be str"):
        hold.locked(function)


def test_the_parameters_of_a_builtin_may_be_unknown(hold: Any) -> None:
    """Without them there are no fields."""
    with pytest.raises(InvalidRequest, match="wrap it in a def"):
        hold.locked("job", "{x}")(max)
    assert hold.locked("job")(max)(1, 2) == 2


# ---------------------------------------------------------------- asyncio


async def test_asyncio_the_same_awaited(aio_scene: AioScene) -> None:
    """Fields, the lease, skipping and raising; the wrapper is a coroutine function."""
    spy, hold = aio_scene

    @hold.locked("job", "{site}", on_busy="skip", lease_as="lease")
    async def job(site: str, *, lease: leasehold.AsyncLease) -> str:
        assert hold.lock("job", site).owned()
        assert (await job(site)) is SKIPPED
        with pytest.raises(NotAcquired):
            await hold.locked("job", site)(coroutine_function)()
        return lease.resource

    assert inspect.iscoroutinefunction(job)
    assert await job("nl") == "job:nl"
    assert nothing_left(spy, "job:nl")


async def test_asyncio_a_refusal_inside_the_body_is_the_bodys(aio_scene: AioScene) -> None:
    """``skip`` swallows only the refusal of its own lock; a partial of a coroutine function is one."""
    spy, hold = aio_scene

    async def job(kind: str) -> None:
        async with hold.lock(kind, wait=0):
            pytest.fail("it is held")

    async with hold.lock("other"):
        with pytest.raises(NotAcquired, match="other"):
            await hold.locked("job", "{kind}", on_busy="skip")(partial(job, kind="other"))()
    assert claimed(spy) == ["other", "job:other", "other"]
    assert nothing_left(spy, "job:other")


async def test_asyncio_waits_in_line(aio_scene: AioScene) -> None:
    """``wait`` runs one call after the other, in the order of arrival."""
    _, hold = aio_scene
    order: list[int] = []

    @hold.locked("job", on_busy="wait")
    async def job(n: int) -> None:
        order.append(n)
        await asyncio.sleep(0)
        order.append(n)

    await asyncio.wait_for(asyncio.gather(*[job(n) for n in range(5)]), PATIENCE)
    assert order == [n for n in range(5) for _ in range(2)]


async def test_asyncio_loss_cancels_the_call(aio_scene: AioScene) -> None:
    """The body is cancelled where it stands, and the call raises LeaseLost; its task is not cancelled."""
    spy, hold = aio_scene
    began, seen = asyncio.Event(), []

    @hold.locked("job", ttl=30, reentrant=True)
    async def job() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(job())
    await began.wait()
    evict(spy, hold, "job")
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(task, PATIENCE)
    assert seen == ["cancelled"] and not task.cancelled()


async def test_asyncio_cancelling_a_caller_in_line(aio_scene: AioScene) -> None:
    """A caller that is cancelled while it waits leaves nothing behind, and is not skipped."""
    spy, hold = aio_scene
    job = hold.locked("job", on_busy="skip", wait=3600)(coroutine_function)
    async with hold.lock("job"):
        task = asyncio.create_task(job())
        await until_async(lambda: look(spy, "job").queue, "it waits")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until_async(lambda: nothing_left(spy, "job"), "it left the queue")


async def test_asyncio_methods_and_recursion(aio_scene: AioScene) -> None:
    """Methods of both kinds, and a call inside a call."""
    spy, hold = aio_scene

    class Tree:
        id = 9

        @hold.locked("job", "{self.id}", reentrant=True)
        async def depth(self, n: int) -> int:
            return n and 1 + await self.depth(n - 1)

        @classmethod
        @hold.locked("job", "{cls.id}")
        async def of(cls) -> int:
            return cls.id

    assert await Tree().depth(3) == 3
    assert await Tree.of() == 9
    assert claimed(spy) == ["job:9", "job:9"]


# ---------------------------------------------------------------- many callers


@pytest.mark.parametrize("kind", STORES)
def test_one_of_many_threads_runs(kind: str, tmp_path: Path) -> None:
    """Of threads that call at the same time exactly one runs and the others are skipped."""
    store, start, done = open_store(kind, tmp_path), threading.Barrier(4), threading.Event()
    with leasehold.connect(store) as hold:

        @hold.locked("job", "{site}", on_busy="skip")
        def job(site: str) -> str:
            assert done.wait(PATIENCE)
            return site

        results: list[object] = []

        def call() -> None:
            start.wait(PATIENCE)
            results.append(job("nl"))
            if len(results) == 3:  # all but the one that runs
                done.set()

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(map(str, results)) == ["SKIPPED", "SKIPPED", "SKIPPED", "nl"]
        assert job("nl") == "nl"


@pytest.mark.parametrize("kind", STORES)
async def test_one_of_many_tasks_runs(kind: str, tmp_path: Path) -> None:
    """The same for tasks, and those that wait run one after the other."""
    async with leasehold.aio.connect(open_store(kind, tmp_path)) as hold:
        inside = 0

        @hold.locked("job", "{site}", on_busy="wait")
        async def job(site: str) -> int:
            nonlocal inside
            inside += 1
            await asyncio.sleep(0.001)
            inside -= 1
            return inside

        assert await asyncio.wait_for(asyncio.gather(*[job("nl") for _ in range(8)]), PATIENCE) == [0] * 8
