"""The command line: ``leasehold`` and ``python -m leasehold``.

The library needs nothing but Python, and so does a plain ``leasehold run``, which must start fast. The rest of the
command line needs click, which comes with ``leasehold[cli]``.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

COMPLETING = "_LEASEHOLD_COMPLETE"  # set by the shell when it wants completions of a line


def main() -> None:
    """Run the command line, or print what is missing to run it."""
    gc.disable()  # what is loaded now is no garbage, and collections would take a tenth of the start
    from leasehold.cli.arguments import quick

    request = None if COMPLETING in os.environ else quick(sys.argv[1:])
    if request is None:
        _with_click()
    else:
        from leasehold.cli.run import run

        raise SystemExit(run(request))


def _with_click() -> None:
    try:
        from leasehold.cli.commands import commands
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        raise SystemExit(_without_click(sys.argv[1:])) from None
    gc.enable()
    try:
        commands(prog_name="leasehold", complete_var=COMPLETING)
    except OSError as error:  # such as a full disk; click handles a closed pipe itself
        print(f"leasehold: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from error


def _without_click(words: list[str]) -> int:
    """Print what is missing; the exit code. ``leasehold run`` works without click: for it, print its usage error."""
    from leasehold.cli.arguments import Usage, parse
    from leasehold.cli.output import ExitCode

    text, code = "the command line needs click. Please type:  pip install 'leasehold[cli]'", ExitCode.CONFIG
    try:
        if not {"-h", "--help"} & set(words):
            parse(words)
    except Usage as error:
        text, code = str(error), ExitCode.USAGE
    print(f"leasehold: {text}", file=sys.stderr)
    return code
