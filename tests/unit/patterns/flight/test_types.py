"""How a type checker sees what is decorated. mypy reads this file in `make check`; here it only has to run."""

from __future__ import annotations

import asyncio
import inspect
from typing import assert_type

import pytest

import leasehold
from leasehold import AsyncLease, Lease
from leasehold.patterns import AsyncSingleFlight, AsyncSingleFlightFunction, SingleFlight, SingleFlightFunction


def test_threads_keep_parameters_and_result() -> None:
    """The function, forget, refresh and the call form know its parameters; a method its self."""
    with leasehold.connect("memory://types-flight") as hold:

        @hold.single_flight("page", "{key}", ttl="30s", fresh=60, stale=600)
        def page(key: str, size: int = 1) -> list[str]:
            return [key] * size

        @hold.single_flight("leased", "{key}", lease_as="lease")
        def leased(key: str, *, lease: Lease) -> int:
            return len(key)

        class Site:
            name = "nl"

            @hold.single_flight("site", "{self.name}")
            def title(self, size: int) -> str:
                return self.name * size

        assert_type(page("a", size=2), list[str])
        assert_type(page.refresh("a"), list[str])
        page.forget("a")
        assert_type(hold.single_flight("page", 1).call(len, "abc"), int)
        assert_type(leased("a"), int)
        assert_type(Site().title(2), str)
        wrong = [
            lambda: page(1),  # type: ignore[arg-type] # a number is no key
            lambda: page.forget("a", 1, 2),  # type: ignore[call-arg] # there is no third parameter
            lambda: Site().title("a"),  # type: ignore[arg-type] # text is no size
        ]
        assert len(wrong) == 3


def test_tasks_keep_parameters_and_result() -> None:
    """The same, awaited."""

    async def main() -> None:
        async with leasehold.aio.connect("memory://types-flight-tasks") as hold:

            @hold.single_flight("page", "{key}")
            async def page(key: str, size: int = 1) -> list[str]:
                return [key] * size

            @hold.single_flight("leased", "{key}", lease_as="lease")
            async def leased(key: str, *, lease: AsyncLease) -> int:
                return len(key)

            assert_type(await page("a", size=2), list[str])
            assert_type(await page.refresh("a"), list[str])
            await page.forget("a")
            assert_type(await leased("a"), int)
            assert_type(await hold.single_flight("page", 1).call(page, "a"), list[str])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("sync", "other"), [(SingleFlight, AsyncSingleFlight), (SingleFlightFunction, AsyncSingleFlightFunction)]
)
def test_both_flavours_take_the_same(sync: type, other: type) -> None:
    """The asyncio flavour has the same names with the same parameters."""
    names = {name for name in dir(sync) if name[0] != "_"}
    assert names == {name for name in dir(other) if name[0] != "_"} and len(names) in (2, 3)
    for name in ("__call__", *names):
        one, two = inspect.signature(getattr(sync, name)), inspect.signature(getattr(other, name))
        assert [(each.name, each.kind) for each in one.parameters.values()] == [
            (each.name, each.kind) for each in two.parameters.values()
        ]
