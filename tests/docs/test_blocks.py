"""The machine that runs the pages can fail: a wrong example, a wrong output or an unknown block is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import blocks, faults
from tests.docs.terminal import commands, matches
from tests.docs.test_readme import run


def played(folder: Path, text: str) -> tuple[int, str]:
    """How a page with this text ends, and what it says."""
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    (folder / "run").mkdir()
    done = run(page, folder / "run")
    return done.returncode, done.stderr


def test_a_failing_example_names_its_line(tmp_path: Path) -> None:
    """An example that is wrong is reported with the line of the page that it stands in."""
    status, errors = played(tmp_path, "# Title\n\n```text\nnot python\n```\n\n```python\nx = 1\nassert x == 2\n```\n")
    assert status == 1
    assert 'page.md", line 9' in errors


def test_blocks_share_a_program_a_shell_and_a_folder(tmp_path: Path) -> None:
    """A page is told from top to bottom: names, variables of the shell and files go on from block to block."""
    status, errors = played(
        tmp_path,
        '```python title="twice.py"\ndef twice(x):\n    return 2 * x\n```\n'
        "```python\nfrom twice import twice\nopen('x', 'w').write(str(twice(21)))\n```\n"
        "```console\n$ A=$(cat x)\n$ sleep 30 > /dev/null &\n```\n"
        '```console\n$ echo "$A" && \\\n  ls twice.py\n42\n...\n$ false\n$ echo $?\n1\n$ cat\n```\n',
    )
    assert status == 0, errors


@pytest.mark.parametrize(
    ("console", "complaint"),
    [
        ("$ echo one\ntwo\n", "but the page says"),
        ("$ echo one\n", "but the page says"),
        ("$ false\n", "ended with 1"),
        ("$ exit 3\n", "the shell ended"),
        ("no command\n", "begins with a command"),
    ],
)
def test_a_wrong_output_is_found(tmp_path: Path, console: str, complaint: str) -> None:
    """What a command prints, and how it ends, is what the page says."""
    status, errors = played(tmp_path, f"```console\n{console}```\n")
    assert status == 1
    assert complaint in errors


def test_dots_match_anything() -> None:
    """Dots stand for the rest of a line, or on their own for any lines; everything else stands for itself."""
    assert matches(["held by ...", "..."], ["held by web-1:7", "a", "b"])
    assert matches(["...", "last"], ["last"])
    assert matches(["a ... c"], ["a b c  "])
    assert not matches(["...", "last"], ["last", "and more"])
    assert not matches(["a.c"], ["abc"])
    assert not matches(["a"], [])


def test_a_command_may_take_several_lines() -> None:
    """A backslash at the end of a line joins it with the next; what follows is output."""
    assert commands("$ a \\\n  b\nout\n$ c\n") == [("a \\\n  b", ["out"]), ("c", [])]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    """A page can show how a block is written."""
    assert [block.language for block in blocks("````text\n```python\n1/0\n```\n````\n")] == ["text"]


@pytest.mark.parametrize(
    "text",
    [
        "```\nwhat is this?\n```\n",
        "```rust\nfn main() {}\n```\n",
        "- a list\n\n  ```python\n  1 / 0\n  ```\n",
        "~~~python\n1 / 0\n~~~\n",
        "```sh\nleasehold demo\n```\n",
        '```python title="alone.py"\n```\n',
    ],
)
def test_a_block_that_would_not_run_is_found(text: str) -> None:
    """Neither an unknown language, nor an unusual fence, nor a file that nobody uses goes by unseen."""
    assert faults(text) != []


def test_a_block_without_an_end_is_found() -> None:
    """The rest of the page would be swallowed."""
    with pytest.raises(ValueError, match="line 3"):
        blocks("# Title\n\n```python\nx = 1\n")
