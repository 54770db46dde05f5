"""Databases that stand in for those which pages name: ``app:secret@localhost:5432/app``, and 3306 for MariaDB.

A page may write the port after its host as in a URL, as keyword arguments, or as Django's settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

WAYS = ("localhost:{}", 'localhost", port={}', 'localhost", "PORT": {}')
# The port: what starts a server, and what lets a user without privileges in.
SERVERS = {
    "5432": ("own_postgres", ["CREATE ROLE app LOGIN PASSWORD 'secret'", "CREATE DATABASE app OWNER app"]),
    "3306": (
        "own_mariadb",
        ["CREATE DATABASE app", "CREATE USER app IDENTIFIED BY 'secret'", "GRANT ALL ON app.* TO app"],
    ),
}
ADDRESSES = [way.format(port) for port in SERVERS for way in WAYS]


def stand_ins(code: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Each way in which this code may name a database, and the address of a new and empty one."""
    for port, (start, statements) in SERVERS.items():
        ways = [way for way in WAYS if way.format(port) in code]
        if ways:
            server = request.getfixturevalue(start)()
            for statement in statements:
                server.execute(statement)
            yield from ((way.format(port), way.replace("localhost", "127.0.0.1").format(server.port)) for way in ways)
