"""The command line: ``leasehold`` and ``python -m leasehold``.

The library needs nothing but Python, and so does a plain ``leasehold run``, which must start fast. The rest of the
command line needs click, which comes with ``leasehold[cli]``.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]

COMPLETING = "_LEASEHOLD_COMPLETE"  # set by the shell when it wants to know how a line goes on


def main() -> None:
    """Run the command line, or say what is missing to run it."""
    gc.disable()  # what is loaded now is no garbage: to look for it would take a tenth of the start
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
        from leasehold.cli.codes import CONFIG

        print("leasehold: the command line needs click. Please type:  pip install 'leasehold[cli]'", file=sys.stderr)
        raise SystemExit(CONFIG) from None
    gc.enable()
    commands(prog_name="leasehold", complete_var=COMPLETING)
