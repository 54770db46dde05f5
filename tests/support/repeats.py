"""Repeats a test that failed, once, where servers and processes take part; and says so at the end of the run.

Hundreds of tests kill, freeze and cut off real servers on a machine that is busy with three other tests. Now and then a
server does what no test can wait for: an election that fails again and again, a node that forgets a slot. Such a test
passes when it is repeated, and a fault of ours does so rarely. The first failure is printed whole, because it may be
one that is rare. More than a few of them fail the run. What needs no server is never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

MOST = 3  # in one run
NEVER = "unit"  # the folder whose tests are not repeated


class Repeats:
    """A pytest plugin, on top of pytest-rerunfailures, for the tests in the folders below this one."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Each test of a folder with servers may run twice."""
        for item in items:
            if item.path.relative_to(self._root).parts[0] != NEVER:
                item.add_marker(pytest.mark.flaky(reruns=1))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """Too many of them are a failure. The reports of all processes arrive at the one that has a terminal."""
        result = yield
        if len(_failures(session.config)) > MOST:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Every first failure, as if it had been the last."""
        failures = _failures(config)
        if not failures:
            return
        terminalreporter.section("failed at first, and were repeated", yellow=True)
        for report in failures:
            terminalreporter.write_sep("_", report.head_line or report.nodeid, yellow=True)
            report.toterminal(terminalreporter._tw)
        if len(failures) > MOST:
            terminalreporter.write_line(f"more than {MOST} tests failed at first: the run fails", red=True)


def _failures(config: pytest.Config) -> list[Any]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    return [] if terminal is None else terminal.stats.get("rerun", [])
