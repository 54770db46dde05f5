"""A network in front of the shared server, which a test makes bad."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.postgresql.network import Network
from tests.support.servers.database import Database


@pytest.fixture
def network(postgres_database: Database) -> Iterator[Network]:
    """Good until it is made bad."""
    with Network(postgres_database) as network:
        yield network
