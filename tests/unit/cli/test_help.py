"""The help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from leasehold.cli.commands import commands
from tests.support.cli.typed import typed
from tests.support.tables import each

WIDTH = 80
CRONTAB = "in a crontab"


def paths(command: click.Command, *names: str) -> Iterator[tuple[str, ...]]:
    """The words that name a command, and those of all below it."""
    yield names
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from paths(one, *names, name)


@each("path", paths(commands))
def test_no_line_is_wider_than_a_terminal(path: tuple[str, ...]) -> None:
    """The help of every command fits 80 columns, its examples too."""
    shown = typed(*path, "--help", COLUMNS=str(WIDTH))
    assert (shown.code, [line for line in shown.out.splitlines() if len(line) > WIDTH]) == (0, [])


@each("path", paths(commands))
def test_an_example_for_a_crontab_names_the_store(path: tuple[str, ...]) -> None:
    """A crontab lacks the variables of the shell in which it is tried: without a URL the embedded store is used."""
    lines = typed(*path, "--help", COLUMNS=str(WIDTH)).out.splitlines()
    examples = [lines[place - 1] for place, line in enumerate(lines) if CRONTAB in line]
    assert all("--url" in example for example in examples), examples
