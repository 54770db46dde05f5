"""Places: where Python could deliver a signal inside Leasehold, found by tracing, so that a test can raise at each one.

CPython looks for signals when a function begins, when a call into C has returned, and when a loop goes round. Between
two such places nothing can be interrupted, so an exception that a tracer raises there (at the exit of a ``with``, say,
before the lock is released) is one that no program ever sees. Every line that calls anything has a place of its own.
"""

from __future__ import annotations

import dis
import gc
import inspect
import sys
from collections.abc import Callable, Set
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import leasehold

SOURCES = str(Path(leasehold.__file__).parent)
LOOKS = {  # instructions at whose end CPython looks for signals; a call of a function in Python only begins that
    name for name in dis.opmap if name.startswith("CALL") or ("JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name)
}
AWAIT = 2  # in the argument of RESUME: from here on a coroutine goes on after an await, and CPython does not look
GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


Line = tuple[str, int]


class Places:
    """Traces the calling thread inside the sources of Leasehold, and acts at the ``nth`` place; at none for 0. Places
    on lines that are ``known`` do not count."""

    def __init__(self, nth: int = 0, act: Callable[[], None] = interrupt, known: Set[Line] = frozenset()) -> None:
        self.count = 0
        self.where = ""  # it acted there
        self.lines: set[Line] = set()  # those of all places that count
        self._nth = nth
        self._act = act
        self._known = known
        self._last: dict[FrameType, str] = {}  # the instruction that a frame executed last

    def __enter__(self) -> Self:
        gc.disable()  # what is collected in between is no part of it
        sys.settrace(self._begin)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        gc.enable()
        self._last.clear()  # frames keep leases alive

    def _begin(self, frame: FrameType, _event: str, _: Any) -> Any:
        caller = frame.f_back
        if caller in self._last and not _called_by_c(frame.f_code):
            self._last[caller] = ""
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._last[frame] = ""
        if frame.f_code.co_code[frame.f_lasti + 1] & 3 < AWAIT:
            self._place(frame)
        return self._trace

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if last in LOOKS:
                self._place(frame)
        elif event == "exception":  # a call that raises does not look
            self._last[frame] = ""
        elif event == "return":
            self._last.pop(frame, None)
        return self._trace

    def _place(self, frame: FrameType) -> None:
        line = (frame.f_code.co_filename, frame.f_lineno)
        if line in self._known:
            return
        self.count += 1
        self.lines.add(line)
        if self.count == self._nth:
            self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno} of {Path(line[0]).name}"
            sys.settrace(None)
            self._act()


def _called_by_c(code: CodeType) -> bool:
    """A generator is resumed by a method in C; ``__init__``, ``__enter__`` and their like are called by C as well."""
    return bool(code.co_flags & GENERATES) or code.co_name.startswith("__")
