"""``leasehold leaks``: keys that never end, of any library. The exit code tells a cron whether there are any."""

from __future__ import annotations

import json

from leasehold._core.names import check_pattern
from leasehold.cli.coordinator import failed, open_hold, place_of
from leasehold.cli.output import CommandEnded, ExitCode, printable
from leasehold.cli.terminal import echo, warn
from leasehold.errors import LeaseholdError


def leaks(url: str | None, namespace: str | None, as_json: bool, pattern: str) -> None:
    """Print the keys that match and have no TTL; the exit code is 1 when there are any."""
    try:
        check_pattern(pattern)
        with open_hold(url, namespace) as hold:
            store = hold._engine.store
            where, possible = printable(place_of(hold, url)), store.capabilities.keyspace
            hold.ping()  # a wrong URL must fail, also where nothing is searched
            keys = hold.leaks(pattern) if possible else []
    except LeaseholdError as error:
        raise failed(error) from error
    if as_json:
        echo(json.dumps(keys, indent=2))
    elif not possible:
        echo(f"{where} has no keys of other programs, and gives everything an end: nothing can leak there.")
    elif keys:
        for key in keys:
            echo(printable(key))
        have = "1 key has" if len(keys) == 1 else f"{len(keys)} keys have"
        warn(f"{have} no TTL in {where}")  # not among the keys, which another command may read
    else:
        echo(f"No key that matches {printable(pattern)} lacks a TTL in {where}.")
    if keys:
        raise CommandEnded(ExitCode.NO)
