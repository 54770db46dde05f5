"""Shell completion: the script that a shell loads, and the names of resources that it offers."""

from __future__ import annotations

import os
from itertools import islice

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class, split_arg_string

from leasehold.cli import COMPLETING

SHELLS = ("bash", "zsh", "fish")
MOST = 100
HARMLESS = "@%+=:,./-_"  # beside letters and digits; a shell would read other things in its own way

# bash breaks words at colons, which our names have, and replaces only what stands behind the last: so it sends the line
# as it is, and takes away what stands before.
BASH = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} before= kind value
    local word=${line##*[[:space:]]}
    [[ $COMP_WORDBREAKS == *:* ]] && before=${word%%"${word##*:}"}
    COMPREPLY=()
    while IFS=, read -r kind value; do
        if [[ $kind == plain ]]; then
            COMPREPLY+=("${value#"$before"}")
        elif [[ $kind == file ]]; then
            compopt -o default
        fi
    done < <(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class Bash(BashComplete):
    """As click's, for names with colons."""

    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words behind our own, and the last one, which may be empty."""
        line = os.environ["COMP_WORDS"]
        words = [*split_arg_string(line), *([""] if line[-1:].isspace() else [])]
        return words[1:-1], words[-1]


def script(shell: str, commands: click.Command) -> str:
    """To be evaluated by the shell when it starts."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    return kind(commands, {}, "leasehold", COMPLETING).source()


def cases(_ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Those of ``leasehold advise`` that begin so."""
    from leasehold.advice import CASES

    return [name for name in CASES if name.startswith(begun)]


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
    plain = [name if name.startswith(begun) else name.partition("/")[2] for name in found]
    return [name for name in plain if all(char.isalnum() or char in HARMLESS for char in name)]
