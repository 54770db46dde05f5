"""Fixtures for patterns: every way to a transaction, on every database; and a table of cases."""

from __future__ import annotations

import pytest

from tests.guards.conftest import desk
from tests.guards.desks import Desk
from tests.patterns.cases import Cases

__all__ = ["desk"]  # a fixture


@pytest.fixture
def cases(desk: Desk) -> Cases:
    """A table with one case that is ready, by every way."""
    return Cases(desk)
