"""One shell for a whole page: console blocks are typed into it, and what it prints is compared with the page.

    $ a command             run as it stands; one that ends with a backslash goes on in the next line
    what it prints          compared line by line, standard error included; `...` in a line matches anything, and
    ...                     a line of nothing else matches any number of lines

A command that fails fails the page, unless the next one is `$ echo $?`.
"""

from __future__ import annotations

import re
import secrets
import subprocess
from types import TracebackType

ASKED = "echo $?"


class Unexpected(AssertionError):
    """A command of a page did something else than the page says."""


def commands(code: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    more = False
    for line in code.splitlines():
        if more:
            command, _ = found[-1]
            found[-1] = (f"{command}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise Unexpected(f"a console block begins with a command after `$ `, not with: {line}")
        more = found[-1][0].endswith("\\") and not found[-1][1]
    return found


def matches(said: list[str], printed: list[str]) -> bool:
    """Is this what the page says?"""
    if not said:
        return not printed
    if said[0] == "...":
        return any(matches(said[1:], printed[skip:]) for skip in range(len(printed) + 1))
    return bool(printed) and _alike(said[0], printed[0]) and matches(said[1:], printed[1:])


def _alike(said: str, printed: str) -> bool:
    parts = [re.escape(part) for part in said.rstrip().split("...")]
    return re.fullmatch(".*".join(parts), printed.rstrip()) is not None


class Terminal:
    """A bash that a page types into. What it started in the background ends with it."""

    def __init__(self) -> None:
        self._bash: subprocess.Popen[str] | None = None
        self._mark = secrets.token_hex(8)

    def enter(self, code: str, place: str) -> None:
        """Run a console block, and compare."""
        asked = commands(code)
        following = [command for command, _ in asked[1:]] + [""]
        for (command, said), then in zip(asked, following, strict=True):
            printed, status = self._run(command)
            told = f"{place}: $ {command}\n" + "\n".join(printed)
            if not matches(said, printed):
                raise Unexpected(f"{told}\n--- but the page says\n" + "\n".join(said))
            if status and then != ASKED:
                raise Unexpected(f"{told}\n--- it ended with {status}, and the page does not ask for that")

    def _run(self, command: str) -> tuple[list[str], int]:
        if self._bash is None:
            self._bash = subprocess.Popen(
                ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\n__status=$?; echo; echo {self._mark} $__status\n")
        self._bash.stdin.write("(exit $__status)\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(self._mark):
                return _without_last_empty(printed), int(line.split()[1])
            printed.append(line.rstrip("\n"))
        raise Unexpected(f"the shell ended at: {command}\n" + "\n".join(printed))

    def close(self) -> None:
        """End the shell, and what it started in the background."""
        if self._bash is None:
            return
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write("kill $(jobs -p) 2>/dev/null; wait\n")
        self._bash.stdin.close()
        self._bash.stdout.close()
        self._bash.wait(10)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _without_last_empty(printed: list[str]) -> list[str]:
    """The mark stands on a line of its own, after an empty one or after a line that had no end."""
    return printed[:-1] if printed and not printed[-1] else printed
