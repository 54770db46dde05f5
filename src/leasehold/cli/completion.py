"""Shell completion: the script that a shell loads, and the names of resources that it offers."""

from __future__ import annotations

import os
from itertools import islice

import click
from click.shell_completion import get_completion_class

from leasehold.cli import COMPLETING

SHELLS = ("bash", "zsh", "fish")
MOST = 100


def script(shell: str, commands: click.Command) -> str:
    """To be evaluated by the shell when it starts."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    return kind(commands, {}, "leasehold", COMPLETING).source()


def names(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Those of the embedded store that begin so. Other stores are not asked: the shell would wait for a network."""
    from leasehold import LeaseholdError, connect

    given = {**(ctx.obj or {}), **{key: value for key, value in ctx.params.items() if value}}
    url = given.get("url") or os.environ.get("LEASEHOLD_URL") or "sqlite:"
    if not url.startswith("sqlite:") or "*" in begun or "?" in begun:
        return []
    try:
        with connect(given.get("url"), namespace=given.get("namespace")) as hold:
            found = [one.resource for one in islice(hold.scan(begun + "*"), MOST)]
    except LeaseholdError:
        return []
    return [name if name.startswith(begun) else name.partition("/")[2] for name in found]
