"""Patterns over names: a star, a question mark, and nothing else that is special."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.names import matches
from tests.support.tables import each


@each(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "report:42", True),
        ("**", "a", True),
        ("?", "", False),
        ("?", "é", True),
        ("?", "ab", False),
        ("report:*", "report:42", True),
        ("report:*", "acme/report:42", False),
        ("*report:*", "acme/report:42", True),
        ("r*:4?", "report:42", True),
        ("r*:4?", "report:4", False),
        ("*a", "aaab", False),
        ("a*b*c", "a-b-b-c", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        (r"\*", "*", False),
        (r"\*", "\\anything", True),
        ("a^b", "a^b", True),
        ("REPORT", "report", False),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    """The whole name, in its own case, with whatever other signs it holds."""
    assert matches(pattern, text) is expected


@given(st.text("ab*?[", max_size=8), st.text("ab[", max_size=8))
def test_like_a_regular_expression(pattern: str, text: str) -> None:
    """The same answer as the textbook's."""
    parts = [{"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern]
    assert matches(pattern, text) is (re.fullmatch("".join(parts), text, re.DOTALL) is not None)


def test_a_wicked_pattern_takes_no_time() -> None:
    """Not exponential: an operator's typing error must not stop a process."""
    assert not matches("*a" * 50 + "b", "a" * 500)  # else the time limit of tests ends it
