"""The commands inside the files of the page on deploying are understood: nobody runs these files in a test."""

from __future__ import annotations

import re
import shlex

import pytest

from leasehold.cli.arguments import parse_run
from leasehold.cli.service_arguments import parse_cron, parse_elect
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"\bleasehold (run|elect|cron) ([^`\n]* -- [^`\n]+)")
PARSE = {"run": parse_run, "elect": parse_elect, "cron": parse_cron}


@pytest.mark.parametrize(("command", "words"), COMMAND.findall(PAGE))
def test_a_command_is_understood(command: str, words: str) -> None:
    """Its options exist, and have the right form; the program comes after the dashes."""
    request = PARSE[command](shlex.split(words), {})
    assert list(request.command) == shlex.split(words.split(" -- ")[1])


def test_there_are_commands() -> None:
    """The page has examples of both kinds."""
    assert {command for command, _ in COMMAND.findall(PAGE)} >= {"run", "elect"}


CRONTAB = re.compile(r"^ *(?:[\d*/,-]+ +){5}(.*\bleasehold .*)$", re.MULTILINE)
TEXTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src/leasehold/cli").glob("*.py")]


def test_a_crontab_names_its_store() -> None:
    """By ``--url``, or by a file that it reads: it has no other environment, and each host would lock by itself."""
    lines = [line for path in TEXTS for line in CRONTAB.findall(path.read_text(encoding="utf-8"))]
    nameless = [line for line in lines if "--url redis://" not in line and not line.startswith(". /")]
    assert len(lines) >= 4 and nameless == []
