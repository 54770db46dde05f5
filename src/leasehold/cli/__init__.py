"""The command line: ``leasehold`` and ``python -m leasehold``.

The library needs nothing but Python; the command line needs click, which comes with ``leasehold[cli]``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

CONFIG = 78  # sysexits.h: something about the installation is not as it must be


def main() -> None:
    """Run the command line, or say what is missing to run it."""
    try:
        from leasehold.cli.commands import commands
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print("leasehold: the command line needs click. Please type:  pip install 'leasehold[cli]'", file=sys.stderr)
        raise SystemExit(CONFIG) from None
    commands(prog_name="leasehold")
