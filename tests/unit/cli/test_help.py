"""The help of every command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from leasehold.cli.commands import commands
from tests.support.cli.typed import typed
from tests.support.tables import each

WIDTH = 80
CRONTAB = "in a crontab"
HOWTO = Path(__file__).parents[3] / "docs/howto"


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


def typed_there(page: str) -> Iterator[list[str]]:
    """The words behind ``leasehold`` of each command that a page says to type; a command or an option that is only
    named is none."""
    text = (HOWTO / page).read_text("utf-8")
    for line in [
        *re.findall(r"`leasehold ([^`\n]+)`", text),
        *re.findall(r"^leasehold (.+?)(?:  .*)?$", text, re.MULTILINE),
    ]:
        words = shlex.split(line)
        if len(words) > 2 or (len(words) == 2 and not words[1].startswith("-")):
            yield words


@each("page", ["runbook.md", "troubleshoot.md"])
def test_what_these_pages_say_to_type_can_be_typed(page: str) -> None:
    """At night nobody should have to find out which option is missing."""
    found = list(typed_there(page))
    assert found
    for name, *words in found:
        commands.commands[name].make_context(name, words, obj={})
