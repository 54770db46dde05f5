"""The example of single_flight is a program with tests, and they pass as its reader runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ["single_flight.py", "test_single_flight.py"]


def test_the_example_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the plugin alone, and warnings as errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for file in FILES:
        shutil.copy(EXAMPLES / file, pytester.path)
    ignored = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # by the run outside
    result = pytester.runpytest_inprocess("-p", "leasehold.testing.plugin", "-W", "error", "-W", ignored)
    tests = (EXAMPLES / FILES[1]).read_text(encoding="utf-8").count("\ndef test_")
    result.assert_outcomes(passed=tests)
