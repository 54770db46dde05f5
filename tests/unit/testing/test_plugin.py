"""The pytest plugin as its users meet it: in a run of its own, with and without other plugins."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import leasehold
from leasehold.testing import clock, plugin

ROOT = Path(__file__).parents[3]
NAME = "leasehold.testing.plugin"
# The run outside has imported the plugin already, which harms nobody.
STRICT = ("-W", "error", "-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
ASYNCIO = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function")
ANYIO = ("-p", "anyio.pytest_plugin")


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run loads what its test names, whatever is installed here."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def run(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    """The outcome of a file of tests, in this process, where warnings are errors."""
    pytester.makepyfile(code)
    return pytester.runpytest_inprocess("-p", NAME, *STRICT, "-p", "no:cacheprovider", *arguments)


def test_the_entry_point() -> None:
    """pytest finds the plugin under the name ``leasehold``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"leasehold": NAME}
    assert plugin.__name__ == NAME


def test_loading_it_is_cheap() -> None:
    """It is loaded in every run of pytest: no store, no asyncio and no helper before a fixture is used."""
    code = f"""
import pytest, sys
before = set(sys.modules)
import {NAME}
loaded = set(sys.modules) - before
print(sorted(name for name in loaded if "leasehold.stores" in name or "asyncio" in name or "sqlite" in name))
print(sorted(name for name in loaded if name.startswith("leasehold.testing")))
"""
    source = str(Path(leasehold.__file__).parents[1])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{code}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == ["[]", f"['leasehold.testing', '{NAME}']"]


def test_the_fixtures_are_listed(pytester: pytest.Pytester) -> None:
    """``pytest --fixtures`` tells what each is for."""
    result = run(pytester, "", "--fixtures")
    for name in ("hold", "async_hold", "connect_leasehold", "connect_async_leasehold", "leasehold_clock",
                 "leasehold_store", "leasehold_url"):  # fmt: skip
        assert any(line.startswith(f"{name} -- ") for line in result.outlines), name
    assert "no docstring available" not in result.stdout.str()


def test_each_test_has_a_store_of_its_own(pytester: pytest.Pytester) -> None:
    """What one test leaves behind, held and frozen, the next does not see; its threads are gone."""
    result = run(
        pytester,
        """
        import threading
        import pytest
        from leasehold.testing import freeze

        kept = []

        @pytest.mark.parametrize("number", range(3))
        def test_alone(hold, connect_leasehold, leasehold_clock, number):
            assert [lease.state for lease in kept] == ["lost"] * number
            assert not [one for one in threading.enumerate() if one.name == "leasehold-watchdog"]
            kept.append(hold.lock("job").try_acquire())
            freeze(kept[-1])
            assert leasehold_clock.now() == 1000
            leasehold_clock.advance("1s")
        """,
    )
    result.assert_outcomes(passed=3)


SYNC_AND_ASYNC = """
    import asyncio
    import pytest
    import leasehold
    from leasehold.testing import expire

    def test_sync(hold):
        with pytest.raises(leasehold.LeaseLost), hold.lock("job") as lease:
            expire(lease)

    async def body(hold):
        with pytest.raises(leasehold.LeaseLost):
            async with hold.lock("job") as lease:
                expire(lease)
                await asyncio.sleep(60)
        return await hold.lock("job").acquire()
"""


def test_without_an_asyncio_plugin(pytester: pytest.Pytester) -> None:
    """The fixtures need none: the coordinator is made and closed without a loop."""
    code = f"""{SYNC_AND_ASYNC}
    def test_async(async_hold):
        assert asyncio.run(body(async_hold)).state == "held"
    """
    run(pytester, code).assert_outcomes(passed=2)


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_with_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    """In both of its modes."""
    code = f"""{SYNC_AND_ASYNC}
    @pytest.mark.asyncio
    async def test_async(async_hold):
        assert (await body(async_hold)).state == "held"
    """
    run(pytester, code, *ASYNCIO, "--asyncio-mode", mode).assert_outcomes(passed=2)


def test_with_anyio(pytester: pytest.Pytester) -> None:
    """On its asyncio backend, also where the test itself waits for a lock."""
    code = f"""{SYNC_AND_ASYNC}
    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    @pytest.mark.anyio
    async def test_async(async_hold, hold):
        assert (await body(async_hold)).state == "held"
        other = hold.lock("other").acquire()
        assert other and await async_hold.lock("other").acquire(wait="5s") is None
    """
    run(pytester, code, *ANYIO).assert_outcomes(passed=2)


def test_code_that_connects_by_itself(pytester: pytest.Pytester) -> None:
    """``leasehold_url`` leads ``connect()``, of either flavour, to the test's own store and clock."""
    result = run(
        pytester,
        """
        import asyncio, os
        import pytest
        import leasehold

        def application():
            with leasehold.connect() as hold, hold.lock("job", wait="5s"):
                return "done"

        async def async_application():
            async with leasehold.aio.connect() as hold, hold.lock("job", wait="5s"):
                return "done"

        def test_meets_the_fixtures(leasehold_url, hold, leasehold_clock):
            assert os.environ["LEASEHOLD_URL"] == leasehold_url
            with hold.lock("job"):
                for attempt in (application, lambda: asyncio.run(async_application())):
                    with pytest.raises(leasehold.NotAcquired):
                        attempt()
            assert leasehold_clock.now() > 1009
            assert application() == asyncio.run(async_application()) == "done"

        def test_is_closed_at_the_end(leasehold_url):
            global left, url
            left, url = leasehold.connect().lock("job").acquire(), leasehold_url

        def test_afterwards():
            assert "LEASEHOLD_URL" not in os.environ and left.state == "lost"
            assert not hasattr(leasehold.connect(url)._engine.store, "away")
        """,
    )
    result.assert_outcomes(passed=3)


def test_a_fixture_of_the_users_wins(pytester: pytest.Pytester) -> None:
    """Who has a fixture called ``hold`` keeps it."""
    result = run(
        pytester,
        """
        import pytest

        @pytest.fixture
        def hold():
            return "mine"

        def test_mine(hold, async_hold):
            assert hold == "mine" and async_hold.lock("job")
        """,
    )
    result.assert_outcomes(passed=1)


def test_a_test_that_hangs_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for oneself ends with a reason, not with the patience of whoever looks at the build."""
    monkeypatch.setattr(clock, "PATIENCE", 0.1)
    code = """
        def test_hangs(hold):
            lease = hold.lock("job").acquire()
            hold.lock("job").acquire()
    """
    result = run(pytester, code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: a lock was waited for*"])
