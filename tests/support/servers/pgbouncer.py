"""PgBouncer, in transaction mode, in front of a PostgreSQL: clients share a few connections to the server.

A client has a connection to the server only while its transaction lasts. What it leaves in the session (a SET, a
LISTEN, a prepared statement, a lock of the session) stays with the connection, and the next client finds it there.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from typing import Any

from tests.support.servers import process
from tests.support.servers.database import Database, empty_folder
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import Server

# Whoever is a role of the server may connect, without a password; the server is asked whether it is one.
SETTINGS = {
    "pool_mode": "transaction",
    "max_client_conn": 500,
    "auth_type": "trust",
    "auth_user": "postgres",
    "admin_users": "postgres",
    "unix_socket_dir": "",
    "server_login_retry": 0.1,  # seconds until it tries again to reach a server that was down; 15 by default
    "log_connections": 0,
    "log_disconnections": 0,
}


class PgBouncer(Server):
    """It starts with ``with``. At most ``size`` connections to the server for each database and user; ``settings``
    are further ones of its file, such as ``pool_mode="session"``. It does not stop the server."""

    def __init__(self, server: PostgresServer, *, size: int = 2, **settings: str | float) -> None:
        program = executable()  # before there is anything to leave behind
        self._server = server
        self._account = process.account()
        self._place = process.reserve()
        self.port: int = self._place.getsockname()[1]
        self.folder = empty_folder("pgbouncer")
        self._file = self.folder / "pgbouncer.ini"
        self._program = program
        users = self.folder / "users.txt"
        users.write_text('"postgres" ""\n')
        places = {"listen_addr": "127.0.0.1", "listen_port": self.port, "auth_file": users, "default_pool_size": size}
        lines = [f"{name} = {value}" for name, value in {**SETTINGS, **places, **settings}.items()]
        databases = ["[databases]", f"* = host=127.0.0.1 port={server.port}"]
        self._file.write_text("\n".join([*databases, "[pgbouncer]", *lines, ""]))

    def before(self, database: Database) -> Database:
        """The same database, by way of here."""
        return replace(database, port=self.port)

    @property
    def main(self) -> Database:
        """The main database of the server, by way of here."""
        return self.before(self._server.main)

    @property
    def dsn(self) -> str:
        """Of the main database."""
        return self.main.dsn

    def order(self, command: str) -> list[dict[str, Any]]:
        """A command of its console, such as ``PAUSE``, ``RESUME``, ``RECONNECT`` or ``SHOW POOLS``, and its rows."""
        import psycopg
        from psycopg.rows import dict_row

        console = replace(self.main, name="pgbouncer")
        with psycopg.connect(console.dsn, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    # ------------------------------------------------------------ its life

    def _command(self) -> list[str]:
        return [self._program, str(self._file)]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Gone, with everything that it wrote."""
        self.kill()
        self._place.close()
        shutil.rmtree(self.folder)


def executable() -> str:
    """The one of the system, which tools/servers.sh installs."""
    found = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None:
        raise FileNotFoundError("no pgbouncer here; tools/servers.sh installs it")
    return found
