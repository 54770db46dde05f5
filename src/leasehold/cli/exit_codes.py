"""Exit codes: the command's own, or one of these. Those from 64 on are of sysexits.h, 126 and 127 of the shells."""

from __future__ import annotations

USAGE = 2
UNAVAILABLE = 69  # the store cannot be reached
BUSY = 75  # somebody else holds it: try again later
LOST = 76  # the lease ended before the command did
CONFIG = 78  # a bad URL, a missing extra
NOT_EXECUTABLE = 126
NOT_FOUND = 127


def of_signal(number: int) -> int:
    """As shells tell that a signal ended a process."""
    return 128 + number


class CommandEnded(Exception):
    """This command ends now, with an exit code and something to say, or nothing. The fields are for programs."""

    def __init__(self, code: int, event: str = "", text: str = "", **fields: object) -> None:
        super().__init__(text)
        self.code = code
        self.event = event
        self.fields = fields
