"""Examples that are a program with tests: the tests pass as a reader of theirs runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["payments", "report_export", "single_flight"])
def test_the_example_passes(name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, with the plugin alone, and warnings as errors."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    tests = EXAMPLES / f"test_{name}.py"
    for file in (EXAMPLES / f"{name}.py", tests):
        shutil.copy(file, pytester.path)
    result = pytester.runpytest_subprocess("-p", "leasehold.testing.plugin", "-W", "error", timeout=50)
    result.assert_outcomes(passed=tests.read_text(encoding="utf-8").count("\ndef test_"))
    assert "Traceback" not in result.stderr.str()
