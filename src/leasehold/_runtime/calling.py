"""Where in the program we were called from: outside of this library, and of what enters context managers for people."""

from __future__ import annotations

import sys

from leasehold._core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

BETWEEN = ("leasehold", "contextlib")  # packages that are never the place


def calling_frame() -> FrameType | None:
    """The innermost frame of the user's own code; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame = frame.f_back
    return frame
