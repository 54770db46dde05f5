"""``leasehold top``: what is held, on a whole screen that is kept up to date; with keys to look closer and to act.

``overview`` computes what is shown and ``actions`` does what operators ask for, both without a screen; ``screen`` and
``dialogs`` are the screen, made with textual, which comes with ``leasehold[top]``.
"""

from __future__ import annotations

import sys

from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.listing import check_pattern, pause_of
from leasehold.cli.output import CommandEnded, ExitCode
from leasehold.errors import LeaseholdError


def top(
    url: str | None, namespace: str | None, as_json: bool, pattern: str, order: str, every: str, everything: bool
) -> None:
    """Show it until the user quits."""
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        text = "top needs a terminal, for programs there is: leasehold ls --watch --json"
        raise CommandEnded(ExitCode.USAGE, "failed", text)
    try:
        pause = pause_of(every, "--every")
        from leasehold.cli.top.screen import Top
    except LeaseholdError as error:
        raise failed(error) from error
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("textual", "rich"):
            raise
        text = "top needs textual. Please type:  pip install 'leasehold[top]'"
        raise CommandEnded(ExitCode.CONFIG, "failed", text) from error
    with open_hold(url, namespace) as hold:
        check_pattern(hold, pattern)
        screen = Top(hold, place_of(hold, url), pattern, order, pause, everything)
        screen.run()
    if screen.return_code:
        raise CommandEnded(screen.return_code)
    if screen.trouble is not None:
        raise failed(screen.trouble)
