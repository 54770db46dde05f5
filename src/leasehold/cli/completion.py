"""Shell completion: the script that a shell loads, and the names that it completes."""

from __future__ import annotations

import os
from itertools import islice

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class, split_arg_string

from leasehold.cli import COMPLETING

SHELLS = ("bash", "zsh", "fish")
MOST = 100
HARMLESS = "@%+=:,./-_"  # with letters and digits; other characters are special in a shell

# bash breaks words at colons, which our names have, and replaces only the part behind the last one. So the script sends
# the whole line, and removes the part before it from what it offers.
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
    """Click's completion for bash, for names with colons."""

    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words after the program's name, without the last; and the last one, which may be empty."""
        line = os.environ["COMP_WORDS"]
        words = [*split_arg_string(line), *([""] if line[-1:].isspace() else [])]
        return words[1:-1], words[-1]


def script(shell: str, commands: click.Command) -> str:
    """The script that the shell evaluates when it starts."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    return kind(commands, {}, "leasehold", COMPLETING).source()


def cases(_ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """The cases of ``leasehold advise`` with this prefix."""
    from leasehold.advice import CASES

    return [name for name in CASES if name.startswith(prefix)]


def stores(_ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """The stores of ``leasehold guarantees`` with this prefix."""
    from leasehold._core.schemes import OPENED

    return [name for name in OPENED if name.startswith(prefix)]


def names(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """The resources of the embedded store with this prefix. For other stores the shell would wait for a network."""
    from leasehold import LeaseholdError, connect

    given = {**(ctx.obj or {}), **{key: value for key, value in ctx.params.items() if value}}
    url = given.get("url") or os.environ.get("LEASEHOLD_URL") or "sqlite:"
    if not url.startswith("sqlite:") or "*" in prefix or "?" in prefix:
        return []
    try:
        with connect(given.get("url"), namespace=given.get("namespace")) as hold:
            found = [one.resource for one in islice(hold.scan(prefix + "*"), MOST)]
    except LeaseholdError:
        return []
    plain = [name if name.startswith(prefix) else name.partition("/")[2] for name in found]
    return [name for name in plain if all(char.isalnum() or char in HARMLESS for char in name)]
