"""The commands and their options. What a command does is imported when it is called: the others start faster."""

from __future__ import annotations

import click

from leasehold import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Leases with fencing tokens: distributed coordination that is honest about what a lock is."""


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON, one in a line, and nothing else.")
@click.option("--no-color", is_flag=True, help="No colours. NO_COLOR in the environment does the same.")
def demo(as_json: bool, no_color: bool) -> None:
    """See in a few seconds what a stale owner is, and how a guard stops it.

    Two real processes want to write one report. The one that holds the lease is frozen until the lease has ended,
    and then wakes up and writes: first without a guard, then with one. Everything happens in a temporary folder.
    """
    from leasehold.cli.demo import run
    from leasehold.cli.demo_screen import JsonLines, Timeline

    raise SystemExit(run(JsonLines() if as_json else Timeline(plain=no_color)))
