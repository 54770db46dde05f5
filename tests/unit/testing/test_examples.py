"""The examples of the page on testing are files that run, and the page shows them as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "howto" / "testing.md"
FILES = ["report_export.py", "test_report_export.py"]


def written(text: str) -> list[str]:
    """The lines of it that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def shown(page: str, file: str) -> list[str]:
    """The lines of a file, as the blocks of the page that name it show them one after the other."""
    blocks = re.findall(rf'^```python title="examples/{re.escape(file)}"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    return written("\n".join(blocks))


@pytest.mark.parametrize("file", FILES)
def test_the_page_shows_the_file(file: str) -> None:
    """Every line of the file is on the page, in order, and nothing else."""
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    assert shown(PAGE.read_text(encoding="utf-8"), file) == written(text) != []


def test_every_example_is_shown() -> None:
    """A file that is added is shown on the page, or stands on another one and is tested there."""
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r'title="examples/(\w+\.py)"', page))
    assert named == set(FILES) and all((EXAMPLES / file).is_file() for file in named)


def test_the_comparison_can_fail() -> None:
    """A line that was changed on one side alone is found."""
    page = (
        '```python title="examples/a.py"\nx = 1\n\ny = 2\n```\n\ntext\n\n```python title="examples/a.py"\nz = 3\n```\n'
    )
    assert shown(page, "a.py") == ["x = 1", "y = 2", "z = 3"] and shown(page, "b.py") == []
