"""The options of our commands as click knows them: those of the tables, and those that every command has."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import Any

import click

from leasehold.cli import completion
from leasehold.cli.arguments import COMMON, Option
from leasehold.cli.output import CommandEnded, ExitCode, Output


def option(one: Option) -> click.Option:
    """An option of the table as one of click's."""
    kind = click.Choice(one.choices) if one.choices else None
    names = [*one.names, one.field]
    return click.Option(names, is_flag=not one.value, metavar=one.value or None, type=kind, help=one.help, default=None)


def parameters(table: tuple[Option, ...]) -> list[click.Parameter]:
    """NAME, the options of the table, and the command to run."""
    name = click.Argument(["name"], shell_complete=completion.names)
    command = click.Argument(["command"], nargs=-1, metavar="-- COMMAND...", type=click.Path())
    return [name, *[option(one) for one in table], command]


def common(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of the store to a command. They may be given before the command's name as well; those behind
    it count. A failure ends the command with its exit code."""

    @functools.wraps(function)
    def called(*arguments: Any, url: str | None, namespace: str | None, as_json: bool | None, **more: Any) -> None:
        before = click.get_current_context().obj or {}
        chosen = {"url": before.get("url") if url is None else url, "namespace": namespace or before.get("namespace")}
        storeless(function)(*arguments, **chosen, as_json=as_json, **more)

    called.__click_params__ = [option(one) for one in reversed(COMMON)]  # type: ignore[attr-defined]  # as click does it
    return called


def storeless(function: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that needs no store: its only common option is ``--json``."""

    @functools.wraps(function)
    def called(*arguments: Any, as_json: bool | None, **more: Any) -> None:
        before = click.get_current_context().obj or {}
        as_json = bool(as_json or before.get("as_json"))
        try:
            function(*arguments, as_json=as_json, **more)
        except CommandEnded as ended:
            if ended.event:
                Output(as_json).report(ended.event, str(ended), **ended.fields)
            raise SystemExit(ended.code) from ended
        except KeyboardInterrupt:  # for click it is 1, which of some commands is an answer
            raise SystemExit(ExitCode.of_signal(signal.SIGINT)) from None

    called.__click_params__ = [option(COMMON[-1])]  # type: ignore[attr-defined]  # as above
    return called
