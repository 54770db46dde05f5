"""``python -m leasehold``: the command line, for when the ``leasehold`` script is not on the path."""

from __future__ import annotations

from leasehold.cli import main

if __name__ == "__main__":
    main()
