"""Set up, let the workers run under chaos, and print the result: ``python -m examples.report_exports --help``."""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import leasehold
from examples.report_exports import app, screen, servers
from examples.report_exports.chaos import Chaos, Crew
from examples.report_exports.judge import Verdict, verdict

WHAT = "Workers export reports, are frozen and killed, and a judge counts which of their late writes got through."
START = 30.0  # seconds until the first export


def arguments() -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(prog="python -m examples.report_exports", description=WHAT)
    parser.add_argument("--redis", metavar="URL", help="where leases live (default: a server of our own)")
    parser.add_argument("--postgres", metavar="DSN", help="where reports live (default: a server of our own)")
    parser.add_argument("--workers", metavar="N", type=int, default=8, help="how many (default: 8)")
    parser.add_argument("--seconds", metavar="N", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--no-guard", action="store_true", help="the same without a guard, to see the difference")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument("--seed", metavar="N", type=int, help="of the chaos (default: random)")
    options = parser.parse_args()
    if options.workers < 2 or not 0 < options.seconds <= 3600:
        parser.error("at least 2 workers, and at most an hour")
    options.seed = random.randrange(10**6) if options.seed is None else options.seed
    return options


@contextmanager
def database(dsn: str, name: str) -> Iterator[str]:
    """A new schema in that database, dropped afterwards. Yields the DSN that leads into it."""
    settings = f"{conninfo_to_dict(dsn).get('options', '')} -csearch_path={name}".strip()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield make_conninfo(dsn, options=settings)
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def run(options: argparse.Namespace, progress: screen.Progress) -> dict[str, Any]:
    """Run everything, and return the result."""
    name, reports = f"report_exports_{secrets.token_hex(4)}", max(options.workers // 2, 1)
    progress.show("servers and workers start ...")
    with ExitStack() as stack:
        redis = options.redis or stack.enter_context(servers.redis_server())
        dsn = stack.enter_context(database(options.postgres or stack.enter_context(servers.postgres_server()), name))
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        app.create(connection, reports)
        hold = stack.enter_context(leasehold.connect(redis, namespace=name))
        environment = {"LEASEHOLD_URL": redis, "LEASEHOLD_NAMESPACE": name, "DATABASE_URL": dsn}
        crew = stack.enter_context(Crew(options.workers, reports, options.seconds, not options.no_guard, environment))
        chaos = Chaos(crew, hold, reports, options.seed)
        await_work(crew, connection)
        chaos.run(options.seconds, lambda: progress.update(lambda: result(options, chaos, verdict(connection))))
        crew.stop()
        return result(options, chaos, verdict(connection))


def await_work(crew: Crew, connection: psycopg.Connection) -> None:
    """Wait for the first export: Python and drivers take a moment to load."""
    end = time.monotonic() + START
    while not verdict(connection).exports:
        crew.check()
        if time.monotonic() > end:
            raise RuntimeError(f"no export within {START:g} s")
        time.sleep(0.1)  # between two checks


def result(options: argparse.Namespace, chaos: Chaos, found: Verdict) -> dict[str, Any]:
    """The result as data."""
    how = {"workers": options.workers, "seconds": options.seconds, "seed": options.seed, "guard": not options.no_guard}
    return {**how, **found._asdict(), "frozen": chaos.frozen, "killed": chaos.killed, "clean": found.clean}


def main() -> int:
    """0; 1 when the guard let something through; 2 when there was nothing to judge."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress = screen.Progress()
    try:
        found = run(options, progress)
    except (servers.Missing, leasehold.LeaseholdError, psycopg.Error, RuntimeError) as error:
        progress.end()
        print(f"report_exports: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        progress.end()
        return 130
    progress.end()
    print(json.dumps(found) if options.json else screen.summary(found))
    return 0 if found["clean"] or options.no_guard else 1


if __name__ == "__main__":
    sys.exit(main())
