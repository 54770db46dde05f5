"""Tests that failed once are repeated where servers take part, and the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.repeats import MOST

pytestmark = pytest.mark.slow  # a run of pytest in each

CONFTEST = """
from pathlib import Path
from tests.support.repeats import Repeats

def pytest_configure(config):
    config.pluginmanager.register(Repeats(Path(__file__).parent))
"""
FAILS_ONCE = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({count}))
def test_that_fails_once(number, request):
    seen = Path(__file__).with_name(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        assert not "it was the first time"
"""


def run(pytester: pytest.Pytester, folder: str, count: int = 1) -> pytest.RunResult:
    """A run over one folder, with so many tests that fail when they run for the first time."""
    pytester.makeconftest(CONFTEST)
    pytester.mkdir(folder).joinpath("test_once.py").write_text(FAILS_ONCE.format(count=count))
    root = str(Path(__file__).parents[3])
    return pytester.runpytest_subprocess("-p", "no:valkey", "-p", "no:randomly", "-o", f"pythonpath={root}", folder)


def test_one_that_fails_once_passes_and_is_shown(pytester: pytest.Pytester) -> None:
    """Its first failure is printed whole."""
    result = run(pytester, "integration")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*failed at first, and were repeated*", "*it was the first time*", "*1 rerun*"])


def test_more_than_a_few_fail_the_run(pytester: pytest.Pytester) -> None:
    """All of them pass when they are repeated, and still something is wrong."""
    result = run(pytester, "processes", MOST + 1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"more than {MOST} tests failed at first: the run fails"])


def test_what_needs_no_server_is_not_repeated(pytester: pytest.Pytester) -> None:
    """A unit test that fails once fails."""
    run(pytester, "unit").assert_outcomes(failed=1)
