"""The example of jobs is a file that runs, with tests of its own, and the page shows it as it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = ["report_jobs.py", "test_report_jobs.py"]


def test_the_page_shows_the_file() -> None:
    """Every line of it."""
    page = (ROOT / "docs" / "patterns" / "jobs.md").read_text(encoding="utf-8")
    [shown] = re.findall(r'^```python title="report_jobs.py"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    assert shown == (ROOT / "examples" / FILES[0]).read_text(encoding="utf-8")


def test_its_tests_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As their reader runs them; a worker is really killed in one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for file in FILES:
        shutil.copy(ROOT / "examples" / file, pytester.path)
    result = pytester.runpytest_inprocess("-W", "error", "-W", "ignore:Module already imported")
    tests = (ROOT / "examples" / FILES[1]).read_text(encoding="utf-8").count("\ndef test_")
    result.assert_outcomes(passed=tests)
