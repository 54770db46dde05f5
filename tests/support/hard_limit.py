"""Ends a test process that no other limit can end, so that a run always comes to its end and names the test.

The limit of pytest-timeout is an alarm that raises in the main thread, once. It does not reach a test that uses the
alarm itself, a wait that swallows what is raised, or the fixtures of a test that has failed already. This one is a
thread of the interpreter that needs neither the alarm nor the GIL: it prints where every thread stands and ends the
process. pytest-xdist then reports the test as failed and goes on with the others in a new process.
"""

import faulthandler
import os
from collections.abc import Generator

import pytest

LONGEST = 300.0  # seconds; the ordinary limit, 180, has had its chance
LONGEST_IN_SOAK = 2_400.0  # `make soak` allows 1,800


class HardLimit:
    """A pytest plugin."""

    def __init__(self, soak: bool) -> None:
        """It writes where the process wrote its errors at the start: tests are captured."""
        self._longest = LONGEST_IN_SOAK if soak else LONGEST
        self._stderr = os.dup(2)

    def _start(self) -> None:
        faulthandler.dump_traceback_later(self._longest, exit=True, file=self._stderr)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """From before the first fixture until after the last."""
        self._start()
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """Pytest stops every clock when a test fails, for a debugger; what is left of the test has a limit too."""
        self._start()
