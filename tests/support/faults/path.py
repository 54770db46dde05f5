"""The path of a use through Leasehold: which functions are called until a request leaves.

Tests of faults compare it with the path of a use that nothing disturbs. So they show that the fault hit the code that
every user runs, and not another way to the same end.
"""

from __future__ import annotations

import socket
import sqlite3
import sys
from types import FrameType
from typing import Any, Self

from tests.support.faults.places import SOURCES

REQUEST = "a request leaves"
BY_TIME = (
    "Schedule._",  # whether a lease finds its file in the watchdog's schedule, or a new one is begun
    "AsyncRedisSocket._set_timer",  # whether the timer of an earlier request still runs, and serves this one too
    "AsyncRedisSocket._time_out",
)  # steps that depend on the time
SENT_BY = {("send", socket.socket), ("execute", sqlite3.Connection), ("execute", sqlite3.Cursor)}


class Path:
    """The functions that the calling thread calls."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def until_request(self, nth: int) -> list[str]:
        """The calls before that request, and the requests before it, without those that depend on the time."""
        requests = [place for place, step in enumerate(self.steps) if step == REQUEST]
        return [step for step in self.steps[: requests[nth - 1]] if not step.startswith(BY_TIME)]

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            if frame.f_code.co_filename.startswith(SOURCES):
                self.steps.append(frame.f_code.co_qualname)
        elif event == "c_call" and _sends(called):
            self.steps.append(REQUEST)


def _sends(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    return any(called.__name__ == name and isinstance(owner, kind) for name, kind in SENT_BY)
