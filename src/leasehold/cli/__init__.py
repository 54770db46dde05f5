"""The command line: ``leasehold`` and ``python -m leasehold``.

The library needs nothing but Python, and so does a plain ``leasehold run``, which must start fast. The rest of the
command line needs click, which comes with ``leasehold[cli]``.
"""

from __future__ import annotations

import gc
import os
import sys

from leasehold._core.light_typing import NoReturn

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

        _leave(run(request))


def _leave(code: int) -> NoReturn:
    """End the process. All is given back and closed: the interpreter need not take everything apart first, which
    takes milliseconds in which whoever waits for the command still waits."""
    if sys.stdout is not sys.__stdout__ or sys.stdout is None:  # a program has called us, and goes on
        raise SystemExit(code)
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # it was closed, by our parent or by the other end
            pass
    os._exit(code)


def _with_click() -> None:
    try:
        from leasehold.cli.commands import commands
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        raise SystemExit(_without_click(sys.argv[1:])) from None
    gc.enable()
    if hasattr(sys.stdout, "reconfigure"):  # a terminal without UTF-8 shows names of others as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
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
