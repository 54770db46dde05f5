"""Django: ``django.db.connection``, or one of ``connections``, inside ``transaction.atomic()``."""

from __future__ import annotations

from typing import Any

from leasehold.errors import Unsupported
from leasehold.guards.sql.dialects import DIALECTS
from leasehold.guards.sql.drivers import Adapter, no_transaction, require_mariadb, unusable

NAMES = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb"}


class DjangoAdapter(Adapter):
    """Through Django's own cursors, so that its logging and its test cases see the statements."""

    def __init__(self, connection: Any) -> None:
        name = NAMES.get(connection.vendor)
        if name is None:
            raise Unsupported(f"this guard knows {', '.join(DIALECTS)}, not {connection.vendor}")
        super().__init__(connection, DIALECTS[name])

    def require_transaction(self) -> None:
        connection = self.connection
        if not connection.in_atomic_block:
            raise no_transaction("use `with transaction.atomic():`")
        if connection.needs_rollback:
            raise unusable("its transaction has failed: roll back")
        if connection.vendor == "mysql":
            require_mariadb(bool(connection.mysql_is_mariadb))


def is_django(connection: Any) -> bool:
    """Has it what Django's connections have? ``django.db.connection`` itself is a proxy of a class of its own."""
    return hasattr(type(connection), "vendor") or (
        type(connection).__module__.startswith("django.") and hasattr(connection, "in_atomic_block")
    )
