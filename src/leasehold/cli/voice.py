"""What ``leasehold run`` itself says: on standard error, for standard output is the command's. In words, or in JSON."""

from __future__ import annotations

import sys

from leasehold._core.light_typing import Any


class Voice:
    """One line for each event. People hear of what they should know; programs hear of everything."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        # Who waits is told who holds it: people on a terminal, and programs.
        self.tells_progress = as_json or (sys.stderr is not None and sys.stderr.isatty())

    def say(self, event: str, text: str, **fields: Any) -> None:
        """For people and programs."""
        if self._as_json:
            self.note(event, message=text, **fields)
        else:
            from leasehold.cli.printable import printable  # most runs say nothing

            _print(f"leasehold: {printable(text)}")

    def note(self, event: str, **fields: Any) -> None:
        """For programs only."""
        if self._as_json:
            import json

            _print(json.dumps({"event": event, **fields}))


def _print(line: str) -> None:
    """Nobody may be there to hear it any more; the command matters more."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(line + "\n")  # in one piece: the command writes there, too
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
