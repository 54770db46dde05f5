"""How a type checker sees what is decorated. mypy reads this file in `make check`; here it only has to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_type

import leasehold
from leasehold import SKIPPED, AsyncLease, Lease, Skipped


def test_threads_keep_parameters_and_result() -> None:
    """``raise`` and ``wait`` change nothing; ``skip`` adds Skipped, which ``is SKIPPED`` takes away again."""
    with leasehold.connect("memory://types-threads") as hold:

        @hold.locked("job", "{site}", ttl="10s")
        def plain(site: str, force: bool = False) -> int:
            return len(site)

        @hold.locked("job", "{site}", on_busy="wait", wait=5, renew=False)
        def waits(site: str) -> int:
            return len(site)

        @hold.locked("job", 42, on_busy="skip")
        def skips(site: str) -> int:
            return len(site)

        assert_type(plain("nl"), int)
        assert_type(waits("nl"), int)
        result = assert_type(skips("nl"), int | Skipped)
        if result is not SKIPPED:
            assert_type(result, int)
            assert result == 2
        wrong: list[Callable[[], object]] = [
            lambda: plain(site=1),  # type: ignore[arg-type] # a number is no site
            lambda: plain("nl", True, 3),  # type: ignore[call-arg] # there is no third parameter
        ]
        assert len(wrong) == 2


def test_methods_keep_their_self() -> None:
    """A decorated method is called as any other, and so are static and class methods."""
    hold = leasehold.connect("memory://types-methods")

    class Site:
        name = "nl"

        @hold.locked("job", "{self.name}")
        def rebuild(self, pages: int) -> str:
            return self.name * pages

        @staticmethod
        @hold.locked("job")
        def sweep(pages: int) -> int:
            return pages

        @classmethod
        @hold.locked("job", "{cls.name}", on_busy="skip")
        def count(cls, pages: int) -> int:
            return pages

    assert_type(Site().rebuild(2), str)
    assert_type(Site.sweep(2), int)
    assert_type(Site.count(2), int | Skipped)
    hold.close()


def test_a_lease_that_is_handed_over() -> None:
    """The parameter of the lease is not the caller's: the others are not checked any more, the result is."""
    with leasehold.connect("memory://types-lease") as hold:

        @hold.locked("job", "{site}", lease_as="lease")
        def guarded(site: str, *, lease: Lease) -> int | None:
            return lease.fence

        @hold.locked("job", "{site}", lease_as="lease", on_busy="skip")
        def skips(site: str, *, lease: Lease) -> str:
            return lease.resource

        assert_type(guarded("nl"), int | None)
        assert_type(skips("nl"), str | Skipped)


async def test_coroutines_stay_coroutines() -> None:
    """The same, awaited; a plain function is refused by the type checker too."""
    async with leasehold.aio.connect("memory://types-asyncio") as hold:

        @hold.locked("job", "{site}")
        async def plain(site: str) -> int:
            return len(site)

        @hold.locked("job", "{site}", on_busy="skip")
        async def skips(site: str) -> int:
            return len(site)

        @hold.locked("job", "{site}", on_busy="skip", lease_as="lease")
        async def guarded(site: str, *, lease: AsyncLease) -> str:
            return lease.resource

        assert_type(await plain("nl"), int)
        assert_type(await skips("nl"), int | Skipped)
        assert_type(await guarded("nl"), str | Skipped)
        refused: Callable[[], object] = lambda: hold.locked("job")(len)  # type: ignore[arg-type]  # noqa: E731 - one line
        assert callable(refused)


def test_backoff_gives_what_the_function_gives() -> None:
    """``call`` returns the function's type, and ``acall`` what is awaited."""

    async def length() -> int:
        return 2

    retry = leasehold.Backoff()
    assert_type(retry.call(lambda: "done"), str)
    assert_type(asyncio.run(retry.acall(length)), int)
